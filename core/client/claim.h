/*
 * claim.h - a wait whose request was granted: it claims the grant, and holds. Without the mutex.
 */
#ifndef HF_CLAIM_H
#define HF_CLAIM_H

#include "holdfast_driver.h"

struct hf_wait;

/* The grant is in the row: 1: the wait has ended with it, or can't. */
int hf__take_up(struct hf_wait *w, const hf_row *row);
/* The same of one that was handed over, whose claim is left to the renewer: 0: it isn't. */
int hf__take_up_unclaimed(struct hf_wait *w, const hf_row *row);

#endif
