/*
 * lock.h - the grant: how a handle makes one, what it says of itself, and its events at the store
 * (a release, a renewal, the end of an event). Under the mutex.
 */
#ifndef HF_LOCK_H
#define HF_LOCK_H

#include "step.h"

struct hf_entry;
struct hf_wait;

/* Allocates memory for one more lock, which the next hf__lock_new uses. Returns 0 or HF_NOMEM. */
int hf__lock_more(hf *h);
/* Makes the lock for the grant of `p` in the stored row `row`; the lock takes over the caller's
   reference to the entry. `w`: the wait that was granted it (hf_adopt makes one up); NULL:
   acquire_now. Returns NULL without memory. */
hf_lock *hf__lock_new(hf *h, struct hf_entry *e, const hf_party *p, const hf_row *row,
                      const struct hf_wait *w);
/* Notes what the stored row says of the grant. */
void hf__note_row(hf_lock *lock, const hf_row *row);
/* Forgets the lock; its key's entry stays. */
void hf__lock_free(hf_lock *lock);

/* Waits until no other thread works on the lock, and reserves it for this thread. If the lock is
   being released (`releasing`), no thread begins to report a loss of it any more. */
void hf__seize(hf_lock *lock);
/* Ends the reservation of a lock (`busy`). */
void hf__let_go(hf_lock *lock);
/* Returns 1 if the lock is lost, or its session is over; not by max_hold_ms, where the store still
   has the grant. */
int hf__over_already(const hf_lock *lock);
/* Makes one event for this grant at the store. `row` becomes the stored row (or the last one seen);
   `known`: it is believed to be the current row. Returns as hf__cas_loop. Called with the mutex,
   which is released meanwhile. */
int hf__lock_event(hf_lock *lock, struct hf_event *ev, hf_row *row, int known,
                   struct hf_outcome *out, hf_error *err);

#endif
