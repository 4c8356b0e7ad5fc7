/*
 * accept.c - a wait accepts the grant of its key. See accept.h.
 *
 * A row in a notification is used like a row that was read. Both may be out of date, which does no
 * harm: the write that follows compares the rev. Both give the end of a grant by the store's clock.
 */
#include "accept.h"

#include "handle.h"
#include "kept_error.h"
#include "known_row.h"
#include "lock.h"
#include "os.h"
#include "session.h"
#include "validity.h"
#include "wait_schedule.h"
#include "wait_state.h"
#include "withdraw.h"

#include <errno.h>
#include <string.h>

/* ---- a grant that is in the row ---- */

/* Keeps the error that the wait returns if it isn't granted the key again: a grant came too late.
 */
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

int hf__accept_grant(struct hf_wait *w, const hf_row *row)
{
    hf *h = w->h;
    int64_t at = hf__find_id(row, w->party.id);
    w->granted = 1;
    if (at < 0 || at >= (int64_t)row->n_holders) return 0;
    const hf_party *p = &row->party[at];
    /* A grant that may be over is never accepted. The wait looks again. */
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
        hf__wait_moves(w, HF_WAIT_GRANTED);
        w->e->wrote_us = h->port.caps.local ? 0 : hf__local_us();
        w->session = NULL;
        w->e->refs++; /* the wait keeps its own reference until it ends */
        h->stats.wait_us_total += (uint64_t)(hf__local_us() - w->started_us);
    }
    pthread_mutex_unlock(&h->mu);
    w->code = HF_OK;
    if (w->lock) return 1;
    hf__wait_error(w, HF_NOMEM, "out of memory");
    hf__withdraw_wait(w); /* a grant without a lock must not stay; UNKNOWN if it may have stayed */
    return 1;
}

/* Returns 1 if at least half of a handover's claim timeout is left: then the renewer can write the
   claim. On a store with sessions the grant names the session with which the wait was queued, and
   half of that session's length must be left. */
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

/* ---- what a notification says ---- */

/* Returns 1 if the wait was notified before its planned look. */
static int early(struct hf_wait *w)
{
    pthread_mutex_lock(&w->h->mu);
    int is = w->look_at_us > hf__local_us();
    pthread_mutex_unlock(&w->h->mu);
    return is;
}

/* Accepts the grant that a notification names, if it is this wait's. The notification has some
   fields of the only holder; the others are as this wait requested them. A token that isn't above
   seen_rev is ignored: that grant was made to an earlier request with the same request_id. */
static int accept_named_grant(struct hf_wait *w, hf_row *row)
{
    hf_party *p = &row->party[0], named = *p;
    if (row->n_holders != 1 || named.token <= w->seen_rev) return 0;
    if (memcmp(named.id, w->party.id, 16) != 0) return 0;
    hf_party_copy(p, &w->party);
    p->token = named.token;
    p->session = named.session;
    p->since_us = named.since_us;
    p->expires_us = named.expires_us;
    p->flags = named.flags;
    return hf__accept_handover(w, row);
}

/* Plans the next look after a notification that names only the holder, another party. (A row with
   many waiters is too long for a notification.) The wait will be notified of its own grant. So it
   looks when the holder's lease is over, or at its next poll. */
static void another_has_it(struct hf_wait *w, const hf_party *p)
{
    hf *h = w->h;
    pthread_mutex_lock(&h->mu);
    hf__look_at(w, w->poll_at_us);
    if (p->expires_us) {
        int64_t left_us = p->expires_us - hf__port_now(&h->port).lo_us;
        hf__look_by(w, hf__local_us() + left_us + 1);
    }
    pthread_mutex_unlock(&h->mu);
}

enum hf_notified hf__act_on_notification(struct hf_wait *w, hf_row *row)
{
    const hf_notify_ops *ops = w->h->port.caps.notify;
    if (!ops || !ops->payload || !w->subscribed || !ops->payload(w->h->port.st, &w->e->key, row))
        return HF_NOTIFIED_NOTHING;
    if (row->rev > w->seen_rev && !hf__seems_over(w->h, row)) return HF_NOTIFIED_ROW;
    if (!row->rev && accept_named_grant(w, row)) return HF_NOTIFIED_ENDED;
    /* A lost row begins anew, perhaps with lower revs. So if the row says that this wait holds, the
       wait looks, even if the rev isn't later. */
    int64_t at = hf__find_id(row, w->party.id);
    int holds = at >= 0 && at < (int64_t)row->n_holders;
    int old = row->rev <= w->seen_rev && !holds && early(w);
    if (old && !row->rev) another_has_it(w, &row->party[0]);
    hf_row_clear(row);
    return old ? HF_NOTIFIED_OLD : HF_NOTIFIED_NOTHING;
}
