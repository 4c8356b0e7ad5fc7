/*
 * peer_advisory.c - PostgreSQL's advisory locks by libpq; by prepared statements, as ours are. See
 * peer_lock.h.
 *
 * An advisory lock is held by a connection: it has neither lease nor token, is lost with the
 * connection (which nobody notices before the next statement), and each waiter keeps one.
 */
#include "bench.h"
#include "peer_lock.h"

#include <libpq-fe.h>

static PGconn *to;

static void must(PGresult *r)
{
    ExecStatusType status = PQresultStatus(r);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        bench_die("libpq: %s", PQerrorMessage(to));
    PQclear(r);
}

static void ask(const char *name) { must(PQexecPrepared(to, name, 0, NULL, NULL, NULL, 1)); }

static void connect_to(const char *url)
{
    to = PQconnectdb(url);
    if (PQstatus(to) != CONNECTION_OK) bench_die("libpq: %s", PQerrorMessage(to));
    /* On this server there may have been others before. */
    must(PQexec(to, "SET client_min_messages = warning;"
                    "CREATE TABLE IF NOT EXISTS peer (key text PRIMARY KEY, rev bigint);"
                    "INSERT INTO peer VALUES ('k', 1) ON CONFLICT DO NOTHING"));
    static const char *const statement[][2] = {
        {"take", "SELECT pg_advisory_lock(4711)"},
        {"give", "SELECT pg_advisory_unlock(4711)"},
        {"take handover", "SELECT pg_advisory_lock(4712)"},
        {"give handover", "SELECT pg_advisory_unlock(4712)"},
        {"write", "UPDATE peer SET rev = rev + 1 WHERE key = 'k' AND rev >= 0"}};
    for (size_t i = 0; i < sizeof statement / sizeof *statement; i++)
        must(PQprepare(to, statement[i][0], statement[i][1], 0, NULL));
}

static void take(int lock) { ask(lock == LOCK_HANDOVER ? "take handover" : "take"); }
static void give(int lock) { ask(lock == LOCK_HANDOVER ? "give handover" : "give"); }
static void write_it(void) { ask("write"); }

static int is_wanted(void)
{
    PGresult *r = PQexec(to, "SELECT count(*) FROM pg_locks WHERE objid = 4712 AND NOT granted");
    if (PQresultStatus(r) != PGRES_TUPLES_OK) bench_die("libpq: %s", PQerrorMessage(to));
    int some = PQgetvalue(r, 0, 0)[0] != '0';
    PQclear(r);
    return some;
}

static void close_it(void) { PQfinish(to); }

const struct lock_peer lock_peer = {connect_to, take, give, write_it, is_wanted, close_it};
