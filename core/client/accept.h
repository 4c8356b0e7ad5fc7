/*
 * accept.h - a wait that was granted its key accepts the grant, and holds: it finds the grant in
 * the row, or in a notification. Without the mutex.
 */
#ifndef HF_ACCEPT_H
#define HF_ACCEPT_H

#include "holdfast_driver.h"

struct hf_wait;

/* Accepts the grant that is in the row, if it may still be believed, and makes the lock. Returns:
   1: the wait is over, granted or failed; 0: look again. */
int hf__accept_grant(struct hf_wait *w, const hf_row *row);
/* Accepts a handover, and leaves its claim to the renewer. Returns 0 if it doesn't: the row has no
   handover, or the claim has to be written now. */
int hf__accept_handover(struct hf_wait *w, const hf_row *row);

/* What the notification that woke a queued wait said. */
enum hf_notified {
    HF_NOTIFIED_NOTHING, /* nothing that says enough: the row has to be read */
    HF_NOTIFIED_ROW,     /* the row, later than it was seen last: as good as read */
    HF_NOTIFIED_OLD,     /* nothing new, and it isn't time to look */
    HF_NOTIFIED_ENDED    /* the wait was granted the key, and holds */
};
/* Reads that notification, and accepts the grant that it may name. */
enum hf_notified hf__act_on_notification(struct hf_wait *w, hf_row *row);

#endif
