/*
 * last_row.c - the row of a key as this handle knows it last, where it is good enough to write
 * upon.
 */
#include "last_row.h"

#include "handle.h"
#include "os.h"
#include "wait_schedule.h"

#include <string.h>

enum { LAST_ROW_US = 20000 }; /* so long after it the row is a good guess, and no longer */

int hf__seems_over(hf *h, const hf_row *row) { return hf__holders_end(h, row) <= hf__local_us(); }

int hf__last_row_notified(hf *h, struct hf_entry *e, uint64_t token, uint64_t rev, hf_row *row)
{
    const hf_notify_ops *ops = h->port.caps.notify;
    if (!ops || !ops->payload || !rev || !ops->payload(h->port.st, &e->key, row)) return 0;
    if (row->rev >= rev && hf__find_grant(row, token) >= 0 && !hf__seems_over(h, row)) return 1;
    hf_row_clear(row);
    return 0;
}

void hf__last_row_keep(hf *h, const struct hf_entry *e, const hf_row *row)
{
    h->last_row.e = NULL;
    if (h->port.caps.local || !(row->n_holders + row->n_queue)) return;
    if (hf_row_copy(&h->last_row.row, row)) return;
    h->last_row.e = e;
    h->last_row.us = hf__local_us();
}

/* This handle wrote the row last, so one replace mostly queues the wait. If others have written
   since, the conflict brings their row. Not for a caller-chosen id, which may be in the row. */
int hf__last_row_use(struct hf_wait *w, int waits, hf_row *row)
{
    hf *h = w->h;
    int is = 0;
    pthread_mutex_lock(&h->mu);
    if (h->last_row.e == w->e) {
        int usable =
            waits && !w->once && !w->named && hf__local_us() - h->last_row.us < LAST_ROW_US;
        is = usable && !hf_row_copy(row, &h->last_row.row);
        h->last_row.e = NULL;
    }
    pthread_mutex_unlock(&h->mu);
    return is;
}
