/*
 * deadline_list.h - when the expiry monitor looks at what ends by time: at a lock whose lease ends
 * or whose loss is to be reported, and at a handover whose claim is awaited. The list is a heap
 * (util/deadlines.h). Under the mutex where nothing else is said.
 */
#ifndef HF_DEADLINE_LIST_H
#define HF_DEADLINE_LIST_H

#include "holdfast_driver.h"

struct hf_entry;

/* Returns the local time at which the lease may be over. While more than 20 ms are left it is a
   hundredth too early, because clocks' rates differ; the monitor then looks again. */
int64_t hf__lease_ends(const hf_lock *l, int64_t now_us);
/* Returns the local time at which the lock ends with its session; INT64_MAX: it has none, or the
   store's answer decides. */
int64_t hf__session_over_at(const hf_lock *lock);
/* Returns 1 if the store is asked now and then whether the grant still exists. It isn't asked while
   another thread has seized the lock. */
int hf__asks_store(const hf_lock *lock);
/* Returns the local time at which the expiry monitor looks at the lock; INT64_MAX: never. */
int64_t hf__watch_at(const hf_lock *lock, int64_t now_us);
/* Puts the lock into the queue, or to its new place there, and wakes the expiry monitor if need be.
   To be called after any change of what hf__watch_at computes from. */
void hf__set_deadline(hf_lock *lock);
/* If `row`, as just written, holds a grant that was handed over: on local stores the expiry monitor
   passes it on when its claim timeout ends, should no other client do so. A waiter that was granted
   beside others calls it, too: the row may hold their unclaimed grants. On servers it does nothing:
   there the waiters look by themselves. Takes the mutex. */
void hf__watch_claim(hf *h, struct hf_entry *e, const hf_row *row);

#endif
