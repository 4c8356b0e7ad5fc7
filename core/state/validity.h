/*
 * validity.h - whether a grant is in force, by what is known of the store's clock. The step,
 * holders and other clients all decide it by these functions. Pure.
 */
#ifndef HF_VALIDITY_H
#define HF_VALIDITY_H

#include "step.h"

enum hf_validity {
    HF_GRANT_HELD,    /* certainly in force: only then may its holder believe that it holds */
    HF_GRANT_UNKNOWN, /* the holder has to stop, and no other client may take the key yet */
    HF_GRANT_OVER,    /* certainly over: only then may another client take the key */
    HF_GRANT_ENDING   /* released; the key stays taken for a while, without a holder */
};

/* Returns the validity of a grant that ends at expires_us (0: it doesn't end by time). */
static inline enum hf_validity hf__validity_at(int64_t expires_us, struct hf_time now)
{
    if (!expires_us || now.hi_us < expires_us) return HF_GRANT_HELD;
    return now.lo_us >= expires_us ? HF_GRANT_OVER : HF_GRANT_UNKNOWN;
}

/* Returns the validity of a holder in a row. `dead`: its session is known to be dead. */
static inline enum hf_validity hf__validity(const hf_party *p, struct hf_time now, int dead)
{
    enum hf_validity by_time = hf__validity_at(p->expires_us, now);
    if (dead || by_time == HF_GRANT_OVER) return HF_GRANT_OVER;
    return p->flags & HF_PARTY_ENDING ? HF_GRANT_ENDING : by_time;
}

#endif
