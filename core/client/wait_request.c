/*
 * wait_request.c - the requests of a wait: by the store's own `acquire` or by a step, with the
 * sessions that they need. See wait_request.h.
 */
#include "wait_request.h"

#include "cas_loop.h"
#include "handle.h"
#include "held_sessions.h"
#include "known_row.h"
#include "os.h"
#include "session.h"
#include "wait_state.h"

/* ---- sessions, on stores where every party needs one ---- */

/* Sets the sessions for the next event, from those that the wait has. A session that is over, or
   soon will be, isn't used: then hf__cas_loop returns HF_UNBOUND if it needs one, and have_session
   gets it. */
static void choose_sessions(struct hf_wait *w, struct hf_event *ev)
{
    struct hf_session **at[] = {&w->session, &w->queue_session};
    hf *h = w->h;
    if (!h->port.caps.sessions) return;
    pthread_mutex_lock(&h->mu);
    for (int i = 0; i < 2; i++)
        if (*at[i] && (*at[i])->gone) {
            hf__session_put(&h->sessions, *at[i]);
            *at[i] = NULL;
        }
    int64_t now = hf__local_us(), half_us = (int64_t)w->party.lease_ms * 500;
    w->party.session = w->session && w->session->until_us - now >= half_us ? w->session->id : 0;
    ev->session = w->queue_session ? w->queue_session->id : 0;
    w->asked_at_us = now;
    pthread_mutex_unlock(&h->mu);
}

/* Makes or finds the session with which the request will hold or, if `queues`, wait in the queue,
   and names it in the event. */
static int have_session(struct hf_wait *w, struct hf_event *ev, int queues, hf_error *err)
{
    hf *h = w->h;
    int own = (w->flags & (HF_NO_RENEW | HF_DETACHED)) != 0, rc;
    pthread_mutex_lock(&h->mu);
    if (queues)
        rc = hf__session_have(&h->sessions, w->party.claim_ms, 0, &w->queue_session, err);
    else
        rc = hf__session_have(&h->sessions, w->party.lease_ms, own, &w->session, err);
    if (!rc && queues)
        ev->session = w->queue_session->id;
    else if (!rc)
        w->party.session = w->session->id;
    w->asked_at_us = hf__local_us();
    pthread_mutex_unlock(&h->mu);
    return rc;
}

int hf__wait_step(struct hf_wait *w, struct hf_event *ev, hf_row *row, int known, int64_t until,
                  struct hf_outcome *out, hf_error *err)
{
    hf *h = w->h;
    int rc, again = 1;
    choose_sessions(w, ev);
    for (;;) {
        rc = hf__cas_loop(&h->port, &w->e->key, ev, row, known, until, out, err);
        known = rc == HF_UNBOUND;
        if (rc == HF_UNBOUND) {
            if (hf__find_id(row, w->party.id) >= 0) w->maybe_in_row = 1; /* a reply was lost */
            rc = have_session(w, ev, out->answer == HF_ANS_QUEUED, err);
            if (rc) return rc;
        } else if (rc == HF_LOST && h->port.caps.sessions && again-- > 0) {
            /* A session that the row names, of this handle or another, died after the row was
               read. */
            pthread_mutex_lock(&h->mu);
            hf__recheck_sessions(h, w);
            pthread_mutex_unlock(&h->mu);
            choose_sessions(w, ev);
        } else {
            return rc;
        }
    }
}

/* ---- one request, where the driver has `acquire` ---- */

/* Returns 1 if the request may be made by the driver's `acquire`: it isn't for an event, isn't
   detached, and isn't queued yet; and the store is neither local nor has sessions. */
static int may_acquire(const struct hf_wait *w)
{
    const struct hf_port *port = &w->h->port;
    return port->drv->acquire && !w->once && !(w->party.flags & HF_PARTY_DETACHED) &&
           w->state != HF_WAIT_QUEUED && !port->caps.local && !port->caps.sessions;
}

/* Returns how many waiters the row may have if the store appends the request; 0: the store must not
   append it. */
static uint32_t may_queue(const struct hf_wait *w, const struct hf_event *ev)
{
    int asks = ev->kind == HF_EV_ENQUEUE && may_acquire(w);
    return asks && !w->h->port.caps.liveness ? ev->queue_cap : 0;
}

/* Returns 1 if the row of a refusal shows a full queue without the request. (An earlier attempt
   whose reply was lost may have put the request there.) */
static int is_full(const struct hf_wait *w, const struct hf_event *ev, const hf_row *row)
{
    return row->n_holders && row->n_queue >= ev->queue_cap && hf__find_id(row, w->party.id) < 0;
}

/* Calls the driver's `acquire`, again and again while its reply is lost: a repetition finds the
   request in the row, or puts it there.
   Returns: 0: granted or in the queue, as *out says; HF_CONFLICT: the row needs a step; otherwise
   the error. */
static int acquire_in_one_request(struct hf_wait *w, const struct hf_event *ev, hf_row *row,
                                  int64_t until, struct hf_outcome *out, hf_error *err)
{
    uint32_t most = may_queue(w, ev);
    for (;;) {
        int rc = hf__port_acquire(&w->h->port, &w->e->key, &w->party, most, row, err);
        if (rc == HF_UNKNOWN) w->maybe_in_row = w->lost_reply = w->lost_acquire = 1;
        /* No waiters in the row: the key was granted. After an append there is at least one. */
        if (!rc && !row->n_queue)
            *out = (struct hf_outcome){HF_ANS_GRANTED, 1, 0, row->token};
        else if (!rc)
            *out = (struct hf_outcome){HF_ANS_QUEUED, 1, row->n_queue - 1, 0};
        if (rc != HF_UNKNOWN || hf__local_us() >= until) return rc;
        hf__pause(HF_POLL_MS * 200);
    }
}

/* Makes *row the one that this handle's last release of the key has left, so that the next write
   needs no read. If the release left the key free, only rev and token are known. Each such row is
   used once.
   Returns 1 if it has done that; 0: no such row is known, it may have been replaced since, or the
   store's clock was read too long ago. */
static int use_left_row(struct hf_wait *w, const struct hf_event *ev, hf_row *row)
{
    hf *h = w->h;
    int known = hf__last_row_use(w, ev->kind == HF_EV_ENQUEUE, row);
    /* If the last release handed the key over, the row may have been written again since. Then the
       driver's `acquire` is better: it enters the queue whatever the rev is. */
    if (known && may_queue(w, ev) && row->n_holders == 1 && row->party[0].mode == HF_EXCLUSIVE) {
        hf_row_clear(row);
        return 0;
    }
    pthread_mutex_lock(&h->mu);
    /* If the store's clock was read long ago, its interval is wide: a lease that is counted from
       the lower bound could be over as soon as it is granted. */
    struct hf_time now = hf__port_now(&h->port);
    int fresh =
        now.hi_us - now.lo_us <= (int64_t)w->party.lease_ms * 1000 / 3 || h->port.caps.sessions;
    if (!known && w->e->free_rev && (fresh || !w->party.lease_ms)) {
        row->rev = w->e->free_rev;
        row->token = w->e->free_token;
        w->e->free_rev = 0;
        known = 1;
    }
    pthread_mutex_unlock(&h->mu);
    return known;
}

int hf__wait_ask_first(struct hf_wait *w, const struct hf_event *ev, hf_row *row, int *known,
                       int64_t until, struct hf_outcome *out, hf_error *err)
{
    *known = use_left_row(w, ev, row);
    if (*known || !may_acquire(w)) return HF_CONFLICT;
    int rc = acquire_in_one_request(w, ev, row, until, out, err);
    *known = rc == HF_CONFLICT;
    return rc;
}

int hf__wait_request(struct hf_wait *w, struct hf_event *ev, hf_row *row, int known, int64_t until,
                     struct hf_outcome *out, hf_error *err)
{
    int rc = hf__wait_step(w, ev, row, known, until, out, err);
    if (rc != HF_CONFLICT || !may_queue(w, ev)) return rc;
    rc = acquire_in_one_request(w, ev, row, until, out, err);
    if (rc != HF_CONFLICT || !is_full(w, ev, row)) return rc;
    *out = (struct hf_outcome){HF_ANS_NO_ROOM, 0, 0, 0};
    return 0;
}
