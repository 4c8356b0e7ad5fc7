/*
 * wait_schedule.h - when a wait looks at the store, if nothing wakes it: the time of the next look
 * (look_at_us, which only this file sets), a pause before the first look that lets other clients
 * in, and the dispatcher's queue of waits in the order of their looks.
 */
#ifndef HF_WAIT_SCHEDULE_H
#define HF_WAIT_SCHEDULE_H

#include "step.h"

struct hf_entry;
struct hf_port;
struct hf_wait;

/* On local stores the first waiter looks after this time at the latest, the nth after n times as
   long. */
#define HF_LOOK_MOST_US INT64_C(30000000)

/* ---- after a look. Without the mutex ---- */

/* Returns the pause between two polls: the driver's poll_ms, give or take a quarter at random. */
int64_t hf__poll_us(const hf *h);
/* Returns how many waiters the store's queue may have for this wait to enter it (hf__backoff_room).
 */
uint32_t hf__room_for(const struct hf_wait *w);
/* Returns the local time at which the first lease of the holders ends, which may be past.
   INT64_MAX: none ends by time. */
int64_t hf__holders_end(hf *h, const hf_row *row);
/* Plans the next look after a conflict. The request was sent at local sent_us. */
void hf__plan_after_conflict(struct hf_wait *w, const hf_row *row, int64_t sent_us);
/* Plans the next look of a request that was refused with `answer`, and isn't in the queue. */
void hf__plan_outside(struct hf_wait *w, enum hf_answer answer);
/* Plans the next look of a request that is in the queue, at `place` (0: first). */
void hf__plan_next_look(struct hf_wait *w, const hf_row *row, uint32_t place);
/* Returns the stagger: how much later than the first waiter the one at `place` acts after a lease
   has ended, so that not all waiters write at once. */
int64_t hf__stagger_us(const struct hf_wait *w, uint32_t place);
/* Returns 1 if the wait is queued behind others, and they are to act on this row first; then its
   next look is planned. */
int hf__leave_to_others(struct hf_wait *w, const hf_row *row);

/* ---- a pause before the first look ---- */

/* Called before this handle writes the row. Returns 1 if no pause is needed: other parties are in
   the row, or the handle has not written it for as long as a pause lasts (which then counts as a
   pause). */
int hf__note_yield(const struct hf_port *port, struct hf_entry *e, int64_t now_us);
/* Returns 1 if the wait has to pause first: its first look is put off to look_at_us. An attempt
   (wait_ms 0) never pauses. */
int hf__yields_first(struct hf_wait *w);

/* ---- the dispatcher's queue ---- */

/* hf__look_at sets the time of the next look; hf__look_by moves it to at_us if that is earlier.
   Called by the thread that drives the wait (also without the mutex), or, under the mutex, while no
   thread makes a look of this wait. */
void hf__look_at(struct hf_wait *w, int64_t at_us);
void hf__look_by(struct hf_wait *w, int64_t at_us);
/* Puts the wait to its place in the dispatcher's queue. Call it after any change of deadline_us,
   look_at_us, `state`, `cancel` or `notified`. Under the mutex, as the next ones. */
void hf__schedule(struct hf_wait *w);
/* Makes the wait look before all others, because its key may have changed. */
void hf__notify(struct hf_wait *w);
/* Makes the wait look behind those that are due already, because any key may have changed. */
void hf__notify_in_turn(struct hf_wait *w);

#endif
