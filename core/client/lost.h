/*
 * lost.h - a grant that is over before its holder gave it back: how its holder is told, and why.
 * Under the mutex.
 *
 * A renewal that fails is sent again until the lease has run out. Of all these failures the first
 * one since the last success is the cause, which is kept when it happens; the later ones are mostly
 * its consequences.
 */
#ifndef HF_LOST_H
#define HF_LOST_H

#include "holdfast_driver.h"

enum hf_lost_by {
    HF_BY_TIME,     /* its lease ran out */
    HF_BY_MAX_HOLD, /* max_hold_ms is over; the store still has the grant */
    HF_BY_STORE     /* the store says so */
};
/* Marks the lock as lost: makes hf_lost_fd readable, stops the renewal, and leaves the callback to
   the expiry monitor, which calls hf__run_on_lost. */
void hf__mark_lost(hf_lock *lock, enum hf_lost_by by);
/* Marks a lock as lost that is over by its lease or by max_hold_ms, and finds which. The caller has
   seen that it is over (hf__perhaps_held). */
void hf__mark_expired(hf_lock *lock);
/* Calls the callback of a lost lock, if it has one, once. Called with the mutex, which is released
   meanwhile. */
void hf__run_on_lost(hf_lock *lock);

/* Returns 1 if the lease ran out because the store didn't answer renewals. The grant is then over
   at the store, too, and a release would only take time. */
int hf__unanswered(const hf_lock *lock);
/* The error of a lost lock, with the known cause. Returns HF_LOST. */
int hf__lost_error(const hf_lock *lock, const char *what, hf_error *err);
/* Adds to the error of a release that wasn't confirmed until when the lock may stay held; to the
   error of hf_once_finish, what became of the event. err may be NULL. */
void hf__may_stay(const hf_lock *lock, const char *what, hf_error *err);
void hf__not_marked(const hf_lock *lock, hf_error *err);

#endif
