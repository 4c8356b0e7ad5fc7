/*
 * pairs.c - acquire and release, uncontended, in one process: nanoseconds a pair.
 *
 *     pairs DIR ROUNDS ROUND_MS single|threads
 *
 * Each round runs every peer for about ROUND_MS, so that whatever disturbs the machine disturbs all
 * of them alike; "A / B" is of each round. `threads`: another thread exists (asleep). The C library
 * takes a mutex without an atomic instruction as long as there is none, which no program that needs
 * a mutex has of it.
 */
#include "bench.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PEERS_CAP = 16, CALIBRATE = 64 };

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void *asleep(void *arg)
{
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    return arg;
}

/* How many pairs take about so long. */
static long calibrate(const struct peer *p, int64_t ns)
{
    p->pairs(CALIBRATE); /* warm */
    for (long n = CALIBRATE;; n *= 4) {
        int64_t start = bench_ns();
        p->pairs(n);
        int64_t took = bench_ns() - start;
        if (took >= ns / 8) return n * ns / took > 1 ? n * ns / took : 1;
    }
}

static int is_ours(const char *name)
{
    return !strncmp(name, "file", 4) || !strncmp(name, "mem", 3);
}

int main(int argc, char **argv)
{
    struct series series[PEERS_CAP];
    long n[PEERS_CAP];
    pthread_t thread;
    if (argc != 5 || bench_peers_n > PEERS_CAP)
        bench_die("usage: pairs DIR ROUNDS ROUND_MS single|threads");
    long rounds = bench_number(argv[2], 1, 10000), ms = bench_number(argv[3], 1, 1000);
    int threads = !strcmp(argv[4], "threads");
    pthread_mutex_lock(&gate);
    if (threads && pthread_create(&thread, NULL, asleep, NULL)) bench_die("no thread");
    for (size_t i = 0; i < bench_peers_n; i++) {
        bench_peers[i].setup(argv[1]);
        n[i] = calibrate(&bench_peers[i], ms * 1000000);
        series[i] = bench_series(bench_peers[i].name, (size_t)rounds);
    }
    for (long r = 0; r < rounds; r++)
        for (size_t i = 0; i < bench_peers_n; i++) {
            int64_t start = bench_ns();
            bench_peers[i].pairs(n[i]);
            bench_add(&series[i], (double)(bench_ns() - start) / (double)n[i]);
        }
    for (size_t i = 0; i < bench_peers_n; i++)
        for (size_t k = 0; k < bench_peers_n; k++)
            if (is_ours(series[i].name) && !is_ours(series[k].name))
                bench_print_ratio(&series[i], &series[k]);
    for (size_t i = 0; i < bench_peers_n; i++) {
        bench_peers[i].finish();
        bench_print(&series[i], "ns");
    }
    pthread_mutex_unlock(&gate);
    if (threads) pthread_join(thread, NULL);
    return 0;
}
