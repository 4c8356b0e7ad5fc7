/*
 * listing.h - what a scan of all rows with a prefix keeps, whatever its pages are made of. Compiled
 * into each module that uses it.
 *
 * Thread safety: one thread. Nothing is allocated, but by what is read into `row`.
 */
#ifndef HF_KIT_LISTING_H
#define HF_KIT_LISTING_H

#include "holdfast_driver.h"

#include <string.h>

/* Set up by hf__listing_begin; at the end the row is to be cleared. */
struct hf__listing {
    const char *prefix;
    int (*see)(void *arg, const hf_rowkey *, hf_row *);
    void *arg;
    int64_t *ret_clock_us;
    hf_row row; /* the key that was read last */
    int stop;   /* `see` wants no more */
};

static inline void hf__listing_begin(struct hf__listing *l, const char *prefix,
                                     int (*see)(void *arg, const hf_rowkey *, hf_row *), void *arg,
                                     int64_t *ret_clock_us)
{
    l->prefix = prefix;
    l->see = see;
    l->arg = arg;
    l->ret_clock_us = ret_clock_us;
    l->stop = 0;
    hf_row_init(&l->row);
}

/* Returns 1 if the key has the prefix. */
static inline int hf__listing_has(const struct hf__listing *l, const char *key)
{
    return !strncmp(key, l->prefix, strlen(l->prefix));
}

/* Shows what was read of a key, with the result `rc`: a row, or that it is damaged. Returns rc; 0
   if only this row is damaged. */
static inline int hf__listing_show(struct hf__listing *l, const hf_rowkey *key, int rc)
{
    if (rc == HF_CORRUPT || (!rc && l->row.rev)) l->stop = l->see(l->arg, key, rc ? NULL : &l->row);
    return rc == HF_CORRUPT ? 0 : rc;
}

#endif
