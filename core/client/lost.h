/*
 * lost.h - a grant that is over before its holder gave it back.
 */
#ifndef HF_LOST_H
#define HF_LOST_H

#include "holdfast_driver.h"

enum hf_lost_by {
    HF_BY_TIME,     /* its lease ran out */
    HF_BY_MAX_HOLD, /* max_hold_ms; the store still has it as ours */
    HF_BY_STORE     /* the store says so */
};
void hf__mark_lost(hf_lock *lock, enum hf_lost_by by);
/* Its holder can't go on believing (hf__perhaps_held): it is lost. */
void hf__mark_expired(hf_lock *lock);
void hf__run_on_lost(hf_lock *lock);

#endif
