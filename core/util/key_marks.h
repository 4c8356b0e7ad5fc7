/*
 * key_marks.h - a bitmap of the keys that have events: a bit (`leaf`) for each of 65,536 values of
 * a key's hash, and a bit (`some`) for each 64 of those, so that a reader skips what isn't marked.
 *
 * Any number of threads and processes mark keys; one thread at a time takes the marks. A mark that
 * was made before a wakeup is found after that wakeup: a writer sets the bit in `leaf` first, then
 * the bit in `some`, and the reader clears them in the opposite order.
 */
#ifndef HF_KEY_MARKS_H
#define HF_KEY_MARKS_H

#include "holdfast_driver.h"

#include <stdatomic.h>
#include <stdint.h>

enum { HF_MARK_VALUES = 1 << 16, HF_MARK_LEAVES = HF_MARK_VALUES / 64 };
/* A handle makes its bitmap when it has so many waits, and keeps it when they become fewer. Without
   a bitmap, an event of any key makes all waits of the handle look at their rows. */
enum { HF_MARKS_FROM = 64 };

struct hf__key_marks {
    _Atomic uint64_t some[HF_MARK_LEAVES / 64], leaf[HF_MARK_LEAVES];
};

/* The marks that the reader has taken from the bitmap and not returned yet. All zero: none. */
struct hf__mark_reader {
    uint64_t some, leaf;
    uint32_t at_some, at_leaf; /* at_some: the index of the word of `some`, plus 1 */
};

/* The position of the one reader of a wakeup that many waits share. All zero at first. */
struct hf__marked_wakeup {
    struct hf__mark_reader reader;
    uint32_t counted; /* the count at the last event, while there were no marks */
    int all;          /* 1: the next event is about every key */
};

/* Does nothing here. The tests of the shared-memory code define it to see each access. */
#ifndef HF_MARK_SEEN
#define HF_MARK_SEEN(p, how) ((void)0)
#endif

static inline void hf__mark_key(struct hf__key_marks *m, uint64_t hash)
{
    uint32_t at = hash % HF_MARK_VALUES, leaf = at / 64, some = leaf / 64;
    HF_MARK_SEEN(&m->leaf[leaf], CHANGE);
    atomic_fetch_or_explicit(&m->leaf[leaf], UINT64_C(1) << at % 64, memory_order_acq_rel);
    HF_MARK_SEEN(&m->some[some], CHANGE);
    atomic_fetch_or_explicit(&m->some[some], UINT64_C(1) << leaf % 64, memory_order_acq_rel);
}

/* Reads the next mark. Returns 1: *ret_hash has the low bits of a hash that was marked; 0: there is
   no further mark, and the next call begins anew. */
static inline int hf__next_mark(struct hf__key_marks *m, struct hf__mark_reader *r,
                                uint64_t *ret_hash)
{
    while (!r->leaf) {
        if (r->some) {
            r->at_leaf = (r->at_some - 1) * 64 + (uint32_t)__builtin_ctzll(r->some);
            r->some &= r->some - 1;
            HF_MARK_SEEN(&m->leaf[r->at_leaf], CHANGE);
            r->leaf = atomic_exchange_explicit(&m->leaf[r->at_leaf], 0, memory_order_acq_rel);
        } else if (r->at_some == HF_MARK_LEAVES / 64) {
            r->at_some = 0;
            return 0;
        } else {
            _Atomic uint64_t *word = &m->some[r->at_some++];
            HF_MARK_SEEN(word, CHANGE);
            if (atomic_load_explicit(word, memory_order_acquire))
                r->some = atomic_exchange_explicit(word, 0, memory_order_acq_rel);
        }
    }
    *ret_hash = r->at_leaf * UINT64_C(64) + (uint64_t)__builtin_ctzll(r->leaf);
    r->leaf &= r->leaf - 1;
    return 1;
}

/* Reads the next event of a wakeup whose counter is at `counted`. With marks: the next marked hash.
   Without (m is NULL): one event about every key, if the counter has changed.
   Returns 1: *ret is an event; 0: there is none. */
static inline int hf__wakeup_event(struct hf__marked_wakeup *b, struct hf__key_marks *m,
                                   uint32_t counted, hf_key_event *ret)
{
    *ret = (hf_key_event){0, 0};
    if (b->all || (!m && counted != b->counted)) {
        b->all = 0;
        b->counted = counted;
        return 1;
    }
    if (!m || !hf__next_mark(m, &b->reader, &ret->hash)) return 0;
    ret->mask = HF_MARK_VALUES - 1;
    return 1;
}

#endif
