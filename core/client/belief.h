/*
 * belief.h - whether the holder of a grant may believe that it still holds. Under the mutex.
 */
#ifndef HF_BELIEF_H
#define HF_BELIEF_H

#include "holdfast_driver.h"

/* Returns the local time until which the holder may believe that it holds, for a lock with a
   session. */
int64_t hf__session_until(const hf_lock *lock);
/* Returns 1 if the holder may believe that it still holds. */
int hf__believed(const hf_lock *lock);
/* Returns 1 if hf__believed, or if only the store can tell: for an adopted lock with a session,
   which another process may keep. */
int hf__perhaps_held(const hf_lock *lock);
/* Returns 1 if the lease may have ended by now, whether or not the lock is marked as lost. */
int hf__time_is_over(const hf_lock *lock);

#endif
