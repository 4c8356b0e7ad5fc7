/*
 * belief.h - may the holder of a grant believe in it?
 */
#ifndef HF_BELIEF_H
#define HF_BELIEF_H

#include "holdfast_driver.h"
#include "step.h"

/* Until when its holder may believe, by the local clock. It has a session. */
int64_t hf__session_until(const hf_lock *lock);
int hf__believed(const hf_lock *lock);
/* May the holder believe in the lock? Also if only the store can say so: one that was adopted. */
int hf__perhaps_held(const hf_lock *lock);
/* One reading of both clocks, for many locks; and the same question at that moment. */
struct hf_moment {
    int64_t local_us;
    struct hf_time store;
};
struct hf_moment hf__moment(hf *h);
int hf__perhaps_held_at(const hf_lock *lock, const struct hf_moment *now);
/* Has the end of its lease passed, noticed or not? */
int hf__time_is_over(const hf_lock *lock);

#endif
