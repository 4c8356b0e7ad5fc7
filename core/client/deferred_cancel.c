/*
 * deferred_cancel.c - see deferred_cancel.h.
 */
#include "deferred_cancel.h"

#include "claim_timeout.h"
#include "handle.h"
#include "os.h"
#include "start_threads.h"

#include <stdlib.h>
#include <string.h>

enum { AGAIN_US = 500000 };

int hf__withdraw(hf *h, struct hf_entry *e, const uint8_t id[16], int maybe_done, int64_t until_us,
                 hf_error *err)
{
    struct hf_event ev = {.kind = HF_EV_WITHDRAW, .maybe_done = maybe_done};
    struct hf_outcome out;
    hf_row row;
    memcpy(ev.id, id, sizeof ev.id);
    hf_row_init(&row);
    int rc = hf__cas_loop(&h->port, &e->key, &ev, &row, 0, until_us, &out, err);
    if (!rc) hf__watch_claim(h, e, &row);
    hf_row_clear(&row);
    return rc;
}

/* It is withdrawn in the background. Under the mutex. Without memory it stands until this handle is
   closed. */
void hf__defer_cancel(hf *h, struct hf_entry *e, const uint8_t id[16])
{
    struct hf_deferred_cancel *r = calloc(1, sizeof *r);
    if (!r) return;
    memcpy(r->id, id, 16);
    r->e = e;
    r->at_us = hf__local_us() + AGAIN_US;
    e->refs++;
    r->next = h->cancels;
    h->cancels = r;
    if (!hf__need_renewer(h, NULL)) pthread_cond_signal(&h->renewer_cond);
}

/* Withdraws the one that is due longest: one at a time, for meanwhile sessions are to be kept. When
   to look again; 0 if the mutex was dropped. Under it; only the renewer takes any out. */
int64_t hf__deferred_cancels_tend(hf *h)
{
    struct hf_deferred_cancel *r = h->cancels, **at = &h->cancels;
    if (!r) return INT64_MAX;
    for (struct hf_deferred_cancel *other = r->next; other; other = other->next)
        if (other->at_us < r->at_us) r = other;
    if (r->at_us > hf__local_us()) return r->at_us;
    pthread_mutex_unlock(&h->mu);
    int rc = hf__withdraw(h, r->e, r->id, 1, 0, NULL);
    pthread_mutex_lock(&h->mu);
    r->at_us = hf__local_us() + AGAIN_US;
    if (rc && rc != HF_CORRUPT) return 0;
    while (*at != r) at = &(*at)->next;
    *at = r->next;
    hf__entry_unref(r->e);
    free(r);
    return 0;
}

void hf__deferred_cancels_close(hf *h)
{
    for (struct hf_deferred_cancel *r; (r = h->cancels);) {
        h->cancels = r->next;
        free(r);
    }
}
