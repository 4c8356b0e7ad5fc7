/*
 * handover.c - two processes alternate: microseconds from one's giving to the other's having.
 *
 *     handover URL ROUNDS HANDOVERS
 *
 * The holder waits until the other process is asleep for the key, notes the time, and releases. The
 * other process notes the time at which it has the key. By hf_release and hf_acquire, and by a bare
 * futex, in turns.
 * "A / B": of the medians of each round. "release": how long hf_release itself takes when somebody
 * waits.
 */
#include "bench.h"

#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ASLEEP_NS = 60000, MAX_HANDOVERS = 1000000 };
#define KEY "handover"

static struct shared {
    int64_t given_ns;
    uint32_t turn;     /* the futex: whose turn it is */
    uint32_t going[2]; /* how often each was about to wait */
    uint32_t n;
    double took[MAX_HANDOVERS];
    uint32_t n_release;
    double release[MAX_HANDOVERS];
} *shared;

static void futex(uint32_t *word, int what, uint32_t value)
{
    syscall(SYS_futex, word, what, value, NULL, NULL, 0);
}

/* Says that this process is about to wait. */
static void going(int me) { __atomic_add_fetch(&shared->going[me], 1, __ATOMIC_RELEASE); }

/* Waits until the other has said so for the nth time, and is surely asleep. */
static void other_sleeps(int me, uint32_t nth)
{
    while (__atomic_load_n(&shared->going[!me], __ATOMIC_ACQUIRE) < nth) continue;
    bench_spin_ns(ASLEEP_NS);
}

static void note(uint32_t *n, double *to, double us)
{
    if (*n < MAX_HANDOVERS) to[(*n)++] = us;
}

/* Each process has it `n` times; number 0 begins. */
static void by_futex(int me, long n)
{
    for (uint32_t i = 1; i <= n; i++) {
        int first = me == 0 && i == 1;
        going(me);
        while (__atomic_load_n(&shared->turn, __ATOMIC_ACQUIRE) != (uint32_t)me)
            futex(&shared->turn, FUTEX_WAIT, (uint32_t)!me);
        int64_t now = bench_ns();
        if (!first) note(&shared->n, shared->took, (double)(now - shared->given_ns) / 1e3);
        if (me == 1 && i == n) break;
        other_sleeps(me, i + (me == 1));
        shared->given_ns = bench_ns();
        __atomic_store_n(&shared->turn, (uint32_t)!me, __ATOMIC_RELEASE);
        futex(&shared->turn, FUTEX_WAKE, 1);
    }
}

static void by_lock(hf *store, int me, long n)
{
    hf_error err;
    if (me == 1) /* number 0 must be the first to have it */
        while (!__atomic_load_n(&shared->turn, __ATOMIC_ACQUIRE)) continue;
    for (uint32_t i = 1; i <= n; i++) {
        int first = me == 0 && i == 1;
        hf_lock *lock;
        going(me);
        bench_ok(hf_acquire(store, KEY, NULL, &lock, &err), &err);
        int64_t now = bench_ns();
        if (first)
            __atomic_store_n(&shared->turn, 1, __ATOMIC_RELEASE);
        else
            note(&shared->n, shared->took, (double)(now - shared->given_ns) / 1e3);
        int last = me == 1 && i == n;
        if (!last) {
            bench_await_waiters(store, KEY, 1);
            other_sleeps(me, i + (me == 1));
        }
        int64_t given = bench_ns();
        shared->given_ns = given;
        bench_ok(hf_release(lock, &err), &err);
        /* Only number 0's: the other would write at the same place. */
        if (me == 0) note(&shared->n_release, shared->release, (double)(bench_ns() - given) / 1e3);
    }
}

/* A processor for each, if there are two: one that wakes the other on its own processor is quicker,
   and whether the kernel does that depends on what else is going on. */
static void settle_on(int me)
{
    cpu_set_t may, mine;
    if (sched_getaffinity(0, sizeof may, &may)) return;
    CPU_ZERO(&mine);
    for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &may) && seen++ == me) CPU_SET(cpu, &mine);
    if (CPU_COUNT(&mine)) sched_setaffinity(0, sizeof mine, &mine);
}

/* One round of both; the samples go into the series. */
static void both(const char *url, long n, int how, struct series *took, struct series *release)
{
    shared->turn = shared->going[0] = shared->going[1] = 0;
    shared->n = shared->n_release = 0;
    pid_t child[2];
    fflush(stdout);
    for (int me = 0; me < 2; me++) {
        child[me] = fork();
        if (child[me] < 0) bench_die("fork");
        if (child[me]) continue;
        settle_on(me);
        if (how == 0) {
            by_futex(me, n);
            _exit(0);
        }
        hf *store = bench_open(url);
        by_lock(store, me, n);
        hf_close(store);
        _exit(0);
    }
    for (int me = 0; me < 2; me++) bench_reap(child[me], 0);
    for (uint32_t i = 0; i < shared->n; i++) bench_add(took, shared->took[i]);
    for (uint32_t i = 0; i < shared->n_release; i++) bench_add(release, shared->release[i]);
}

/* Of what a round has added. */
static double median(const struct series *s, size_t from)
{
    struct series part = bench_series(s->name, s->n - from + 1);
    for (size_t i = from; i < s->n; i++) bench_add(&part, s->v[i]);
    return bench_median(&part);
}

int main(int argc, char **argv)
{
    if (argc != 4) bench_die("usage: handover URL ROUNDS HANDOVERS");
    long rounds = bench_number(argv[2], 1, 1000), n = bench_number(argv[3], 2, 10000);
    shared = bench_shared(sizeof *shared);
    size_t cap = (size_t)(rounds * n * 2);
    struct series file = bench_series("handover", cap), bare = bench_series("futex", cap);
    struct series release = bench_series("release", cap);
    hf_close(bench_open(argv[1])); /* makes the store */
    struct series of_file = bench_series("handover", (size_t)rounds),
                  of_bare = bench_series("futex", (size_t)rounds),
                  of_release = bench_series("release", (size_t)rounds);
    for (long r = 0; r < rounds; r++) {
        size_t had[] = {bare.n, file.n, release.n};
        both(argv[1], n, 0, &bare, &release);
        both(argv[1], n, 1, &file, &release);
        bench_add(&of_bare, median(&bare, had[0]));
        bench_add(&of_file, median(&file, had[1]));
        bench_add(&of_release, median(&release, had[2]));
    }
    bench_print_ratio(&of_file, &of_bare);
    bench_print_ratio(&of_release, &of_bare);
    free(of_file.v);
    free(of_bare.v);
    free(of_release.v);
    bench_print(&bare, "us");
    bench_print(&file, "us");
    bench_print(&release, "us");
    return 0;
}
