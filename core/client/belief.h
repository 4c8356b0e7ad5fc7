/*
 * belief.h - may the holder of a grant believe in it?
 */
#ifndef HF_BELIEF_H
#define HF_BELIEF_H

#include "holdfast_driver.h"
#include "step.h"

/* Returns the local time until which the holder of a lock with a session may believe. */
int64_t hf__session_until(const hf_lock *lock);
int hf__believed(const hf_lock *lock);
/* Returns 1 if the holder may believe in the lock, or if only the store can say so: an adopted
   one. */
int hf__perhaps_held(const hf_lock *lock);
/* One reading of both clocks, made by hf__moment. hf__perhaps_held_at answers for that moment, so
   that many locks need one reading only. */
struct hf_moment {
    int64_t local_us;
    struct hf_time store;
};
struct hf_moment hf__moment(hf *h);
int hf__perhaps_held_at(const hf_lock *lock, const struct hf_moment *now);
/* Returns 1 if the end of the lease has passed, whether or not that was noticed. */
int hf__time_is_over(const hf_lock *lock);

#endif
