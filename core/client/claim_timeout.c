/*
 * claim_timeout.c - grants that were handed over from here: passed on when their claim has run out.
 */
#include "claim_timeout.h"

#include "handle.h"
#include "os.h"
#include "start_threads.h"

void hf__watch_claim(hf *h, struct hf_entry *e, const hf_row *row)
{
    int64_t first = INT64_MAX;
    if (!h->port.caps.local) return; /* there the waiters look by themselves */
    for (uint32_t i = 0; i < row->n_holders; i++)
        if (row->party[i].flags & HF_PARTY_UNCLAIMED && row->party[i].session != h->port.session)
            first = hf__min64(first, row->party[i].expires_us);
    if (first == INT64_MAX) return;
    int64_t at = hf__local_us() + first - hf__port_now(&h->port).lo_us + 1000;
    pthread_mutex_lock(&h->mu);
    if (!e->claim_deadline.nth) e->refs++;
    hf__deadline_set(&h->claim_deadlines, &e->claim_deadline, at);
    if (!hf__need_monitor(h, NULL)) hf__kick_monitor(h, at);
    pthread_mutex_unlock(&h->mu);
}
