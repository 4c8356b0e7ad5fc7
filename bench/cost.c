/*
 * cost.c - one piece of work, so many times: for bench/cost, which counts what it takes.
 */
#include "bench.h"

#include "step.h"

#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void pairs(const char *url, long n)
{
    hf *store = bench_open(url);
    hf_error err;
    for (long i = 0; i < n; i++) {
        hf_lock *lock;
        bench_ok(hf_acquire(store, "seats/12", NULL, &lock, &err), &err);
        bench_ok(hf_release(lock, &err), &err);
    }
    hf_close(store);
}

/* Where the callback of a wait puts the lock. There is no mutex, because the number of calls would
   depend on whether the two threads meet at it. */
static struct {
    sem_t come;
    hf_lock *lock;
} given;

static void granted(void *arg, int code, hf_lock *lock, const hf_error *err)
{
    (void)arg;
    bench_ok(code, err);
    given.lock = lock;
    sem_post(&given.come);
}

/* Lets the thread that called go back to sleep: how many calls it makes when it is found awake
   depends on how far it is. By a semaphore, which bench/cost doesn't count. */
static void rest(void)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_nsec += 1000000;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    while (sem_timedwait(&given.come, &end) && errno == EINTR) continue;
}

/* From one handle to the other and back. */
static void handovers(const char *url, long n)
{
    hf *store[2] = {bench_open(url), bench_open(url)};
    hf_error err;
    hf_lock *lock;
    if (sem_init(&given.come, 0, 0)) bench_die("cost: no semaphore");
    bench_ok(hf_acquire(store[0], "seats/12", NULL, &lock, &err), &err);
    for (long i = 0; i < n; i++) {
        hf_wait *wait;
        bench_ok(hf_acquire_start(store[(i + 1) % 2], "seats/12", NULL, granted, NULL, &wait, &err),
                 &err);
        bench_ok(hf_release(lock, &err), &err);
        while (sem_wait(&given.come)) continue;
        lock = given.lock;
        hf_wait_free(wait);
        rest();
    }
    bench_ok(hf_release(lock, &err), &err);
    hf_close(store[0]);
    hf_close(store[1]);
}

/* The step of it: the holder gives the key back, the first of so many waiters is granted it. */
static void steps(uint32_t waiters, long n)
{
    hf_row row, next;
    hf_row_init(&row);
    hf_row_init(&next);
    if (hf_row_room(&row, waiters + 2) || hf_row_room(&next, waiters + 2)) abort();
    for (uint32_t i = 0; i <= waiters; i++) {
        hf_party p;
        memset(&p, 0, sizeof p);
        memcpy(p.id, &i, sizeof i);
        p.id[15] = 1;
        p.lease_ms = p.claim_ms = 1000;
        struct hf_event ask = {.kind = HF_EV_ENQUEUE, .now = {1000, 1001}, .party = &p};
        ask.queue_cap = ask.holders_cap = waiters + 2;
        hf__step(&row, &ask);
    }
    struct hf_event give = {.kind = HF_EV_RELEASE, .now = {2000, 2001}, .token = row.token};
    give.queue_cap = give.holders_cap = waiters + 2;
    for (long i = 0; i < n; i++) {
        if (hf_row_copy(&next, &row)) abort();
        if (hf__step(&next, &give).answer != HF_ANS_OK) abort();
    }
    hf_row_clear(&row);
    hf_row_clear(&next);
}

int main(int argc, char **argv)
{
    if (argc != 3) bench_die("usage: cost URL|handover:URL|step:WAITERS TIMES");
    long n = bench_number(argv[2], 0, 1000000);
    if (!strncmp(argv[1], "step:", 5))
        steps((uint32_t)bench_number(argv[1] + 5, 0, 4096), n);
    else if (!strncmp(argv[1], "handover:", 9))
        handovers(argv[1] + 9, n);
    else
        pairs(argv[1], n);
    return 0;
}
