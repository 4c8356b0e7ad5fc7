/*
 * deadline_list.h - when the expiry monitor looks at a lock (its lease ends, or its loss is to be
 * reported) or at a handover that isn't claimed. The deadlines are in heaps (util/deadlines.h).
 * Under the mutex where nothing else is said.
 */
#ifndef HF_DEADLINE_LIST_H
#define HF_DEADLINE_LIST_H

#include "holdfast_driver.h"

struct hf_entry;

/* Returns the local time at which the lease may be over. If more than 20 ms are left, the time is
   too early by a hundredth of them, because the rates of clocks differ; then the monitor looks
   again. */
int64_t hf__lease_ends(const hf_lock *l, int64_t now_us);
/* Returns the local time at which the lock ends with its session; INT64_MAX: it has none, or the
   store's answer decides. */
int64_t hf__session_over_at(const hf_lock *lock);
/* Returns 1 if the expiry monitor is to ask the store now and then whether the grant still exists:
   on a local store, for a lock with a descriptor or a callback for its loss. Not while a thread has
   seized the lock. */
int hf__asks_store(const hf_lock *lock);
/* Returns the local time at which the expiry monitor looks at the lock; INT64_MAX: never. */
int64_t hf__watch_at(const hf_lock *lock, int64_t now_us);
/* Puts the lock into hf.watched at hf__watch_at, and wakes the expiry monitor if need be. Call it
   after any change of a field from which hf__watch_at computes. */
void hf__set_deadline(hf_lock *lock);
/* Sets the deadline of the first unclaimed handover in `row`, which was just written: when its
   claim timeout ends, the expiry monitor grants the key to the next waiter, unless another client
   has. A waiter that was granted beside others calls this, too: their grants may be unclaimed. Only
   on local stores: elsewhere the waiters look by themselves. Takes the mutex. */
void hf__watch_claim(hf *h, struct hf_entry *e, const hf_row *row);

#endif
