/*
 * sum.h - checks of a body: whether the head is consistent, and the sum of the parties, which is a
 * part of the head's `extent`.
 */
#ifndef HF_FILE_SUM_H
#define HF_FILE_SUM_H

#include "shared.h"

static inline int hf__likely_head(const struct hf__body *b)
{
    return b->token <= b->rev && b->rev < UINT64_C(1) << 53 && hf__holders(b) <= HF_PARTIES_CAP &&
           hf__waiters(b) <= HF_PARTIES_CAP;
}

/* Returns a hash word of a party, without its owner and note, as if its token, times, claim and
   flags were these. */
static inline uint64_t hf__party_word(const hf_party *p, uint64_t token, int64_t since_us,
                                      int64_t expires_us, uint32_t claim_ms, uint8_t flags)
{
    uint64_t w[2], times = p->lease_ms | (uint64_t)claim_ms << 32,
                   kind = p->mode | (uint64_t)flags << 8 | (uint64_t)p->wakeup << 16 |
                          (uint64_t)p->owner_len << 24 | (uint64_t)p->note_len << 32;
    memcpy(w, p->id, 16);
    return w[0] ^ hf__turned(w[1], 7) ^ hf__turned(token, 14) ^ hf__turned((uint64_t)since_us, 21) ^
           hf__turned((uint64_t)expires_us, 28) ^ hf__turned(p->session, 35) ^
           hf__turned(times, 42) ^ hf__turned(p->limit, 49) ^ hf__turned(kind, 56);
}
static inline uint64_t hf__party_word_of(const hf_party *p)
{
    return hf__party_word(p, p->token, p->since_us, p->expires_us, p->claim_ms, p->flags);
}
/* Returns the sum of the parties so far (0 at first) and one more. */
static inline uint64_t hf__sum_next(uint64_t sum, uint64_t word)
{
    return hf__turned(sum, 11) * HF_SEAL_FACTOR ^ word;
}
/* Returns the sum as it stands in an extent. No parties: 0. */
static inline uint64_t hf__sum_bits(uint64_t sum) { return (sum * HF_SEAL_FACTOR) >> 40 << 40; }

#endif
