/*
 * plan.h - when a wait looks at the store again, if nothing wakes it. Without the mutex.
 */
#ifndef HF_PLAN_H
#define HF_PLAN_H

#include "step.h"

struct hf_wait;

int64_t hf__poll_us(const hf *h);
uint32_t hf__room_for(const struct hf_wait *w); /* places of the store's queue that it may see */
/* When the holders (or handed-over grants) in the way end by time, as local time, which may be past
   (those behind the head count from it); INT64_MAX: not. */
int64_t hf__holders_end(hf *h, const hf_row *row);
/* It asks again, after these: others have written first (it was sent at sent_us); it was refused,
   and doesn't stand in line; it does, at `place`. */
void hf__plan_after_conflict(struct hf_wait *w, const hf_row *row, int64_t sent_us);
void hf__plan_outside(struct hf_wait *w, enum hf_answer answer);
void hf__plan_next_look(struct hf_wait *w, const hf_row *row, uint32_t place);
/* How much later than the first in line one at `place` notices what has ended. */
int64_t hf__stagger_us(const struct hf_wait *w, uint32_t place);
/* Is it worth a step? If not, the next look is planned. */
int hf__nothing_to_do(struct hf_wait *w, const hf_row *row);

#endif
