/*
 * tidies.h - when a write deletes keys beside its row that no session uses any more: see txn.c.
 */
#ifndef HF_ETCD_TIDIES_H
#define HF_ETCD_TIDIES_H

#include <stdint.h>

/* Chooses one write in 64, by a hash of its rev. */
static inline int hf__et_tidies(uint64_t rev)
{
    return !(rev * UINT64_C(0x9e3779b97f4a7c15) >> 58);
}

#endif
