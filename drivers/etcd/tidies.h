/*
 * tidies.h - which writes also delete keys beside their row that belong to no session in it: txn.c.
 */
#ifndef HF_ETCD_TIDIES_H
#define HF_ETCD_TIDIES_H

#include <stdint.h>

/* Returns 1 for one write in 64, chosen by a hash of its rev. */
static inline int hf__et_tidies(uint64_t rev)
{
    return !(rev * UINT64_C(0x9e3779b97f4a7c15) >> 58);
}

#endif
