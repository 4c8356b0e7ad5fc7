/*
 * renewal_queue.c - see renewal_queue.h.
 */
#include "renewal_queue.h"

#include "belief.h"
#include "handle.h"
#include "os.h"

enum { AT_ONCE_FIRST = 32, RETRY_MOST_US = 500000 };

int hf__renewable(const hf_lock *l)
{
    return !l->busy && l->renew_at_us != INT64_MAX &&
           (l->pending_release || (!l->lost && !l->releasing));
}

/* Returns the queue that the lock is in; it is in one at most. */
static struct hf_deadlines *where(hf_lock *l)
{
    struct hf_renewals *r = &l->h->renewals;
    return l->renewal_due ? &r->due[l->renewal_due - 1] : &r->waiting;
}

void hf__renewal_drop(hf_lock *l)
{
    hf__deadline_drop(where(l), &l->renewal);
    l->renewal_due = 0;
}

void hf__renew_at(hf_lock *l, int64_t at_us)
{
    l->renew_at_us = at_us;
    if (l->renewal.nth) hf__renewal_drop(l);
    if (hf__renewable(l)) hf__deadline_set(&l->h->renewals.waiting, &l->renewal, at_us);
}

void hf__plan_renewal(hf_lock *l)
{
    int64_t third = (int64_t)l->lease_ms * 1000 / 3;
    int64_t left = (l->expires_us - hf__port_now(&l->h->port).hi_us) / 3;
    if (l->session && l->session->keep_at_us != INT64_MAX)
        left = third; /* a keeper keeps the session; the renewal only checks that the row still has
                         the grant */
    else if (l->session)
        left = (hf__session_until(l) - hf__local_us()) / 3;
    if (left < 0) left = 0;
    l->claims = 0;
    hf__renew_at(l, hf__local_us() + (left < third ? left : third));
}

void hf__note_unanswered(hf_lock *l, int times, uint32_t again_with)
{
    if (l->unanswered && l->again_with < again_with) again_with = l->again_with;
    l->again_with = (uint16_t)(again_with ? again_with : 1);
    int n = l->unanswered + times;
    l->unanswered = (uint8_t)(n < HF_UNANSWERED_MOST ? n : HF_UNANSWERED_MOST);
}

int64_t hf__renewal_pause_us(const hf_lock *l)
{
    int64_t lease_us = (int64_t)l->lease_ms * 1000;
    return lease_us ? hf__min64(lease_us / 12, RETRY_MOST_US) : RETRY_MOST_US;
}

void hf__renewal_failed(hf_lock *l, int rc, uint32_t among)
{
    int soon = rc == HF_UNKNOWN || rc == HF_UNAVAILABLE;
    if (soon) hf__note_unanswered(l, 1, among); /* `among`: how many renewals shared the request */
    if (l->lost || l->releasing) return;
    hf__renew_at(l, hf__local_us() + hf__renewal_pause_us(l));
}

void hf__renewals_open(hf *h)
{
    hf__thread_condition(&h->renewals.work);
    h->renewals.at_once = AT_ONCE_FIRST;
}
