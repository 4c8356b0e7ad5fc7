/*
 * crowd.c - many processes that want one key at once, each with a handle of its own: how often it
 * changes hands, how long they wait, and what it costs the store.
 */
#include "bench.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { HOLD_US = 1000, WAITS = 200000 };

static struct shared {
    uint32_t ready, go, over; /* flags, between processes */
    uint32_t n;
    uint64_t ops;
    double wait_ms[WAITS];
} *shared;

static void nap_us(long us)
{
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    while (nanosleep(&t, &t) && errno == EINTR) continue;
}

static void one_of_them(const char *url, long limit_ms)
{
    hf_error err;
    hf *store = bench_open(url);
    hf_options options = HF_OPTIONS_INIT;
    options.wait_ms = limit_ms;
    __atomic_fetch_add(&shared->ready, 1, __ATOMIC_ACQ_REL);
    while (!__atomic_load_n(&shared->go, __ATOMIC_ACQUIRE)) nap_us(1000);
    while (!__atomic_load_n(&shared->over, __ATOMIC_ACQUIRE)) {
        hf_lock *lock;
        int64_t start = bench_ns();
        int rc = hf_acquire(store, "crowd", &options, &lock, &err);
        if (rc == HF_TIMEOUT) break;
        bench_ok(rc, &err);
        uint32_t i = __atomic_fetch_add(&shared->n, 1, __ATOMIC_ACQ_REL);
        if (i < WAITS) shared->wait_ms[i] = (double)(bench_ns() - start) / 1e6;
        nap_us(HOLD_US);
        bench_ok(hf_release(lock, &err), &err);
    }
    hf_stats s = {.size = sizeof s};
    if (!hf_get_stats(store, &s)) __atomic_fetch_add(&shared->ops, s.store_ops, __ATOMIC_ACQ_REL);
    hf_close(store);
    _exit(0);
}

static void print_one(const char *name, double value, const char *unit)
{
    struct series s = bench_series(name, 1);
    bench_add(&s, value);
    bench_print(&s, unit);
}

int main(int argc, char **argv)
{
    if (argc != 4) bench_die("usage: crowd URL PROCESSES SECONDS");
    long n = bench_number(argv[2], 1, 10000), seconds = bench_number(argv[3], 1, 600);
    char name[3][40];
    static pid_t child[10000];
    shared = bench_shared(sizeof *shared);
    fflush(stdout);
    for (long i = 0; i < n; i++) {
        child[i] = fork();
        if (child[i] < 0) bench_die("fork: %s", strerror(errno));
        if (!child[i]) one_of_them(argv[1], seconds * 1000);
    }
    while (__atomic_load_n(&shared->ready, __ATOMIC_ACQUIRE) < n) nap_us(1000);
    int64_t start = bench_ns();
    __atomic_store_n(&shared->go, 1, __ATOMIC_RELEASE);
    nap_us(seconds * 1000000);
    uint32_t holds = __atomic_load_n(&shared->n, __ATOMIC_ACQUIRE);
    double took = (double)(bench_ns() - start) / 1e9;
    __atomic_store_n(&shared->over, 1, __ATOMIC_RELEASE);
    for (long i = 0; i < n; i++) bench_reap(child[i], 0);
    snprintf(name[0], sizeof name[0], "holds of %ld", n);
    snprintf(name[1], sizeof name[1], "requests a hold of %ld", n);
    snprintf(name[2], sizeof name[2], "waits of %ld", n);
    print_one(name[0], holds / took, "/s");
    print_one(name[1], (double)shared->ops / (shared->n ? shared->n : 1), "");
    struct series waits = bench_series(name[2], WAITS);
    for (uint32_t i = 0; i < shared->n && i < WAITS; i++) bench_add(&waits, shared->wait_ms[i]);
    if (waits.n) bench_print(&waits, "ms");
    return 0;
}
