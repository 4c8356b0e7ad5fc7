/*
 * conform_free.h - replace and acquire of a store that keeps its free rows and gets waiters in
 * line, made of one that does neither.
 *
 * A store that may lose a reply knows whose grant of a key ended last (hf_row_acquire); `mem:`,
 * which has none to lose, forgets a free row. Here the last one is remembered, of whatever key.
 */
#ifndef HF_CONFORM_FREE_H
#define HF_CONFORM_FREE_H

#include "holdfast_driver.h"

#include <pthread.h>
#include <string.h>

static pthread_mutex_t free_mu = PTHREAD_MUTEX_INITIALIZER;
static hf_row free_row; /* it has no party, so nothing of it is allocated */
static uint64_t free_hash;

static void no_free_row(void) { hf_row_init(&free_row); }

static int free_replace(const hf_driver *base, hf_store *st, const hf_rowkey *key, uint64_t seen,
                        const hf_row *row, hf_row *cur, int64_t *clock, hf_error *err)
{
    int rc = base->replace(st, key, seen, row, cur, clock, err);
    if (rc || !row || row->n_holders || row->n_queue) return rc;
    pthread_mutex_lock(&free_mu);
    rc = hf_row_copy(&free_row, row);
    free_hash = key->hash;
    pthread_mutex_unlock(&free_mu);
    return rc;
}

static int free_acquire(const hf_driver *base, hf_store *st, const hf_rowkey *key,
                        const hf_party *party, uint32_t may_queue, hf_row *cur, int64_t *clock,
                        hf_error *err)
{
    int rc = 0;
    pthread_mutex_lock(&free_mu);
    int late = key->hash == free_hash && !memcmp(free_row.last_id, party->id, 16);
    if (late) rc = hf_row_copy(cur, &free_row);
    pthread_mutex_unlock(&free_mu);
    if (late) return rc ? rc : HF_CONFLICT;
    rc = base->acquire(st, key, party, 0, cur, clock, err);
    if (rc != HF_CONFLICT || !may_queue) return rc;
    /* Two calls are enough, because no other client writes. */
    uint64_t seen = cur->rev;
    rc = hf_row_acquire(cur, party, may_queue, base->caps.local->now(st));
    return rc ? rc : base->replace(st, key, seen, cur, NULL, clock, err);
}

#endif
