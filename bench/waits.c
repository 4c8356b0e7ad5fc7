/*
 * waits.c - what a key costs that a process waits for, beside many others that it waits for.
 *
 *     waits URL one|two ROUNDS KEYS...
 *
 * A handle holds KEYS keys. The same handle (one) or a second one (two) starts a wait for each of
 * them. When all of these stand in line the keys are released. Measured per key: all of it, from
 * the first wait to the last grant; the part until all stand in line (start), the part from the
 * first release on (serve); the processor's time that all of it takes in this process; and closing
 * the handles that hold all of the keys (close). A cost that grows with KEYS shows work that is
 * done for all waits at once. Of several numbers of KEYS, each round measures each of them, few
 * keys several times; the ratios are those of the last number to the first, round by round.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { MOST_SIZES = 8, MOST_KEYS = 1000000, SHARE = 10 };
enum what { ALL, START, SERVE, PROCESSOR, CLOSE, WHATS };
static const char *const what_names[WHATS] = {"", ", start", ", serve", ", processor", ", close"};

/* A number of keys, and what one of them costs in microseconds, round by round. */
struct size {
    long keys, times; /* that it is measured in a round */
    char name[WHATS][32];
    struct series series[WHATS];
};

static const char *url;
static int two;
static long served, failed; /* atomic */
static hf_lock **held, **got;
static hf_wait **waits;

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

/* The waits of a handle look in turn: when the last one has looked, all have. That one is free. */
static void start_waits(hf *waiter, long keys)
{
    hf_error err;
    hf_options options = HF_OPTIONS_INIT;
    hf_wait *last_wait;
    hf_lock *last;
    options.wait_ms = HF_FOREVER;
    for (long i = 0; i < keys; i++)
        bench_ok(hf_acquire_start(waiter, key_of(i), &options, acquired, &got[i], &waits[i], &err),
                 &err);
    bench_ok(hf_acquire_start(waiter, key_of(-1), &options, acquired, &last, &last_wait, &err),
             &err);
    while (!__atomic_load_n(&served, __ATOMIC_ACQUIRE)) nap();
    hf_wait_free(last_wait);
    if (failed || served != 1) bench_die("a wait has ended too early");
    bench_ok(hf_release(last, &err), &err);
    served = 0;
}

static void serve(long keys)
{
    hf_error err;
    for (long i = 0; i < keys; i++) bench_ok(hf_release(held[i], &err), &err);
    while (__atomic_load_n(&served, __ATOMIC_ACQUIRE) < keys) nap();
    if (failed) bench_die("%ld of %ld waits failed", failed, keys);
}

/* Adds what it costs, in microseconds. */
static void round_of(long keys, double cost[WHATS])
{
    hf_error err;
    hf_options options = HF_OPTIONS_INIT;
    hf *holder = bench_open(url), *waiter = two ? bench_open(url) : holder;
    /* Else there would be something to renew meanwhile. */
    if (strncmp(url, "mem:", 4) != 0 && strncmp(url, "file:", 5) != 0) options.lease_ms = 3600000;
    for (long i = 0; i < keys; i++)
        bench_ok(hf_acquire(holder, key_of(i), &options, &held[i], &err), &err);
    served = failed = 0;
    double worked = cpu_us();
    int64_t began = bench_ns();
    start_waits(waiter, keys);
    int64_t serves = bench_ns();
    serve(keys);
    int64_t ended = bench_ns();
    cost[PROCESSOR] += cpu_us() - worked;
    cost[ALL] += (double)(ended - began) / 1000;
    cost[START] += (double)(serves - began) / 1000;
    cost[SERVE] += (double)(ended - serves) / 1000;
    for (long i = 0; i < keys; i++) hf_wait_free(waits[i]);
    began = bench_ns();
    hf_close(waiter);
    if (two) hf_close(holder);
    cost[CLOSE] += (double)(bench_ns() - began) / 1000;
}

static void measure(struct size *size)
{
    double cost[WHATS] = {0};
    for (long i = 0; i < size->times; i++) round_of(size->keys, cost);
    for (int i = 0; i < WHATS; i++)
        bench_add(&size->series[i], cost[i] / (double)(size->keys * size->times));
}

static void size_init(struct size *size, const char *text, size_t rounds)
{
    size->keys = bench_number(text, 1, MOST_KEYS);
    for (int i = 0; i < WHATS; i++) {
        snprintf(size->name[i], sizeof size->name[i], "%ld keys%s", size->keys, what_names[i]);
        size->series[i] = bench_series(size->name[i], rounds);
    }
}

int main(int argc, char **argv)
{
    struct size sizes[MOST_SIZES];
    int n = argc - 4;
    long most = 0;
    if (n < 1 || n > MOST_SIZES) bench_die("usage: waits URL one|two ROUNDS KEYS...");
    url = argv[1];
    two = !strcmp(argv[2], "two");
    long rounds = bench_number(argv[3], 1, 1000);
    for (int i = 0; i < n; i++) {
        size_init(&sizes[i], argv[4 + i], (size_t)rounds);
        if (sizes[i].keys > most) most = sizes[i].keys;
    }
    for (int i = 0; i < n; i++) {
        sizes[i].times = most / SHARE / sizes[i].keys;
        if (!sizes[i].times) sizes[i].times = 1;
    }
    held = calloc((size_t)most, sizeof(hf_lock *));
    got = calloc((size_t)most, sizeof(hf_lock *));
    waits = calloc((size_t)most, sizeof(hf_wait *));
    if (!held || !got || !waits) bench_die("out of memory");
    for (long round = 0; round < rounds; round++)
        for (int i = 0; i < n; i++) measure(&sizes[i]);
    for (int i = 0; i < WHATS && n > 1; i++)
        bench_print_ratio(&sizes[n - 1].series[i], &sizes[0].series[i]);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < WHATS; k++) bench_print(&sizes[i].series[k], "us");
    return 0;
}
