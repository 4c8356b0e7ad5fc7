/*
 * clients.c - acquire and release by more and more processes at once, each with a handle of its
 * own: how many pairs a second all of them make, and how many requests one takes.
 *
 *     clients URL MS N...
 *
 * "own keys": each wants a key of its own; "one key": all want the same, and wait for it in line.
 * The pairs are counted from MS on, when the line has formed, for as long again, or for up to ten
 * times as long until there are a hundred of them; the requests from the beginning.
 * "failed": pairs of which the hold was over before it was given back, or the store didn't answer
 * in time.
 */
#include "bench.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CLIENTS_CAP = 1000, ENOUGH = 100 };

/* One process's, in a cache line of its own. */
struct counted {
    _Alignas(64) uint64_t pairs;
};

static struct shared {
    uint32_t ready, go, counts, over; /* between processes */
    uint64_t all, failed, ops;
    struct counted by[CLIENTS_CAP];
} *shared;

static void nap_us(long us)
{
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    while (nanosleep(&t, &t) && errno == EINTR) continue;
}

static uint32_t see(const uint32_t *flag) { return __atomic_load_n(flag, __ATOMIC_ACQUIRE); }

static uint64_t pairs_so_far(long n)
{
    uint64_t pairs = 0;
    for (long i = 0; i < n; i++) pairs += __atomic_load_n(&shared->by[i].pairs, __ATOMIC_RELAXED);
    return pairs;
}

static void one_of_them(long number, const char *url, const char *key, long limit_ms)
{
    hf_error err;
    hf_stats s = {.size = sizeof s};
    hf *store = bench_open(url);
    hf_options options = HF_OPTIONS_INIT;
    uint64_t pairs = 0, all = 0, failed = 0;
    options.wait_ms = limit_ms;
    __atomic_fetch_add(&shared->ready, 1, __ATOMIC_ACQ_REL);
    while (!see(&shared->go)) nap_us(500);
    while (!see(&shared->over)) {
        hf_lock *lock;
        int rc = hf_acquire(store, key, &options, &lock, &err);
        if (rc == HF_TIMEOUT) break;
        if (!rc) rc = hf_release(lock, &err);
        if (rc != HF_LOST && rc != HF_UNKNOWN && rc != HF_UNAVAILABLE) bench_ok(rc, &err);
        all++;
        failed += rc != 0;
        pairs += !rc && see(&shared->counts) && !see(&shared->over);
        __atomic_store_n(&shared->by[number].pairs, pairs, __ATOMIC_RELAXED);
    }
    if (hf_get_stats(store, &s)) bench_die("hf_get_stats: failed");
    __atomic_fetch_add(&shared->all, all, __ATOMIC_ACQ_REL);
    __atomic_fetch_add(&shared->failed, failed, __ATOMIC_ACQ_REL);
    __atomic_fetch_add(&shared->ops, s.store_ops, __ATOMIC_ACQ_REL);
    hf_close(store);
    _exit(0);
}

static void print(const char *what, const char *unit, long n, double value)
{
    char name[64];
    snprintf(name, sizeof name, "%s %ld", what, n);
    struct series s = bench_series(name, 1);
    bench_add(&s, value);
    bench_print(&s, unit);
}

static void measure(const char *url, long n, int one, long ms)
{
    pid_t child[CLIENTS_CAP];
    char key[64];
    memset(shared, 0, sizeof *shared);
    fflush(stdout);
    for (long i = 0; i < n; i++) {
        snprintf(key, sizeof key, "clients/%ld/%ld", n, one ? n : i);
        child[i] = fork();
        if (child[i] < 0) bench_die("fork: %s", strerror(errno));
        if (!child[i]) one_of_them(i, url, key, 20 * ms);
    }
    while (see(&shared->ready) < n) nap_us(500);
    __atomic_store_n(&shared->go, 1, __ATOMIC_RELEASE);
    nap_us(ms * 1000);
    __atomic_store_n(&shared->counts, 1, __ATOMIC_RELEASE);
    int64_t start = bench_ns();
    nap_us(ms * 1000);
    for (long i = 0; i < 9 * ms && pairs_so_far(n) < ENOUGH; i++) nap_us(1000);
    __atomic_store_n(&shared->over, 1, __ATOMIC_RELEASE);
    double seconds = (double)(bench_ns() - start) / 1e9;
    for (long i = 0; i < n; i++) bench_reap(child[i], 0);
    print(one ? "one key" : "own keys", "/s", n, (double)pairs_so_far(n) / seconds);
    print(one ? "one key, requests of" : "own keys, requests of", "", n,
          shared->all ? (double)shared->ops / (double)shared->all : 0);
    print(one ? "one key, failed of" : "own keys, failed of", "", n, (double)shared->failed);
}

int main(int argc, char **argv)
{
    if (argc < 4) bench_die("usage: clients URL MS N...");
    long ms = bench_number(argv[2], 1, 600000);
    shared = bench_shared(sizeof *shared);
    for (int i = 3; i < argc; i++)
        for (int one = 0; one < 2; one++)
            measure(argv[1], bench_number(argv[i], 1, CLIENTS_CAP), one, ms);
    return 0;
}
