/*
 * hot.h - the common case of acquire and replace, which is the hot path of the whole library: the
 * caller's hint names the key's cell, nobody holds the bucket's lock, there is neither marker nor
 * queue, and the new body fits. That takes one compare-and-swap and no call into another file.
 * Whatever else it finds, it lets go and leaves everything to the general path.
 */
#ifndef HF_FILE_HOT_H
#define HF_FILE_HOT_H

#include "grant.h"
#include "hints.h"
#include "store.h"
#include "sum.h"

/* Revs may be ahead of the clock by less than a machine takes to start again, since a power cut may
   take each of them; what is more has to be known to the disk first (see hf__raise_ceiling). */
enum { HF_AHEAD_US = 100000 };

/* A client with the file open makes no system call, so nothing tells it that the path now leads to
   another file: it looks once a second. */
static inline int hf__is_time_to_look(const struct hf__client *c, int64_t clock_us)
{
    return clock_us >= atomic_load_explicit(&c->look_at_us, memory_order_relaxed);
}

/* Returns 1 in the common case that the store is usable. Relaxed: an operation more or less doesn't
   matter. */
static inline int hf__is_sound(const struct hf__client *c)
{
    return !atomic_load_explicit(&c->broken, memory_order_relaxed) &&
           !atomic_load_explicit(&c->look, memory_order_relaxed);
}

/* ---- revs and clocks ---- */

/* Returns what hf_rev_next does, without the call. */
static inline uint64_t hf__rev_after(uint64_t previous, int64_t clock_us)
{
    uint64_t floor = clock_us > 0 ? (uint64_t)clock_us : 0;
    return previous + 1 > floor ? previous + 1 : floor;
}

/* If the grant has no lease, nothing ends by its time, so a clock that is a little behind
   will do. */
static inline int64_t hf__clock_for(struct hf__client *c, const hf_party *party)
{
    return (party->lease_ms ? HF_NOW(c) : HF_ENV(c, rough_now)(c)) + c->offset_us;
}

/* Revs run ahead of the clock only if a key is written more than once in a microsecond, and for
   long. Then a power cut must not bring the store back with a clock behind them. */
static inline int hf__is_ahead(const struct hf__client *c, uint64_t rev, int64_t clock_us)
{
    return HF_UNLIKELY((int64_t)rev > clock_us + HF_AHEAD_US) &&
           rev > atomic_load_explicit(&c->ceiling_us, memory_order_relaxed);
}

/* Returns 1 if another client's rev isn't too far ahead of the clock. A clock that was read lately
   is enough, because it is behind at most. */
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

/* Returns the address of a body that lies within the file, or NULL. */
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

/* Finds a key by its hint. The hint may be old: cells never move, but a vacant one may have got
   another key. */
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

/* Stores in *to the row of a grant: `party` holds, no request waits. Copies to *cur what the grant
   reports. */
static inline void hf__put_taken(struct hf__cell *cell, const struct hf__body *was,
                                 struct hf__body *to, uint64_t rev, const hf_party *party,
                                 int64_t clock_us, hf_row *cur)
{
    int64_t expires_us = party->lease_ms ? clock_us + (int64_t)party->lease_ms * 1000 : 0;
    unsigned char *in = (unsigned char *)(to + 1);
    hf_party *fixed = (hf_party *)(void *)in;
    size_t size = (size_t)(hf__put_party(in, party) - in);
    /* After the copying, not in between: reading back what was just written would stall. */
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

/* Stores the row, except for its marker, which h->extent and h->marker_seq name. */
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
