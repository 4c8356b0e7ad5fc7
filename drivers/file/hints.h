/*
 * hints.h - where a key's cell was when it was used last.
 *
 * The core keeps a hint with each key that it knows (hf_rowkey), and forgets it with the key. If a
 * store has very many keys (a million), chains are long, and each link costs a cache miss. From
 * then on the client keeps a table of its own here, with the cells of the keys that it used last.
 * The table takes up to 16 MB, so it isn't made before.
 *
 * A hint may be out of date, so the cell that it leads to is checked, under the bucket's lock. All
 * hints of a bucket's keys are also written under that lock, which orders the accesses: relaxed
 * order is enough.
 *
 * The table is a cache of sets with eight ways; a set fills one cache line, and each bucket has
 * some sets. A way is line << TAG | some bits of the key's hash; 0: empty. The bits make it rare
 * that another key's cell is fetched in vain.
 */
#ifndef HF_FILE_HINTS_H
#define HF_FILE_HINTS_H

#include "shared.h"

#include <stdlib.h>

enum { HF_HINTS = 1 << 21, HF_LONG_CHAIN = 8, HF_WAYS = HF_LINE / 8, HF_TAG = 24 };
enum { HF_SETS = HF_HINTS / HF_WAYS / (int)HF_FILE_BUCKETS };
_Static_assert(HF_SETS > 0 && HF_SETS * HF_WAYS * HF_FILE_BUCKETS == HF_HINTS, "whole sets");

/* Returns the set for keys with that hash. The sets begin at the first whole cache line of the
   allocation. */
static inline _Atomic uint64_t *hf__set_of(_Atomic uint64_t *all, uint64_t hash)
{
    uint64_t bucket = hash % HF_FILE_BUCKETS, set = hash / HF_FILE_BUCKETS % HF_SETS;
    size_t skip = -(uintptr_t)all % HF_LINE / sizeof *all;
    return all + skip + (bucket * HF_SETS + set) * HF_WAYS;
}

/* Returns the bits of the hash that choose neither the bucket nor the set. */
static inline uint64_t hf__tag_of(uint64_t hash) { return hash >> (64 - HF_TAG); }
static inline int hf__has_tag(uint64_t way, uint64_t tag)
{
    return way && (way & ((1 << HF_TAG) - 1)) == tag;
}

/* Prefetches a cell, because the cell of one key among very many isn't in the processor's cache.
   All lines of a cell with a short name and the smallest bodies are fetched at once instead of one
   by one. */
static inline void hf__fetch_ahead(const struct hf__client *c, uint64_t line)
{
    enum { LINES = 2 + 2 * HF_BODY_LEAST / HF_LINE };
    if (!line || !hf__has(c, line, LINES)) return;
    const char *at = hf__line_at(c, line);
    for (int i = 0; i < LINES; i++) __builtin_prefetch(at + (size_t)i * HF_LINE, 1);
}

/* Returns the line of the key's cell as the hints have it; 0: there is no hint. */
static inline uint64_t hf__hint_of(const struct hf__client *c, const hf_rowkey *key)
{
    uint64_t line = key->hint ? __atomic_load_n(key->hint, __ATOMIC_RELAXED) : 0;
    if (line) return line;
    _Atomic uint64_t *set = atomic_load_explicit(&c->hints, memory_order_acquire);
    if (!set) return 0;
    set = hf__set_of(set, key->hash);
    for (int i = 0; i < HF_WAYS && !line; i++) {
        uint64_t way = atomic_load_explicit(&set[i], memory_order_relaxed);
        if (hf__has_tag(way, hf__tag_of(key->hash))) line = way >> HF_TAG;
    }
    hf__fetch_ahead(c, line);
    return line;
}

/* Returns the table of hints, made when a long chain was met. NULL: it isn't needed so far, or
   there is no memory. */
static inline _Atomic uint64_t *hf__hints_made(struct hf__client *c, uint32_t links)
{
    _Atomic uint64_t *none = NULL, *all = atomic_load_explicit(&c->hints, memory_order_acquire);
    if (all || links < HF_LONG_CHAIN) return all;
    all = calloc(HF_HINTS + HF_WAYS, sizeof *all); /* the system provides memory only for the pages
                                                      that are used */
    if (!all || atomic_compare_exchange_strong(&c->hints, &none, all)) return all;
    free((void *)all);
    return none;
}

/* Notes the line of the key's cell, which was found at the end of `links` links. The caller holds
   the bucket's lock. */
static inline void hf__hint_keep(struct hf__client *c, const hf_rowkey *key, uint64_t line,
                                 uint32_t links)
{
    if (key->hint) __atomic_store_n(key->hint, line, __ATOMIC_RELAXED);
    _Atomic uint64_t *set = hf__hints_made(c, links);
    if (!set) return;
    set = hf__set_of(set, key->hash);
    uint64_t tag = hf__tag_of(key->hash);
    int at = (int)(key->hash >> 24 & (HF_WAYS - 1)); /* the way that is replaced if all are taken */
    for (int i = 0, found = 0; i < HF_WAYS && !found; i++) {
        uint64_t way = atomic_load_explicit(&set[i], memory_order_relaxed);
        found = !way || hf__has_tag(way, tag);
        if (found) at = i;
    }
    atomic_store_explicit(&set[at], line << HF_TAG | tag, memory_order_relaxed);
}

#endif
