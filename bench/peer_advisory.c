/*
 * peer_advisory.c - PostgreSQL's advisory locks by libpq: acquire and release, a bare conditional
 * write, the handover; by prepared statements, as ours are.
 *
 *     peer_advisory URL ROUNDS ROUND_MS HANDOVERS WARM_MS
 *
 * An advisory lock is held by a connection: it has neither lease nor token, is lost with the
 * connection (which nobody notices before the next statement), and each waiter keeps one.
 */
#include "bench.h"

#include <libpq-fe.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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

static void pair(void)
{
    ask("take");
    ask("give");
}

static void write_it(void) { ask("write"); }

static struct shared {
    int64_t given_ns, had_ns;
    uint32_t wanted, had; /* numbers of handovers */
} *shared;

static uint32_t see(const uint32_t *n) { return __atomic_load_n(n, __ATOMIC_ACQUIRE); }

static void nap(void)
{
    struct timespec t = {0, 1000000};
    nanosleep(&t, NULL);
}

/* Sleeps in the server until it is given the lock. */
static void want(const char *url, long n)
{
    connect_to(url);
    for (uint32_t i = 1; i <= n; i++) {
        while (see(&shared->wanted) != i) nap();
        ask("take handover");
        shared->had_ns = bench_ns();
        ask("give handover");
        __atomic_store_n(&shared->had, i, __ATOMIC_RELEASE);
    }
    PQfinish(to);
    _exit(0);
}

static void handover(const char *url, long n)
{
    struct series took = bench_series("handover", (size_t)n);
    shared = bench_shared(sizeof *shared);
    pid_t child = fork();
    if (child < 0) bench_die("fork: failed");
    if (!child) want(url, n);
    connect_to(url);
    for (uint32_t i = 1; i <= n; i++) {
        ask("take handover");
        __atomic_store_n(&shared->wanted, i, __ATOMIC_RELEASE);
        for (PGresult *r = NULL; !r || PQgetvalue(r, 0, 0)[0] == '0'; nap()) {
            PQclear(r);
            r = PQexec(to, "SELECT count(*) FROM pg_locks WHERE objid = 4712 AND NOT granted");
            if (PQresultStatus(r) != PGRES_TUPLES_OK) bench_die("libpq: %s", PQerrorMessage(to));
            if (PQgetvalue(r, 0, 0)[0] != '0') {
                PQclear(r);
                break;
            }
        }
        write_it(); /* this end is awake */
        shared->given_ns = bench_ns();
        ask("give handover");
        while (see(&shared->had) != i) nap();
        bench_add(&took, (double)(shared->had_ns - shared->given_ns) / 1e3);
    }
    bench_reap(child, 0);
    bench_print(&took, "us");
}

static void warm(void (*once)(void), long ms)
{
    for (int64_t end = bench_ns() + ms * 1000000; bench_ns() < end;) once();
}

int main(int argc, char **argv)
{
    if (argc != 6) bench_die("usage: peer_advisory URL ROUNDS ROUND_MS HANDOVERS WARM_MS");
    long rounds = bench_number(argv[2], 1, 10000), ms = bench_number(argv[3], 1, 1000);
    long warm_ms = bench_number(argv[5], 0, 60000);
    connect_to(argv[1]);
    warm(pair, warm_ms);
    warm(write_it, warm_ms);
    struct series pairs = bench_series("acquire+release", (size_t)rounds),
                  writes = bench_series("raw", (size_t)rounds);
    for (long r = 0; r < rounds; r++) {
        bench_round(pair, ms, &pairs);
        bench_round(write_it, ms, &writes);
    }
    bench_print_ratio(&pairs, &writes);
    bench_print(&pairs, "us");
    bench_print(&writes, "us");
    PQfinish(to);
    handover(argv[1], bench_number(argv[4], 1, 10000));
    return 0;
}
