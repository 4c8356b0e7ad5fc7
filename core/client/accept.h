/*
 * accept.h - a wait accepts the grant of its key, which it has found in the row or in a
 * notification: this makes the lock. Called without the mutex.
 */
#ifndef HF_ACCEPT_H
#define HF_ACCEPT_H

#include "holdfast_driver.h"

struct hf_wait;

/* Accepts the grant that is in the row, if it is certainly in force, and makes the lock. Returns:
   1: the wait is over, granted or failed; 0: there is no such grant: look again. */
int hf__accept_grant(struct hf_wait *w, const hf_row *row);
/* Accepts a handover without writing its claim: the waiter holds already, and the next renewal,
   which the renewer makes soon, is also the claim.
   Returns: 1: the wait is over; 0: the row has no handover to this wait, or the claim has to be
   written now: too little time is left, the grant isn't renewed, the request is for an event, or
   the store is local or has hf_liveness_ops. */
int hf__accept_handover(struct hf_wait *w, const hf_row *row);

/* What the notification that woke a queued wait said. */
enum hf_notified {
    HF_NOTIFIED_NOTHING, /* nothing, or too little: the row has to be read */
    HF_NOTIFIED_ROW,     /* the row, at a later rev than the wait has seen: as good as a read */
    HF_NOTIFIED_OLD,     /* nothing new, and it isn't time to look */
    HF_NOTIFIED_ENDED    /* the wait was granted the key, has accepted the grant, and is over */
};
/* Reads the last notification of the wait's key, and accepts the grant that it may name. `row` is
   the notification's row after HF_NOTIFIED_ROW. */
enum hf_notified hf__act_on_notification(struct hf_wait *w, hf_row *row);

#endif
