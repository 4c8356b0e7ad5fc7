/*
 * grant.h - grants a free key without a step. Inline, because an uncontended acquisition does
 * little else, and spends most of its time on writes to memory. Pure, as step.h.
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

/* Copies a text with its NUL in chunks of 16 bytes: a copy of unknown length costs several times as
   much. It may copy up to 15 bytes behind the NUL; both arrays have room for them. */
static inline void hf__copy_text(char *to, const char *from, size_t len)
{
    _Static_assert(HF_OWNER_CAP % 16 == 0 && HF_NOTE_CAP % 16 == 0, "whole chunks");
    for (size_t i = 0; i <= len; i += 16) memcpy(to + i, from + i, 16);
}

/* Returns 1 if the grant of this request was the last one that ended in this row. If that isn't
   known, last_id is all zeros, which is the id of no request. */
static inline int hf__ended_last(const hf_row *row, const uint8_t id[16])
{
    static const uint8_t not_known[16];
    return !memcmp(row->last_id, id, 16) && memcmp(row->last_id, not_known, 16) != 0;
}

/* Returns 1 if no party holds or waits, and the request isn't a late copy of one that has ended. */
static inline int hf__is_free_for(const hf_row *row, const hf_party *party)
{
    return !row->n_holders && !row->n_queue && !hf__ended_last(row, party->id);
}

/* Makes `party` the only holder, by a write of the rev `rev`. */
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

/* Fills the reply of a driver's `acquire` with the rev, token and times that hf__grant has given.
   hf__row_taken adds the rest, and the driver the done marker. The fields are computed again, not
   copied from the row: the CPU would stall on a read that is wider than the writes just made. */
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
