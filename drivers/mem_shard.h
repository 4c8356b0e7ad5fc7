/*
 * mem_shard.h - a shard of the store in memory (mem.c): cells, each with a key and its row, under
 * one latch, which the caller of these functions holds. Cells of deleted rows are used again: a few
 * for any key (`spare`), and one in each shard, still in its bucket, for its own key (`idle`).
 */
#ifndef HF_MEM_SHARD_H
#define HF_MEM_SHARD_H

#include "bytes.h"
#include "holdfast_driver.h"
#include "mem_latch.h"

#include <stdlib.h>
#include <string.h>

enum {
    SHARDS = 64, /* the low bits of a key's hash choose its shard */
    SHARD_BITS = 6,
    FEWEST_BUCKETS = 16,
    SPARE_CELLS = 32, /* kept in each shard, so that the usual case allocates nothing */
    SMALL_KEY = 96,
    CACHE_LINE = 64
};

struct cell {
    struct cell *next;
    uint64_t hash;
    uint32_t len;
    char *key; /* `small`, or allocated */
    hf_row row;
    char small[SMALL_KEY];
};

struct shard {
    _Alignas(CACHE_LINE) hf__latch latch;
    uint32_t n, buckets, n_spare;
    uint64_t floor; /* at least the rev of every row that was deleted here */
    struct cell **bucket;
    struct cell *spare;
    struct cell *idle; /* the cell of a row that was deleted: it counts as no row, but stays in its
                          bucket, for a key that is acquired again and again. NULL: none */
};

static inline struct cell **bucket_of(const struct shard *s, uint64_t hash)
{
    return &s->bucket[hash >> SHARD_BITS & (s->buckets - 1)];
}

/* Returns where the pointer to the key's cell is, or would be. */
static inline struct cell **find(const struct shard *s, const hf_rowkey *key)
{
    struct cell **at = bucket_of(s, key->hash);
    while (*at && ((*at)->hash != key->hash || (*at)->len != key->len ||
                   !hf__same_bytes((*at)->key, key->text, key->len)))
        at = &(*at)->next;
    return at;
}

/* Returns the cell's row; NULL: there is none. */
static inline const hf_row *row_of(const struct shard *s, const struct cell *c)
{
    return c && c != s->idle ? &c->row : NULL;
}

static inline void resize(struct shard *s, uint32_t buckets)
{
    struct cell **old = s->bucket, **fresh = calloc(buckets, sizeof(struct cell *));
    uint32_t n = s->buckets;
    if (!fresh) return; /* the old table stays in use, with longer chains */
    s->bucket = fresh;
    s->buckets = buckets;
    for (uint32_t i = 0; i < n; i++)
        for (struct cell *c = old[i], *next; c; c = next) {
            next = c->next;
            struct cell **at = bucket_of(s, c->hash);
            c->next = *at;
            *at = c;
        }
    free(old);
}

static inline void free_cell(struct cell *c)
{
    hf_row_clear(&c->row);
    if (c->key != c->small) free(c->key);
    free(c);
}

/* Makes the row of a new or idle cell an empty one whose rev is the floor. */
static inline void begin(const struct shard *s, hf_row *row)
{
    row->rev = s->floor;
    row->token = 0;
    row->done_us = row->keep_until_us = 0;
    row->n_holders = row->n_queue = 0;
    memset(row->last_id, 0, sizeof row->last_id);
}

__attribute__((unused)) static HF_APART struct cell *new_cell(struct shard *s, const hf_rowkey *key)
{
    struct cell *c = s->spare;
    if (c) {
        s->spare = c->next;
        s->n_spare--;
    } else {
        if (!(c = malloc(sizeof *c))) return NULL;
        hf_row_init(&c->row);
    }
    c->key = key->len < SMALL_KEY ? c->small : malloc((size_t)key->len + 1);
    if (!c->key) {
        free(c);
        return NULL;
    }
    memcpy(c->key, key->text, (size_t)key->len + 1);
    c->len = key->len;
    c->hash = key->hash;
    begin(s, &c->row);
    if (++s->n > s->buckets) resize(s, s->buckets * 2);
    struct cell **at = bucket_of(s, c->hash);
    c->next = *at;
    *at = c;
    return c;
}

/* Returns a cell for the key, with an empty row whose rev is the floor. `c` is what `find` has
   found: the idle cell, or NULL. Returns NULL if memory runs out. */
static inline struct cell *add(struct shard *s, const hf_rowkey *key, struct cell *c)
{
    if (!c) return new_cell(s, key);
    s->idle = NULL;
    begin(s, &c->row);
    return c;
}

static inline int is_small(const struct cell *c)
{
    return c->key == c->small && c->row.party == c->row.inl;
}

/* Takes a cell out of its bucket, and keeps it as a spare one or frees it. */
static inline void take_out(struct shard *s, struct cell *c)
{
    struct cell **at = bucket_of(s, c->hash);
    while (*at != c) at = &(*at)->next;
    *at = c->next;
    s->n--;
    if (!is_small(c) || s->n_spare >= SPARE_CELLS) {
        free_cell(c);
    } else {
        c->next = s->spare;
        s->spare = c;
        s->n_spare++;
    }
    if (s->buckets > FEWEST_BUCKETS && s->n < s->buckets / 8) resize(s, s->buckets / 2);
}

/* Raises the floor: rows that are made from now on have a greater rev. */
static inline void raise_floor(struct shard *s, uint64_t floor)
{
    if (floor > s->floor) s->floor = floor;
}

/* Makes the cell of a deleted row the idle one, if the shard has none and the cell is small.
   Returns 1 if it does. */
static inline int rests(struct shard *s, struct cell *c)
{
    if (s->idle || !is_small(c)) return 0;
    s->idle = c;
    return 1;
}

/* Deletes the row in the cell `c`. `floor` is at least the row's rev. */
static inline void drop(struct shard *s, struct cell *c, uint64_t floor)
{
    struct cell *last = s->idle;
    raise_floor(s, floor);
    s->idle = NULL;
    if (last) take_out(s, last);
    if (!rests(s, c)) take_out(s, c);
}

#endif
