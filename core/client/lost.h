/*
 * lost.h - the loss of a lock, whose grant is over before its holder gave it back: how the holder
 * is told, and with what reason. Under the mutex.
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
    HF_BY_STORE     /* the store has ended the grant */
};
/* Marks the lock as lost: makes hf_lost_fd readable, stops the renewal, and leaves the callback to
   the expiry monitor, which calls hf__run_on_lost. */
void hf__mark_lost(hf_lock *lock, enum hf_lost_by by);
/* Marks a lock as lost that is over by its lease or by max_hold_ms, and finds which. The caller has
   seen that it is over (hf__perhaps_held). */
void hf__mark_expired(hf_lock *lock);
/* Marks the lock as lost because its row was found damaged, or its store damaged or replaced
   (HF_CORRUPT, described by `why`): what is there now may grant the key to other clients. */
void hf__mark_corrupt(hf_lock *lock, const hf_error *why);
/* Notes that a renewal was answered with HF_CORRUPT. Two such answers are a loss if the second
   comes at least hf__renewal_pause_us after the first: a damage that lasts for less time, as while
   a file is being restored, loses no lock. What clears the first one: a renewal that is stored,
   hf_confirm, and a row that a batch or the expiry monitor has read. An answer that says nothing
   about the row (UNKNOWN, UNAVAILABLE, DENIED) neither counts nor clears it. */
void hf__renewal_corrupt(hf_lock *lock, const hf_error *why);
/* Calls on_lost of a lost lock that has one. The callback may free the lock. Called with the mutex,
   which is released meanwhile. */
void hf__run_on_lost(hf_lock *lock);

/* Returns 1 if the lease ran out because renewals failed. Then the grant is over at the store, too,
   and a release would be a waste of time. */
int hf__unanswered(const hf_lock *lock);
/* Fills *err for a lost lock, with the cause if it is known. `what`: the call. Returns HF_LOST. */
int hf__lost_error(const hf_lock *lock, const char *what, hf_error *err);
/* Adds to the error of an unconfirmed release until when the lock may stay held. `err` may be
   NULL. */
void hf__may_stay(const hf_lock *lock, const char *what, hf_error *err);
/* Adds to the error of hf_once_finish that the event isn't, or may not be, marked. `err` may be
   NULL. */
void hf__not_marked(const hf_lock *lock, hf_error *err);

#endif
