/*
 * hot.h - the common case of acquire and replace: a hint names the key's cell, the bucket's lock is
 * free, the row has neither marker nor queue, and the new body fits. That takes one
 * compare-and-swap and no call into another file. In all other cases the caller takes the general
 * path.
 */
#ifndef HF_FILE_HOT_H
#define HF_FILE_HOT_H

#include "grant.h"
#include "hints.h"
#include "store.h"
#include "sum.h"

/* A power cut may lose any rev, and revs must not repeat after it. A rev that is ahead of the clock
   by less than this is exceeded anyway, since a machine takes longer to start. A rev that is
   further ahead needs a ceiling on disk first (hf__raise_ceiling). In microseconds. */
enum { HF_AHEAD_US = 100000 };

/* Returns 1 if the client has to check whether the path still leads to its file. It does so once a
   second, because operations make no system call that would report it. */
static inline int hf__is_time_to_look(const struct hf__client *c, int64_t clock_us)
{
    return clock_us >= atomic_load_explicit(&c->look_at_us, memory_order_relaxed);
}

/* Returns 1 if the store is usable, and nothing asks for a check of the file. Relaxed order is
   enough, because the check may come an operation later. */
static inline int hf__is_sound(const struct hf__client *c)
{
    return !atomic_load_explicit(&c->broken, memory_order_relaxed) &&
           !atomic_load_explicit(&c->look, memory_order_relaxed);
}

/* ---- revs and clocks ---- */

/* Returns what hf_rev_next returns; inlined. */
static inline uint64_t hf__rev_after(uint64_t previous, int64_t clock_us)
{
    uint64_t floor = clock_us > 0 ? (uint64_t)clock_us : 0;
    return previous + 1 > floor ? previous + 1 : floor;
}

/* Returns the store's clock for a grant to `party`. Without a lease nothing ends by it, so a
   cheaper clock that is some milliseconds behind will do. */
static inline int64_t hf__clock_for(struct hf__client *c, const hf_party *party)
{
    return (party->lease_ms ? HF_NOW(c) : HF_ENV(c, rough_now)(c)) + c->offset_us;
}

/* Returns 1 if the rev is so far ahead of the clock that the ceiling has to be raised before it is
   written. That happens only if a key is written more than once a microsecond for long. */
static inline int hf__is_ahead(const struct hf__client *c, uint64_t rev, int64_t clock_us)
{
    return HF_UNLIKELY((int64_t)rev > clock_us + HF_AHEAD_US) &&
           rev > atomic_load_explicit(&c->ceiling_us, memory_order_relaxed);
}

/* Returns 1 if a rev that the core has computed isn't too far ahead of the clock. It compares with
   a clock that was read lately, which is never ahead of the present one: that errs to the safe
   side. */
static inline int hf__is_in_reach(const struct hf__client *c, uint64_t rev)
{
    return (int64_t)rev <= atomic_load_explicit(&c->last_us, memory_order_relaxed) + HF_AHEAD_US ||
           rev <= atomic_load_explicit(&c->ceiling_us, memory_order_relaxed);
}

/* ---- finding the cell ---- */

/* A cell that a hint led to, with both of its bodies. */
struct hf__hot {
    struct hf__cell *cell;
    struct hf__body *at, *to; /* the current body; the other one */
    size_t size;              /* of *to */
    uint64_t seq;
    struct hf__body head; /* of *at */
};

/* Returns the address of the body that the link leads to, and its size; NULL: it isn't within the
   file, or the link is damaged. */
static inline struct hf__body *hf__hot_body(const struct hf__client *c, _Atomic uint64_t *link,
                                            size_t *ret_size)
{
    uint64_t word = HF_LOAD("hot.link", link), line = hf__unseal(word) >> 8;
    unsigned code = (unsigned)(hf__unseal(word) & 0xff);
    if (!hf__sealed(word) || code >= HF_BODY_CODES || !hf__has(c, line, HF_BODY_LINES(code)))
        return NULL;
    *ret_size = (size_t)HF_BODY_LEAST << code;
    return hf__line_at(c, line);
}

/* Finds the key's cell by its hint. Returns 1: *h is filled in; 0: take the general path. The hint
   may be out of date: cells never move, but a vacant cell may have got another key. The caller
   holds the bucket's lock. */
static inline int hf__is_hot(const struct hf__client *c, const hf_rowkey *key, struct hf__hot *h)
{
    uint64_t line = hf__hint_of(c, key);
    size_t size = 0;
    if (!line || !hf__has(c, line, 1 + HF_KEY_CAP / HF_LINE)) return 0;
    h->cell = hf__line_at(c, line);
    if (HF_GET("hot.hash", h->cell->hash) != key->hash ||
        HF_GET("hot.key", h->cell->key) >> 48 != key->len ||
        !HF_SAME("hot.text", hf__cell_key(h->cell), key->text, key->len))
        return 0;
    h->seq = HF_LOAD("hot.seq", &h->cell->seq);
    h->at = hf__hot_body(c, &h->cell->body[hf__unseal(h->seq) & 1], &size);
    h->to = hf__hot_body(c, &h->cell->body[~hf__unseal(h->seq) & 1], &h->size);
    if (!hf__sealed(h->seq) || !h->at || !h->to) return 0;
    h->head = HF_GET("hot.head", *h->at);
    return h->head.check == hf__body_check(&h->head, h->cell->self) &&
           hf__used(&h->head) <= size - sizeof h->head && !(hf__flags(&h->head) & HF_BODY_VACANT);
}

/* ---- writing bodies ---- */

/* Writes the row of a grant into the body *to: `party` holds, no request waits, the marker stays.
   Fills in the part of *cur that an acquire reports. */
static inline void hf__put_taken(struct hf__cell *cell, const struct hf__body *was,
                                 struct hf__body *to, uint64_t rev, const hf_party *party,
                                 int64_t clock_us, hf_row *cur)
{
    int64_t expires_us = party->lease_ms ? clock_us + (int64_t)party->lease_ms * 1000 : 0;
    unsigned char *in = (unsigned char *)(to + 1);
    hf_party *fixed = (hf_party *)(void *)in;
    size_t size = (size_t)(hf__put_party(in, party) - in);
    /* These fields are written after the whole party was copied: reading bytes of `party` that were
       just written in smaller pieces would stall the processor. */
    HF_PUT("taken.token", fixed->token, rev);
    HF_PUT("taken.since", fixed->since_us, clock_us);
    HF_PUT("taken.expires", fixed->expires_us, expires_us);
    HF_PUT("taken.claim", fixed->claim_ms, 0);
    HF_PUT("taken.flags", fixed->flags, 0);
    uint64_t word = hf__party_word(party, rev, clock_us, expires_us, 0, 0);
    const struct hf__body h = {.rev = rev,
                               .token = rev,
                               .counts = 1,
                               .extent = size | (uint64_t)(hf__flags(was) & HF_BODY_MARKED) << 32 |
                                         hf__sum_bits(hf__sum_next(0, word)),
                               .marker_seq = was->marker_seq};
    hf__put_head(cell, to, &h);
    hf__tell_grant(cur, party, rev, clock_us);
}

/* Writes the row into the body *to, except for its marker: hf__put_marker has noted that in
   h->extent and h->marker_seq. */
static inline void hf__put_row(struct hf__cell *cell, struct hf__body *to, const hf_row *row,
                               size_t need, struct hf__body *h)
{
    unsigned char *p = (unsigned char *)(to + 1);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < row->n_holders + row->n_queue; i++) {
        p = hf__put_party(p, &row->party[i]);
        sum = hf__sum_next(sum, hf__party_word_of(&row->party[i]));
    }
    h->rev = row->rev;
    h->token = row->token;
    h->counts = row->n_holders | (uint64_t)row->n_queue << 32;
    h->extent |= (need - sizeof *h) | hf__sum_bits(sum);
    hf__put_head(cell, to, h);
}

#endif
