/*
 * cost.c - one piece of work, so many times: for bench/cost, which counts its instructions.
 */
#include "bench.h"

#include "step.h"

#include <stdlib.h>
#include <string.h>

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

/* The handover: the holder gives the key back, the first of so many waiters is granted it. */
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
    if (argc != 3) bench_die("usage: cost URL|step:WAITERS TIMES");
    long n = bench_number(argv[2], 0, 1000000);
    if (!strncmp(argv[1], "step:", 5))
        steps((uint32_t)bench_number(argv[1] + 5, 0, 4096), n);
    else
        pairs(argv[1], n);
    return 0;
}
