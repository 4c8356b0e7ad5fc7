/*
 * deadline_list.h - the locks that end by time, or whose loss is to be told: when the expiry
 * monitor looks at each. Under the mutex.
 */
#ifndef HF_DEADLINE_LIST_H
#define HF_DEADLINE_LIST_H

#include "holdfast.h"

/* The local time at which the lease may be over: a little early, for the clocks' rates; then
   exactly. */
int64_t hf__lease_ends(const hf_lock *l, int64_t now_us);
/* When a lock ends with its session, by the local clock; INT64_MAX: it has none, or the store's
   answer decides. */
int64_t hf__session_over_at(const hf_lock *lock);
/* Is the store asked now and then whether the grant is still there? Not while another thread uses
   the lock, which is that thread's alone. */
int hf__asks_store(const hf_lock *lock);
/* When the expiry monitor is to look at it, by the local clock: INT64_MAX: not at all. */
int64_t hf__watch_at(const hf_lock *lock, int64_t now_us);
/* Puts it into the queue, or to its new place there, and tells the expiry monitor: to be called
   after any change of what hf__watch_at goes by. */
void hf__set_deadline(hf_lock *lock);
void hf__each_lock(hf *h, void (*see)(hf_lock *lock, void *arg), void *arg);

#endif
