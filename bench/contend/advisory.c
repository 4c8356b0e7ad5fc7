/*
 * advisory.c - a competitor by PostgreSQL's advisory locks: held by its connection, without lease;
 * by prepared statements, as ours are.
 *
 *     contend-advisory URL LEASE_MS
 */
#include "../bench.h"
#include "competitor.h"

#include <libpq-fe.h>
#include <stdio.h>

static PGconn *to;
static char key_text[64];

static void must(PGresult *r)
{
    ExecStatusType status = PQresultStatus(r);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        bench_die("libpq: %s", PQerrorMessage(to));
    PQclear(r);
}

static void ask(const char *name)
{
    const char *const values[] = {key_text};
    must(PQexecPrepared(to, name, 1, values, NULL, NULL, 0));
}

static void connect_to(const char *url, long lease_ms)
{
    (void)lease_ms;
    to = PQconnectdb(url);
    if (PQstatus(to) != CONNECTION_OK) bench_die("libpq: %s", PQerrorMessage(to));
    must(PQprepare(to, "take", "SELECT pg_advisory_lock(hashtext($1))", 0, NULL));
    must(PQprepare(to, "give", "SELECT pg_advisory_unlock(hashtext($1))", 0, NULL));
}

static void take(const char *key)
{
    snprintf(key_text, sizeof key_text, "%s", key);
    ask("take");
}

static int give(void)
{
    ask("give");
    return 0;
}

int main(int argc, char **argv)
{
    static const struct competitor advisory = {"advisory locks", connect_to, take, give};
    if (argc != 3) bench_die("usage: contend-advisory URL LEASE_MS");
    return compete(&advisory, argv[1], bench_number(argv[2], 0, 3600000));
}
