/*
 * peer_advisory.c - PostgreSQL's advisory locks by libpq: acquire and release, a bare conditional
 * write, the handover.
 *
 *     peer_advisory URL ROUNDS ROUND_MS HANDOVERS
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

static void ask(const char *text)
{
    PGresult *r = PQexecParams(to, text, 0, NULL, NULL, NULL, NULL, 1);
    ExecStatusType status = PQresultStatus(r);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        bench_die("libpq: %s", PQerrorMessage(to));
    PQclear(r);
}

static void connect_to(const char *url)
{
    to = PQconnectdb(url);
    if (PQstatus(to) != CONNECTION_OK) bench_die("libpq: %s", PQerrorMessage(to));
}

static void pair(void)
{
    ask("SELECT pg_advisory_lock(4711)");
    ask("SELECT pg_advisory_unlock(4711)");
}

static void write_it(void) { ask("UPDATE peer SET rev = rev + 1 WHERE key = 'k' AND rev >= 0"); }

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
        ask("SELECT pg_advisory_lock(4712)");
        shared->had_ns = bench_ns();
        ask("SELECT pg_advisory_unlock(4712)");
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
        ask("SELECT pg_advisory_lock(4712)");
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
        ask("SELECT pg_advisory_unlock(4712)");
        while (see(&shared->had) != i) nap();
        bench_add(&took, (double)(shared->had_ns - shared->given_ns) / 1e3);
    }
    bench_reap(child, 0);
    bench_print(&took, "us");
}

int main(int argc, char **argv)
{
    if (argc != 5) bench_die("usage: peer_advisory URL ROUNDS ROUND_MS HANDOVERS");
    long rounds = bench_number(argv[2], 1, 10000), ms = bench_number(argv[3], 1, 1000);
    connect_to(argv[1]);
    ask("CREATE TABLE peer (key text PRIMARY KEY, rev bigint)");
    ask("INSERT INTO peer VALUES ('k', 1)");
    struct series pairs = bench_series("acquire+release", (size_t)rounds),
                  writes = bench_series("raw", (size_t)rounds);
    for (long r = 0; r < rounds; r++) {
        bench_round(pair, ms, &pairs);
        bench_round(write_it, ms, &writes);
    }
    bench_print(&pairs, "us");
    bench_print(&writes, "us");
    PQfinish(to);
    handover(argv[1], bench_number(argv[4], 1, 10000));
    return 0;
}
