/*
 * ablation.c - what a user sees of one build, from so far away; bench/ablation runs it of a build
 * with a path and of one without it, in turns.
 *
 *     ablation URL DISTANCE_MS MS CLIENTS...
 *
 * "pair": acquire and release by a handle that knows the row, for MS. Then for each number of
 * CLIENTS, processes that want one key all the time, for MS at least and until each has had it
 * twice (or for MOST times MS): "handover among N", from one process's giving up to the next one's
 * having it; "longest wait among N", from asking to having, of all waits. DISTANCE_MS is what a
 * request takes longer there and back (tests/network/slow_net.c); only of a store with a server. A
 * hold lasts HOLD_MS, and two distances more, so that another one stands in line by then.
 */
#include "bench.h"

#include "network/front.h"
#include "network/slow_net.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CLIENTS_CAP = 256, HOLDS_CAP = 100000, PAIRS_CAP = 1000000, WARM = 3, HOLD_MS = 1 };
enum { TWICE = 2, MOST = 40 };

struct hold {
    int64_t asked_ns, had_ns, gave_ns;
    int who;
};

/* Shared by all processes. Only the holder of the key notes a hold, so holds are noted in order. */
static struct shared {
    int ready, go, over, n; /* atomic */
    int had[CLIENTS_CAP];   /* how often; atomic */
    int64_t asked_ns[CLIENTS_CAP];
    struct hold hold[HOLDS_CAP];
} *shared;

static const char *url;
static long distance_ms, run_ms;

static void nap_us(int64_t us)
{
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    while (us > 0 && nanosleep(&t, &t) && errno == EINTR) continue;
}

static int see(const int *n) { return __atomic_load_n(n, __ATOMIC_ACQUIRE); }

/* ---- nobody else ---- */

static void pairs(void)
{
    struct series s = bench_series("pair", PAIRS_CAP);
    hf *store = bench_open(url);
    int64_t end = INT64_MAX;
    for (long i = 0; i < WARM + PAIRS_CAP && bench_ns() < end; i++) {
        hf_error err;
        hf_lock *lock;
        if (i == WARM) end = bench_ns() + run_ms * 1000000;
        int64_t began = bench_ns();
        bench_ok(hf_acquire(store, "ablation/pair", NULL, &lock, &err), &err);
        bench_ok(hf_release(lock, &err), &err);
        if (i >= WARM) bench_add(&s, (double)(bench_ns() - began) / 1000);
    }
    hf_close(store);
    bench_print(&s, "us");
}

/* ---- many ---- */

static int note(int who, int64_t asked_ns)
{
    int at = __atomic_load_n(&shared->n, __ATOMIC_RELAXED);
    if (at == HOLDS_CAP) return -1;
    shared->hold[at] = (struct hold){asked_ns, bench_ns(), 0, who};
    __atomic_store_n(&shared->n, at + 1, __ATOMIC_RELEASE);
    return at;
}

_Noreturn static void one_of_them(int who, const char *key)
{
    hf_error err;
    hf_lock *lock;
    hf *store = bench_open(url);
    __atomic_add_fetch(&shared->ready, 1, __ATOMIC_ACQ_REL);
    while (!see(&shared->go)) nap_us(200);
    while (!see(&shared->over)) {
        int64_t asked_ns = bench_ns();
        __atomic_store_n(&shared->asked_ns[who], asked_ns, __ATOMIC_RELEASE);
        bench_ok(hf_acquire(store, key, NULL, &lock, &err), &err);
        int at = see(&shared->over) ? -1 : note(who, asked_ns);
        __atomic_fetch_add(&shared->had[who], 1, __ATOMIC_ACQ_REL);
        __atomic_store_n(&shared->asked_ns[who], 0, __ATOMIC_RELEASE);
        if (!see(&shared->over)) nap_us((HOLD_MS + 2 * distance_ms) * 1000);
        if (at >= 0) shared->hold[at].gave_ns = bench_ns();
        int rc = hf_release(lock, &err);
        if (rc != HF_LOST) bench_ok(rc, &err);
        /* On a machine with more to do than it can, it may have been over before. */
        if (rc && at >= 0) shared->hold[at].gave_ns = 0;
    }
    hf_close(store);
    _exit(0);
}

static void show(long n, int64_t end_ns)
{
    char of_handover[40], of_wait[40];
    snprintf(of_handover, sizeof of_handover, "handover among %ld", n);
    snprintf(of_wait, sizeof of_wait, "longest wait among %ld", n);
    int holds = see(&shared->n);
    struct series handover = bench_series(of_handover, HOLDS_CAP), wait = bench_series(of_wait, 1);
    int64_t longest = 0;
    for (int i = 0; i < holds; i++) {
        const struct hold *h = &shared->hold[i];
        if (h->had_ns - h->asked_ns > longest) longest = h->had_ns - h->asked_ns;
        if (i && h[-1].gave_ns && h[-1].who != h->who)
            bench_add(&handover, (double)(h->had_ns - h[-1].gave_ns) / 1000);
    }
    for (long i = 0; i < n; i++) { /* those that still wait */
        int64_t asked = __atomic_load_n(&shared->asked_ns[i], __ATOMIC_ACQUIRE);
        if (asked && end_ns - asked > longest) longest = end_ns - asked;
    }
    if (!handover.n) bench_die("%ld processes: the key never changed hands", n);
    bench_add(&wait, (double)longest / 1000);
    bench_print(&handover, "us");
    bench_print(&wait, "us");
}

static int all_had_it(long n)
{
    for (long i = 0; i < n; i++)
        if (see(&shared->had[i]) < TWICE) return 0;
    return 1;
}

static void among(long n)
{
    pid_t child[CLIENTS_CAP];
    char key[64];
    memset(shared, 0, sizeof *shared);
    snprintf(key, sizeof key, "ablation/%ld", n);
    fflush(stdout);
    for (long i = 0; i < n; i++) {
        child[i] = fork();
        if (child[i] < 0) bench_die("fork: %s", strerror(errno));
        if (!child[i]) one_of_them((int)i, key);
    }
    while (see(&shared->ready) < n) nap_us(500);
    __atomic_store_n(&shared->go, 1, __ATOMIC_RELEASE);
    int64_t until_ns = bench_ns() + MOST * run_ms * 1000000;
    nap_us(run_ms * 1000);
    while (!all_had_it(n) && bench_ns() < until_ns) nap_us(1000);
    int64_t end_ns = bench_ns();
    __atomic_store_n(&shared->over, 1, __ATOMIC_RELEASE);
    show(n, end_ns);
    for (long i = 0; i < n; i++) bench_reap(child[i], 0);
}

int main(int argc, char **argv)
{
    static char server[600], front[900];
    struct slow_net net = {0};
    if (argc < 5) bench_die("usage: ablation URL DISTANCE_MS MS CLIENTS...");
    url = argv[1];
    distance_ms = bench_number(argv[2], 0, 10000);
    run_ms = bench_number(argv[3], 1, 600000);
    if (distance_ms) {
        if (front_url(url, server, sizeof server, front, sizeof front, 0))
            bench_die("'%s': no server that could be far away", url);
        if (slow_net_start(&net, server, (int)distance_ms)) bench_die("no proxy");
        front_url(argv[1], server, sizeof server, front, sizeof front, net.port);
        url = front;
    }
    shared = bench_shared(sizeof *shared);
    pairs();
    for (int i = 4; i < argc; i++) among(bench_number(argv[i], 2, CLIENTS_CAP));
    slow_net_end(&net);
    return 0;
}
