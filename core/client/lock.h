/*
 * lock.h - hf_lock, a handle's object for a grant: it is made, seized by a thread, changed at the
 * store by an event (a renewal, a release, a FINISH), and freed. Under the mutex.
 */
#ifndef HF_LOCK_H
#define HF_LOCK_H

#include "step.h"

struct hf_entry;
struct hf_wait;

/* Allocates memory for one more lock, which the next hf__lock_new uses. Returns 0 or HF_NOMEM. */
int hf__lock_more(hf *h);
/* Makes the lock for the grant of `p` in the stored row `row`; the lock takes over the caller's
   reference to the entry. `w`: the wait that was granted the key (hf_adopt makes one up); NULL: it
   was granted by acquire_now. Returns NULL if there is no memory. */
hf_lock *hf__lock_new(hf *h, struct hf_entry *e, const hf_party *p, const hf_row *row,
                      const struct hf_wait *w);
/* Updates the lock by what the stored row says of its grant. */
void hf__note_row(hf_lock *lock, const hf_row *row);
/* Frees the lock, and gives up its reference to the entry. */
void hf__lock_free(hf_lock *lock);

/* Seizes the lock: waits until no other thread works on it, and sets `busy`. A caller that is going
   to free the lock sets `releasing` before: then no thread begins to report a loss of the lock
   meanwhile. */
void hf__seize(hf_lock *lock);
/* Ends the seizure: clears `busy`, and puts the lock back into the queues. */
void hf__let_go(hf_lock *lock);
/* Returns 1 if the grant is over at the store, as far as is known: the lock is lost, or its session
   has ended. A loss by max_hold_ms doesn't count, because the store still has the grant. */
int hf__over_already(const hf_lock *lock);
/* Makes one event for this grant at the store. `row` becomes the stored row (or the last one seen);
   `known`: at the call `row` is believed to be the current row. Returns as hf__cas_loop. Called
   with the mutex, which is released meanwhile. */
int hf__lock_event(hf_lock *lock, struct hf_event *ev, hf_row *row, int known,
                   struct hf_outcome *out, hf_error *err);

#endif
