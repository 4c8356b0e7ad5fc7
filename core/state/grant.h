/*
 * grant.h - the row of a grant that needs no step, and what is told of it. Inline: an uncontended
 * acquisition does little else, and what it takes is mostly the time of its
 * stores. Pure, as step.h.
 */
#ifndef HF_GRANT_H
#define HF_GRANT_H

#include "holdfast_driver.h"

#include <stddef.h>
#include <string.h>

static inline uint64_t hf__rev_next(uint64_t previous, int64_t clock_us)
{
    uint64_t floor = clock_us > 0 ? (uint64_t)clock_us : 0;
    return previous + 1 > floor ? previous + 1 : floor;
}

/* Copies whole chunks, beyond the NUL: a copy of unknown length costs several times as much. Both
   texts have room for that. */
static inline void hf__copy_text(char *to, const char *from, size_t len)
{
    _Static_assert(HF_OWNER_CAP % 16 == 0 && HF_NOTE_CAP % 16 == 0, "whole chunks");
    for (size_t i = 0; i <= len; i += 16) memcpy(to + i, from + i, 16);
}

/* Returns 1 if this request's grant was the last that ended. In a row that doesn't know it, last_id
   is an id that no request has. */
static inline int hf__ended_last(const hf_row *row, const uint8_t id[16])
{
    static const uint8_t not_known[16];
    return !memcmp(row->last_id, id, 16) && memcmp(row->last_id, not_known, 16) != 0;
}

static inline int hf__is_free_for(const hf_row *row, const hf_party *party)
{
    return !row->n_holders && !row->n_queue && !hf__ended_last(row, party->id);
}

/* Makes `party` the only holder. */
static inline void hf__grant(hf_row *row, const hf_party *party, uint64_t rev, int64_t clock_us)
{
    hf_party *p = row->party;
    row->rev = row->token = rev;
    row->n_holders = 1;
    memset(row->last_id, 0, sizeof row->last_id);
    memcpy(p, party, offsetof(hf_party, owner));
    p->token = rev;
    p->since_us = clock_us;
    p->expires_us = party->lease_ms ? clock_us + (int64_t)party->lease_ms * 1000 : 0;
    if (party->flags & HF_PARTY_DETACHED) p->session = 0;
    p->flags = party->flags & HF_PARTY_DETACHED;
    p->claim_ms = 0;
    hf__copy_text(p->owner, party->owner, party->owner_len);
    hf__copy_text(p->note, party->note, party->note_len);
}

/* Fills *cur with what the caller of an acquire needs of the new grant; the caller fills in the
   rest, and the marker. The fields are computed, not read back from the row: a read that is wider
   than the writes of a moment ago would stall. */
static inline void hf__tell_grant(hf_row *cur, const hf_party *party, uint64_t rev,
                                  int64_t clock_us)
{
    hf_party *p = cur->party;
    cur->rev = cur->token = rev;
    cur->n_holders = 1;
    cur->n_queue = 0;
    p->token = rev;
    p->since_us = clock_us;
    p->expires_us = party->lease_ms ? clock_us + (int64_t)party->lease_ms * 1000 : 0;
}

#endif
