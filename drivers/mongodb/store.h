/*
 * store.h - mongodb: what the driver's files share.
 */
#ifndef HF_MONGODB_STORE_H
#define HF_MONGODB_STORE_H

#include "ear.h"
#include "link.h"
#include "pool.h"

struct hf_store {
    struct hf__mg_how how;
    struct hf__pool pool;
    struct hf__mg_link link[HF_POOL_LINKS];
    /* For many replaces at once: none of them is kept waiting by other requests. */
    struct hf__pool many_pool;
    struct hf__mg_link many[HF_POOL_LINKS];
    hf__mg_ear *ear;
    int plain;      /* no $facet, no $$NOW, no projections: asked at opening */
    int replicated; /* at opening: has change streams */
};

/* mongodb.c: a swap by that connection. */
int hf__mg_swap_by(hf_store *st, struct hf__mg_link *link, const hf_rowkey *key, uint64_t seen,
                   const hf_row *row, hf_row *cur, int64_t *ret_clock_us, hf_error *err);

/* replace_many.c */
int hf__mg_replace_many(hf_store *st, hf_replace *item, size_t n, int64_t until_us);

#endif
