/*
 * deadline_list.c - see deadline_list.h.
 */
#include "deadline_list.h"

#include "belief.h"
#include "handle.h"
#include "os.h"
#include "start_threads.h"

/* The store tells the end of an adopted session in whole seconds, rounded down. So the expiry
   monitor waits a second longer. */
enum { ADOPTED_US = 1000000 };

int64_t hf__lease_ends(const hf_lock *l, int64_t now_us)
{
    int64_t left = l->expires_us - hf__port_now(&l->h->port).hi_us;
    return now_us + (left > 20000 ? left - left / 100 : left);
}

int64_t hf__session_over_at(const hf_lock *l)
{
    /* While an adopted hold is being renewed, the store's answer decides. */
    if (!l->session || (l->session->adopted && l->busy)) return INT64_MAX;
    return hf__session_until(l) + (l->session->adopted ? ADOPTED_US : 0);
}

int hf__asks_store(const hf_lock *l)
{
    return l->h->port.caps.local && !l->busy && (l->lost_fd >= 0 || l->on_lost);
}

int64_t hf__watch_at(const hf_lock *l, int64_t now_us)
{
    if (l->pending_release) return l->h->port.caps.local && !l->busy ? l->ask_at_us : INT64_MAX;
    /* At once: the monitor runs the callback. */
    if (l->lost) return l->on_lost && !l->loss_reported && !l->releasing ? 0 : INT64_MAX;
    if (l->releasing) return INT64_MAX;
    int64_t at = hf__session_over_at(l);
    if (l->expires_us) at = hf__min64(at, hf__lease_ends(l, now_us));
    if (l->hold_until_us) at = hf__min64(at, l->hold_until_us);
    return hf__asks_store(l) ? hf__min64(at, l->ask_at_us) : at;
}

void hf__set_deadline(hf_lock *l)
{
    int64_t at = hf__watch_at(l, hf__local_us());
    hf__deadline_set(&l->h->watched, &l->watch, at);
    if (at == INT64_MAX || hf__need_monitor(l->h)) return;
    hf__kick_monitor(l->h, at);
}

void hf__watch_claim(hf *h, struct hf_entry *e, const hf_row *row)
{
    int64_t first = INT64_MAX;
    if (!h->port.caps.local) return; /* on servers the waiters look by themselves */
    for (uint32_t i = 0; i < row->n_holders; i++)
        if (row->party[i].flags & HF_PARTY_UNCLAIMED && row->party[i].session != h->port.session)
            first = hf__min64(first, row->party[i].expires_us);
    if (first == INT64_MAX) return;
    int64_t at = hf__local_us() + first - hf__port_now(&h->port).lo_us + 1000;
    pthread_mutex_lock(&h->mu);
    if (!e->claim_deadline.nth) e->refs++;
    hf__deadline_set(&h->claim_deadlines, &e->claim_deadline, at);
    if (!hf__need_monitor(h)) hf__kick_monitor(h, at);
    pthread_mutex_unlock(&h->mu);
}
