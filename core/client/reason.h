/*
 * reason.h - why a lock is lost, or may stay held. Under the mutex.
 */
#ifndef HF_REASON_H
#define HF_REASON_H

#include "holdfast_driver.h"

/* A request for the lock is under way, and hasn't been answered. */
void hf__note_no_answer(hf_lock *lock);
/* What the lock, or else its session, keeps. NULL: nothing. */
const hf_error *hf__cause(const hf_lock *lock);
/* Returns 1 if the lease ran out because the store didn't answer renewals. The grant is then over
   at the store, too, and a release would only take time. */
int hf__unanswered(const hf_lock *lock);
/* HF_LOST, with what is known of the cause. */
int hf__lost_error(const hf_lock *lock, const char *what, hf_error *err);
/* Adds to the error of a release that wasn't confirmed (err may be NULL): until when the lock may
   stay held; to that of an event's end: what became of the event. */
void hf__may_stay(const hf_lock *lock, const char *what, hf_error *err);
void hf__not_marked(const hf_lock *lock, hf_error *err);

#endif
