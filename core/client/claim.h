/*
 * claim.h - a wait whose request was granted: it accepts the grant, and holds. Without the mutex.
 */
#ifndef HF_CLAIM_H
#define HF_CLAIM_H

#include "holdfast_driver.h"

struct hf_wait;

/* The grant is in the row: accepts it and makes the lock. Returns: 1: the wait is over, granted or
   failed; 0: look again. */
int hf__accept_grant(struct hf_wait *w, const hf_row *row);
/* The same of a handover whose claim is left to the renewer. Returns: 0: it isn't one. */
int hf__accept_handover(struct hf_wait *w, const hf_row *row);

#endif
