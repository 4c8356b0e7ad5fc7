/*
 * peer_lock.c - see peer_lock.h.
 */
#include "peer_lock.h"

#include "bench.h"

#include <time.h>
#include <unistd.h>

static void pair(void)
{
    lock_peer.take(LOCK_ALONE);
    lock_peer.give(LOCK_ALONE);
}

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
    lock_peer.connect(url);
    for (uint32_t i = 1; i <= n; i++) {
        while (see(&shared->wanted) != i) nap();
        lock_peer.take(LOCK_HANDOVER);
        shared->had_ns = bench_ns();
        lock_peer.give(LOCK_HANDOVER);
        __atomic_store_n(&shared->had, i, __ATOMIC_RELEASE);
    }
    lock_peer.close();
    _exit(0);
}

static void handover(const char *url, long n)
{
    struct series took = bench_series("handover", (size_t)n);
    shared = bench_shared(sizeof *shared);
    pid_t child = fork();
    if (child < 0) bench_die("fork: failed");
    if (!child) want(url, n);
    lock_peer.connect(url);
    for (uint32_t i = 1; i <= n; i++) {
        lock_peer.take(LOCK_HANDOVER);
        __atomic_store_n(&shared->wanted, i, __ATOMIC_RELEASE);
        while (!lock_peer.is_wanted()) nap();
        lock_peer.write(); /* this end is awake */
        shared->given_ns = bench_ns();
        lock_peer.give(LOCK_HANDOVER);
        while (see(&shared->had) != i) nap();
        bench_add(&took, (double)(shared->had_ns - shared->given_ns) / 1e3);
    }
    bench_reap(child, 0);
    bench_print(&took, "us");
    lock_peer.close();
}

static void warm(void (*once)(void), long ms)
{
    for (int64_t end = bench_ns() + ms * 1000000; bench_ns() < end;) once();
}

int main(int argc, char **argv)
{
    if (argc != 6) bench_die("usage: %s URL ROUNDS ROUND_MS HANDOVERS WARM_MS", argv[0]);
    long rounds = bench_number(argv[2], 1, 10000), ms = bench_number(argv[3], 1, 1000);
    long warm_ms = bench_number(argv[5], 0, 60000);
    lock_peer.connect(argv[1]);
    warm(pair, warm_ms);
    warm(lock_peer.write, warm_ms);
    struct series pairs = bench_series("acquire+release", (size_t)rounds),
                  writes = bench_series("raw", (size_t)rounds);
    for (long r = 0; r < rounds; r++) {
        bench_round(pair, ms, &pairs);
        bench_round(lock_peer.write, ms, &writes);
    }
    bench_print_ratio(&pairs, &writes);
    bench_print(&pairs, "us");
    bench_print(&writes, "us");
    lock_peer.close();
    handover(argv[1], bench_number(argv[4], 1, 10000));
    return 0;
}
