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

/* On local stores each waiter looks after so long at most, for each place in the queue. */
#define HF_LOOK_MOST_US INT64_C(30000000)

/* ---- after a look. Without the mutex ---- */

int64_t hf__poll_us(const hf *h);
uint32_t hf__room_for(const struct hf_wait *w); /* places of the store's queue that it may see */
/* When the first lease of the holders ends, as local time, which may be past; waits behind the
   first one count from it. INT64_MAX: none ends by time. */
int64_t hf__holders_end(hf *h, const hf_row *row);
/* Others wrote first, after the request was sent at sent_us. */
void hf__plan_after_conflict(struct hf_wait *w, const hf_row *row, int64_t sent_us);
/* The request was refused, and isn't in the queue. */
void hf__plan_outside(struct hf_wait *w, enum hf_answer answer);
/* It is in the queue, at `place`. */
void hf__plan_next_look(struct hf_wait *w, const hf_row *row, uint32_t place);
/* How much later than the first waiter the one at `place` acts upon a lease that has ended. */
int64_t hf__stagger_us(const struct hf_wait *w, uint32_t place);
/* Is a step of this row useless? Then the next look is planned. */
int hf__nothing_to_do(struct hf_wait *w, const hf_row *row);

/* ---- a pause before the first look ---- */

/* Before this handle writes that row: has it left the row alone for long enough? Notes the write.
 */
int hf__yield_due(const struct hf_port *port, struct hf_entry *e, int64_t now_us);
/* Before the first look. Returns 1: the look is put off to look_at_us. An attempt (wait 0) isn't.
 */
int hf__yields_first(struct hf_wait *w);

/* ---- the dispatcher's queue ---- */

/* Sets the next look; or sets it to at_us if it is later. For the thread that drives the wait (also
   without the mutex), or while no thread looks. */
void hf__look_at(struct hf_wait *w, int64_t at_us);
void hf__look_by(struct hf_wait *w, int64_t at_us);
/* Puts the wait to its place in the dispatcher's queue. To be called after any change of what that
   depends on. Under the mutex, as the next ones. */
void hf__schedule(struct hf_wait *w);
/* The store may have news of the wait's key: the wait looks before all others. */
void hf__notify(struct hf_wait *w);
/* The store may have news of any key: the wait looks behind those that are due already. */
void hf__notify_in_turn(struct hf_wait *w);

#endif
