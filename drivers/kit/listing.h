/*
 * listing.h - the state of a scan of all rows with a prefix, which is the same for all drivers.
 * Compiled into each module that uses it.
 *
 * Thread safety: one thread. Only `row` allocates memory.
 */
#ifndef HF_KIT_LISTING_H
#define HF_KIT_LISTING_H

#include "holdfast_driver.h"

#include <string.h>

/* hf__listing_begin sets it up; the caller clears `row` at the end. */
struct hf__listing {
    const char *prefix;
    int (*see)(void *arg, const hf_rowkey *, hf_row *);
    void *arg;
    int64_t *ret_clock_us;
    hf_row row; /* the row that was read last */
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

/* Shows l->row, whose reading has returned `rc`: the row if there is one, NULL if it is damaged.
   Returns rc, but 0 for HF_CORRUPT, because the scan goes on. */
static inline int hf__listing_show(struct hf__listing *l, const hf_rowkey *key, int rc)
{
    if (rc == HF_CORRUPT || (!rc && l->row.rev)) l->stop = l->see(l->arg, key, rc ? NULL : &l->row);
    return rc == HF_CORRUPT ? 0 : rc;
}

#endif
