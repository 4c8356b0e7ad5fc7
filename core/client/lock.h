/*
 * lock.h - the grant: how a handle makes one, what it says of itself, and its events at the store
 * (a release, a renewal, the end of an event). Under the mutex.
 */
#ifndef HF_LOCK_H
#define HF_LOCK_H

#include "step.h"

struct hf_entry;
struct hf_wait;

/* Memory for one more: the next hf__lock_new will find it. 0, or HF_NOMEM. */
int hf__lock_more(hf *h);
hf_lock *hf__lock_new(hf *h, struct hf_entry *e, const hf_party *p, const hf_row *row,
                      const struct hf_wait *w);
void hf__plan_renewal(hf_lock *lock);
/* `row` as stored holds the grant: what it says of it. */
void hf__note_row(hf_lock *lock, const hf_row *row);
void hf__lock_free(hf_lock *lock);

/* Waits until no other thread works on the lock, and marks it as this thread's. If it is being
   given back (`releasing`), no thread begins to tell its holder of a loss any more. */
void hf__seize(hf_lock *lock);
/* No thread works on it any more (it was `busy`). */
void hf__let_go(hf_lock *lock);
/* Lost, and not by max_hold_ms, where the store still has it. */
int hf__over_already(const hf_lock *lock);
/* One event for this grant at the store; the mutex is dropped meanwhile. The row as stored (or as
   last seen) is in `row`; if it is `known`, it is the current one already. Returns as hf__cas_loop.
 */
int hf__lock_event(hf_lock *lock, struct hf_event *ev, hf_row *row, int known,
                   struct hf_outcome *out, hf_error *err);

#endif
