/*
 * lock_event.h - one event of a grant at the store (a release, a renewal, the end of an event), by
 * one thread at a time. Under the mutex.
 */
#ifndef HF_LOCK_EVENT_H
#define HF_LOCK_EVENT_H

#include "step.h"

/* Waits until no other thread works on the lock, and marks it as ours. Of one that is being given
   back (`releasing`) nobody begins to tell its holder any more. */
void hf__seize(hf_lock *lock);
/* Nobody works on it any more (it was `busy`). */
void hf__let_go(hf_lock *lock);
/* Lost, and not by max_hold_ms, where the store still has it. */
int hf__over_already(const hf_lock *lock);
/* One event for this grant at the store; the mutex is dropped meanwhile. The row as stored (or as
   last seen) is in `row`; if it is `known`, it is the current one already. Returns as hf__cas_loop.
 */
int hf__lock_event(hf_lock *lock, struct hf_event *ev, hf_row *row, int known,
                   struct hf_outcome *out, hf_error *err);

/* Was it neither given back nor found gone? */
static inline int hf__unsettled(int rc) { return rc && rc != HF_LOST && rc != HF_CORRUPT; }

#endif
