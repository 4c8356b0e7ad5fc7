/*
 * notification.h - what the word says by which a wait was woken.
 */
#ifndef HF_NOTIFICATION_H
#define HF_NOTIFICATION_H

#include "holdfast_driver.h"

struct hf_wait;

/* What a wait that stands in line was told by what woke it. */
enum hf_notified {
    HF_NOTIFIED_NOTHING, /* nothing that says enough: the row has to be read */
    HF_NOTIFIED_ROW,     /* the row, later than it was seen last: as good as read */
    HF_NOTIFIED_OLD,     /* nothing new, and it isn't time to look */
    HF_NOTIFIED_ENDED    /* it was handed the key, and holds */
};
enum hf_notified hf__read_notification(struct hf_wait *w, hf_row *row);
/* Where sessions are kept for many requests: one of an earlier wait of this handle that is back in
   the row, in line or handed the key, for somebody has put back a backup, would stand there as long
   as its session is kept for others: the first of its line withdraws it. `row` is the one that
   was read, and then the one that is left. 0, or what the store says. */
int hf__withdraw_orphans(struct hf_wait *w, hf_row *row, int64_t until_us, hf_error *err);

#endif
