/*
 * wait_schedule.h - when a wait looks at the store, if nothing wakes it: after a look, the time of
 * the next one; before the first look, a pause for others; and the dispatcher's queue of waits by
 * that time. Nothing else sets look_at_us.
 */
#ifndef HF_WAIT_SCHEDULE_H
#define HF_WAIT_SCHEDULE_H

#include "step.h"

struct hf_entry;
struct hf_port;
struct hf_wait;

/* On local stores each waiter looks after this time, times its place in the queue, at the latest.
 */
#define HF_LOOK_MOST_US INT64_C(30000000)

/* ---- after a look. Without the mutex ---- */

int64_t hf__poll_us(const hf *h);
uint32_t hf__room_for(const struct hf_wait *w); /* places of the store's queue that it may see */
/* Returns the local time at which the first lease of the holders ends, which may be past; waits
   behind the first one count from it. INT64_MAX: none ends by time. */
int64_t hf__holders_end(hf *h, const hf_row *row);
/* Plans the next look after a conflict: others wrote first. The request was sent at sent_us. */
void hf__plan_after_conflict(struct hf_wait *w, const hf_row *row, int64_t sent_us);
/* Plans the next look of a request that was refused, and isn't in the queue. */
void hf__plan_outside(struct hf_wait *w, enum hf_answer answer);
/* Plans the next look of a request that is in the queue, at `place`. */
void hf__plan_next_look(struct hf_wait *w, const hf_row *row, uint32_t place);
/* Returns how much later than the first waiter the one at `place` acts upon a lease that has
   ended. */
int64_t hf__stagger_us(const struct hf_wait *w, uint32_t place);
/* Returns 1 if the wait is queued, and others have to act first on this row; then plans its next
   look. */
int hf__lets_others_act(struct hf_wait *w, const hf_row *row);

/* ---- a pause before the first look ---- */

/* Called before this handle writes the row. Returns 1 if no pause is needed: since its last write
   the handle has left the row alone for as long as a pause lasts, which counts as a yield, or
   others are in the row. Otherwise returns 0. */
int hf__yielded(const struct hf_port *port, struct hf_entry *e, int64_t now_us);
/* Returns 1 if the first look is put off to look_at_us. The look of an attempt (wait 0) never
   is. */
int hf__yields_first(struct hf_wait *w);

/* ---- the dispatcher's queue ---- */

/* Sets the time of the next look; or makes it at_us, if that is earlier. Called by the thread that
   drives the wait (also without the mutex), or while no thread looks. */
void hf__look_at(struct hf_wait *w, int64_t at_us);
void hf__look_by(struct hf_wait *w, int64_t at_us);
/* Puts the wait to its place in the dispatcher's queue. To be called after any change of its
   deadline, its next look, its state or `notified`. Under the mutex, as the next ones. */
void hf__schedule(struct hf_wait *w);
/* Makes the wait look before all others, because its key may have changed. */
void hf__notify(struct hf_wait *w);
/* Makes the wait look behind those that are due already, because any key may have changed. */
void hf__notify_in_turn(struct hf_wait *w);

#endif
