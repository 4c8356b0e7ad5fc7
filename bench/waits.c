/*
 * waits.c - what a key costs that a process waits for, beside many others that it waits for.
 *
 *     waits URL KEYS one|two ROUNDS
 *
 * A handle holds KEYS keys. The same handle (one) or a second one (two) starts a wait for each of
 * them. When all of these stand in line the keys are released. Measured per key: starting the
 * wait, serving it (from the first release to the last grant; and the processor's time that this
 * takes in this process), and closing the handles that hold
 * all of the keys. A cost that grows with KEYS shows work that is done for all waits at once.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static const char *url;
static long keys, served, failed; /* the last two: atomic */
static hf_lock **held, **got;
static hf_wait **waits;
static struct series starts, serves, works, closes;

static const char *key_of(long i)
{
    static char key[64];
    snprintf(key, sizeof key, "waits/%d/%ld", (int)getpid(), i);
    return key;
}

static void acquired(void *arg, int code, hf_lock *lock, const hf_error *err)
{
    *(hf_lock **)arg = lock;
    if (code && !__atomic_fetch_add(&failed, 1, __ATOMIC_RELAXED))
        fprintf(stderr, "bench: %s\n", err->text);
    __atomic_add_fetch(&served, 1, __ATOMIC_RELEASE);
}

static void nap(void)
{
    const struct timespec t = {0, 500000};
    nanosleep(&t, NULL);
}

static double cpu_us(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e6 + (double)u.ru_utime.tv_usec +
           (double)u.ru_stime.tv_usec;
}

static int all_wait(hf *store)
{
    hf_stats stats = {.size = sizeof stats};
    hf_get_stats(store, &stats);
    return (long)stats.waiting == keys;
}

static void round_of(int two)
{
    hf_error err;
    hf_options options = HF_OPTIONS_INIT;
    hf *holder = bench_open(url), *waiter = two ? bench_open(url) : holder;
    /* Else there would be something to renew meanwhile. */
    if (strncmp(url, "mem:", 4) != 0 && strncmp(url, "file:", 5) != 0) options.lease_ms = 3600000;
    for (long i = 0; i < keys; i++) {
        bench_ok(hf_acquire(holder, key_of(i), &options, &held[i], &err), &err);
        got[i] = NULL;
    }
    served = failed = 0;
    options.wait_ms = HF_FOREVER;
    int64_t began = bench_ns();
    for (long i = 0; i < keys; i++)
        bench_ok(hf_acquire_start(waiter, key_of(i), &options, acquired, &got[i], &waits[i], &err),
                 &err);
    while (!all_wait(waiter)) nap();
    /* The waits of a handle look in turn, in one order or the other. */
    bench_await_waiters(holder, key_of(keys - 1), 1);
    bench_await_waiters(holder, key_of(0), 1);
    bench_add(&starts, (double)(bench_ns() - began) / 1000 / (double)keys);
    double worked = cpu_us();
    began = bench_ns();
    for (long i = 0; i < keys; i++) bench_ok(hf_release(held[i], &err), &err);
    while (__atomic_load_n(&served, __ATOMIC_ACQUIRE) < keys) nap();
    bench_add(&serves, (double)(bench_ns() - began) / 1000 / (double)keys);
    bench_add(&works, (cpu_us() - worked) / (double)keys);
    if (failed) bench_die("%ld of %ld waits failed", failed, keys);
    for (long i = 0; i < keys; i++) hf_wait_free(waits[i]);
    began = bench_ns();
    hf_close(waiter);
    if (two) hf_close(holder);
    bench_add(&closes, (double)(bench_ns() - began) / 1000 / (double)keys);
}

int main(int argc, char **argv)
{
    if (argc != 5) bench_die("usage: waits URL KEYS one|two ROUNDS");
    url = argv[1];
    keys = bench_number(argv[2], 1, 1000000);
    long rounds = bench_number(argv[4], 1, 1000);
    held = calloc((size_t)keys, sizeof(hf_lock *));
    got = calloc((size_t)keys, sizeof(hf_lock *));
    waits = calloc((size_t)keys, sizeof(hf_wait *));
    if (!held || !got || !waits) bench_die("out of memory");
    starts = bench_series("start", (size_t)rounds);
    serves = bench_series("serve", (size_t)rounds);
    works = bench_series("serve, processor", (size_t)rounds);
    closes = bench_series("close", (size_t)rounds);
    for (long i = 0; i < rounds; i++) round_of(!strcmp(argv[3], "two"));
    bench_print(&starts, "us");
    bench_print(&serves, "us");
    bench_print(&works, "us");
    bench_print(&closes, "us");
    return 0;
}
