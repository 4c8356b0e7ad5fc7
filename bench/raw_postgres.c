/*
 * raw_postgres.c - a conditional write of a row by libpq alone: a prepared UPDATE of as many
 * columns as a row of Holdfast has.
 */
#include "bench.h"
#include "raw.h"

#include <libpq-fe.h>
#include <stdio.h>
#include <string.h>

enum { SQL_CAP = 4096, VALUES = HF_FIELDS + 2 };

static PGconn *to;
static const char *value[VALUES];
static char seen[24], next[24];
static unsigned long long rev = 1;

static PGresult *must(PGresult *r)
{
    ExecStatusType status = PQresultStatus(r);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        bench_die("libpq: %s", PQerrorMessage(to));
    return r;
}

static void write_it(void)
{
    snprintf(seen, sizeof seen, "%llu", rev++);
    snprintf(next, sizeof next, "%llu", rev);
    PGresult *r = must(PQexecPrepared(to, "replace", VALUES, value, NULL, NULL, 0));
    if (strcmp(PQcmdTuples(r), "1") != 0) bench_die("postgres: not replaced");
    PQclear(r);
}

static void trip(void) { PQclear(must(PQexecPrepared(to, "trip", 0, NULL, NULL, NULL, 0))); }

static void must_sync(void)
{
    PGresult *r = must(PQexec(to, "SELECT current_setting('fsync') = 'on' AND "
                                  "current_setting('synchronous_commit') = 'on'"));
    if (*PQgetvalue(r, 0, 0) != 't') bench_die("postgres: the server doesn't sync its writes");
    PQclear(r);
}

static void open_it(const char *url, int durable)
{
    char columns[SQL_CAP], sets[SQL_CAP], sql[2 * SQL_CAP];
    size_t n = 0, m = 0;
    to = PQconnectdb(url);
    if (PQstatus(to) != CONNECTION_OK) bench_die("libpq: %s", PQerrorMessage(to));
    for (int i = 0; i < HF_FIELDS; i++) {
        const char *type = raw_kind[i] == HF_NUMBER ? "bigint" : "text";
        n += (size_t)snprintf(columns + n, sizeof columns - n, ", \"%s\" %s NOT NULL DEFAULT '0'",
                              raw_name[i], type);
        m += (size_t)snprintf(sets + m, sizeof sets - m, "%s\"%s\" = $%d", i ? ", " : "",
                              raw_name[i], i + 3);
        value[i + 2] = i == HF_FIELD_REV ? next : raw_value[i];
    }
    /* On this server there may have been others before. */
    PQclear(must(PQexec(to, "SET client_min_messages = warning; DROP TABLE IF EXISTS raw")));
    snprintf(sql, sizeof sql, "CREATE TABLE raw (key text COLLATE \"C\" PRIMARY KEY%s)", columns);
    PQclear(must(PQexec(to, sql)));
    PQclear(must(PQexec(to, "INSERT INTO raw (key, rev) VALUES ('bench', 1)")));
    snprintf(sql, sizeof sql, "UPDATE raw SET %s WHERE key = $1 AND rev = $2", sets);
    PQclear(must(PQprepare(to, "replace", sql, 0, NULL)));
    PQclear(must(PQprepare(to, "trip", "SELECT 1", 0, NULL)));
    value[0] = "bench";
    value[1] = seen;
    if (durable) must_sync();
    write_it();
}

const struct raw raw_postgres = {"postgres", open_it, write_it, trip};
