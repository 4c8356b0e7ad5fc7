/*
 * claim.c - a wait whose request was granted: it accepts the grant, and holds.
 */
#include "claim.h"

#include "handle.h"
#include "kept_error.h"
#include "lock.h"
#include "os.h"
#include "session.h"
#include "validity.h"
#include "wait_state.h"
#include "withdraw.h"

#include <errno.h>

/* Keeps what a wait that ends without another grant says of this one. */
static void note_late_grant(struct hf_wait *w)
{
    hf_error why;
    hf_fail(
        &why, HF_UNAVAILABLE, ETIME,
        "the answer came after the lease of %u ms was over, so that its grant is void and holds "
        "the key no more; ask for a longer lease",
        w->party.lease_ms);
    hf__error_keep(&w->why, &why);
}

/* The grant is in the store; do we still believe it, and can we hold it? */
int hf__accept_grant(struct hf_wait *w, const hf_row *row)
{
    hf *h = w->h;
    int64_t at = hf__find_id(row, w->party.id);
    w->granted = 1;
    if (at < 0 || at >= (int64_t)row->n_holders) return 0;
    const hf_party *p = &row->party[at];
    /* An expired grant must not be believed, however it came about: look again. */
    if (hf__validity_at(p->expires_us, hf__port_now(&h->port)) != HF_GRANT_HELD) {
        note_late_grant(w);
        return 0;
    }
    pthread_mutex_lock(&h->mu);
    struct hf_session *t = w->session;
    if (t && t->own) hf__session_begins(&h->sessions, t, w->asked_at_us);
    if (t && (t->gone || hf__local_us() >= t->until_us)) {
        pthread_mutex_unlock(&h->mu);
        note_late_grant(w);
        return 0;
    }
    w->lock = hf__lock_new(h, w->e, p, row, w);
    if (w->lock) {
        hf__wait_granted(w);
        w->e->wrote_us = h->port.caps.local ? 0 : hf__local_us();
        w->session = NULL;
        w->e->refs++; /* the wait keeps its own until it is finished */
        h->stats.wait_us_total += (uint64_t)(hf__local_us() - w->started_us);
    }
    pthread_mutex_unlock(&h->mu);
    w->code = HF_OK;
    if (w->lock) return 1;
    hf__wait_error(w, HF_NOMEM, "out of memory");
    hf__withdraw_wait(w); /* a grant that can't be told must not stay; UNKNOWN if it may have */
    return 1;
}

/* Is enough left of a grant that was handed over for its claim to be made by the renewer? On a
   store that keeps leases it stands with the session to wait with; that is what it holds with,
   then. */
static int time_to_claim(struct hf_wait *w, const hf_party *p)
{
    hf *h = w->h;
    if (!(p->flags & HF_PARTY_UNCLAIMED) || p->flags & HF_PARTY_DEAD) return 0;
    if (!h->port.caps.sessions)
        return p->expires_us - hf__port_now(&h->port).hi_us >= (int64_t)p->claim_ms * 500;
    const struct hf_session *t = w->queue_session;
    return t && !t->gone && t->id == p->session &&
           t->until_us - hf__local_us() >= (int64_t)t->lease_ms * 500;
}

/* Handed the key while it waited, it holds already. Where a write takes a while it doesn't wait for
   that of its claim: a renewal says the same, and the renewer makes it soon. Not if there is little
   time left for it, or if nothing is to be renewed. */
int hf__accept_handover(struct hf_wait *w, const hf_row *row)
{
    hf *h = w->h;
    int64_t at = hf__find_id(row, w->party.id);
    if (h->port.caps.local || h->port.caps.liveness || w->once ||
        w->flags & (HF_NO_RENEW | HF_DETACHED))
        return 0;
    if (w->state != HF_WAIT_QUEUED || at < 0 || at >= (int64_t)row->n_holders) return 0;
    pthread_mutex_lock(&h->mu);
    struct hf_session *holds = w->session;
    w->unclaimed = time_to_claim(w, &row->party[at]) != 0; /* the renewer runs already */
    if (w->unclaimed && w->queue_session) {
        w->session = w->queue_session;
        w->queue_session = NULL;
    }
    int tries = w->unclaimed;
    pthread_mutex_unlock(&h->mu);
    if (!tries) return 0;
    int over = hf__accept_grant(w, row);
    pthread_mutex_lock(&h->mu);
    w->unclaimed = 0;
    if (w->lock) {
        hf__session_put(&h->sessions, holds);
    } else if (h->port.caps.sessions) {
        w->queue_session = w->session;
        w->session = holds;
    }
    pthread_mutex_unlock(&h->mu);
    return over;
}
