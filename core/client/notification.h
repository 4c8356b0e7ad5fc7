/*
 * notification.h - reads the notification that woke a wait.
 */
#ifndef HF_NOTIFICATION_H
#define HF_NOTIFICATION_H

#include "holdfast_driver.h"

struct hf_wait;

/* What the notification that woke a queued wait says. */
enum hf_notified {
    HF_NOTIFIED_NOTHING, /* nothing that says enough: the row has to be read */
    HF_NOTIFIED_ROW,     /* the row, later than it was seen last: as good as read */
    HF_NOTIFIED_OLD,     /* nothing new, and it isn't time to look */
    HF_NOTIFIED_ENDED    /* it was handed the key, and holds */
};
enum hf_notified hf__read_notification(struct hf_wait *w, hf_row *row);
/*
 * Stores with hf_session_ops: withdraws requests of this handle that are in `row` although no wait
 * or lock of it belongs to them. A restored backup brings such requests back, and their session is
 * kept for others. Only the first wait of the local queue does this. `row`: as read, then as left.
 * Returns: 0, or the store's error.
 */
int hf__withdraw_orphans(struct hf_wait *w, hf_row *row, int64_t until_us, hf_error *err);

#endif
