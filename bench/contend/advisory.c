/*
 * advisory.c - a competitor by PostgreSQL's advisory locks: held by its connection, without lease.
 *
 *     contend-advisory URL LEASE_MS
 */
#include "../bench.h"
#include "competitor.h"

#include <libpq-fe.h>
#include <stdio.h>

static PGconn *to;
static char key_text[64];

static void ask(const char *text)
{
    const char *const values[] = {key_text};
    PGresult *r = PQexecParams(to, text, 1, NULL, values, NULL, NULL, 0);
    if (PQresultStatus(r) != PGRES_TUPLES_OK) bench_die("libpq: %s", PQerrorMessage(to));
    PQclear(r);
}

static void connect_to(const char *url, long lease_ms)
{
    (void)lease_ms;
    to = PQconnectdb(url);
    if (PQstatus(to) != CONNECTION_OK) bench_die("libpq: %s", PQerrorMessage(to));
}

static void take(const char *key)
{
    snprintf(key_text, sizeof key_text, "%s", key);
    ask("SELECT pg_advisory_lock(hashtext($1))");
}

static int give(void)
{
    ask("SELECT pg_advisory_unlock(hashtext($1))");
    return 0;
}

int main(int argc, char **argv)
{
    static const struct competitor advisory = {"advisory locks", connect_to, take, give};
    if (argc != 3) bench_die("usage: contend-advisory URL LEASE_MS");
    return compete(&advisory, argv[1], bench_number(argv[2], 0, 3600000));
}
