/*
 * held_sessions.c - see held_sessions.h.
 */
#include "held_sessions.h"

#include "cas_loop.h"
#include "deadline_list.h"
#include "handle.h"
#include "kept_error.h"
#include "lost.h"
#include "os.h"
#include "session.h"
#include "start_threads.h"
#include "wait_schedule.h"

/* ---- what hangs on a session ---- */

static void lose_by(hf_lock *l, void *t)
{
    const struct hf_session *over = t;
    if (l->session != over && l->pending_session != over) return;
    if (over->why) hf__error_keep(&l->why, over->why);
    hf__mark_lost(l, HF_BY_TIME);
}

void hf__session_lost(hf *h, const struct hf_session *s)
{
    hf__each_lock(h, lose_by, (void *)(uintptr_t)s);
    for (struct hf_wait *w = h->at_store; w; w = w->list_next)
        if (w->session == s || w->queue_session == s) {
            if (!w->dispatched) hf__look_at(w, 0);
            hf__notify(w);
        }
    hf__kick_dispatcher(h);
}

/* Looks at a lock of session `t` at the session's end, if that is sooner than planned. */
static void look_sooner(hf_lock *l, void *t)
{
    if (l->session == t || l->pending_session == t) hf__set_deadline(l);
}

void hf__session_ends_sooner(hf *h, const struct hf_session *s)
{
    hf__each_lock(h, look_sooner, (void *)(uintptr_t)s);
}

void hf__recheck_sessions(hf *h, struct hf_wait *w)
{
    struct hf_session **at[] = {&w->session, &w->queue_session};
    for (int i = 0; i < 2; i++) {
        struct hf_session *t = *at[i];
        if (!t || hf__session_keep(&h->sessions, t, NULL) != HF_LOST) continue;
        *at[i] = NULL;
        hf__session_put(&h->sessions, t);
    }
}

/* ---- the renewal of a hold ---- */

int hf__session_for_rest(hf_lock *l, struct hf_session **ret, hf_error *err)
{
    int64_t left_ms = (int64_t)l->at_least_ms - (hf__local_us() - l->granted_at_us) / 1000;
    int rc = left_ms > 0 ? hf__session_have(&l->h->sessions, (uint32_t)left_ms, 1, ret, err) : 0;
    if (!rc && *ret) (*ret)->keep_at_us = INT64_MAX;
    return rc;
}

/* Reads the row, and writes it if it names this grant with another session than `to`. Without the
   mutex.
   Returns: 0: the row names the grant with `to`; HF_LOST: the row doesn't name the grant any more;
   another code: not confirmed. */
static int check(hf_lock *l, const struct hf_session *to, hf_row *row, hf_error *err)
{
    hf *h = l->h;
    struct hf_event ev = {.kind = HF_EV_RENEW, .token = l->token, .lease_ms = l->lease_ms};
    struct hf_outcome out;
    ev.session = to->id;
    int64_t until = hf__local_us() + hf__min64(h->port.io_timeout_ms, l->lease_ms / 3) * 1000;
    int rc = hf__port_get(&h->port, &l->e->key, row, err);
    if (rc) return rc;
    int64_t at = hf__find_grant(row, l->token);
    const hf_party *p = at < 0 ? NULL : &row->party[at];
    int over = !p || p->flags & HF_PARTY_DEAD;
    if (!over) {
        /* If an earlier write is unconfirmed, the row is written in any case, so that the earlier
           write can't land any more. */
        if (p->session == to->id && !(p->flags & HF_PARTY_UNCLAIMED) && !l->pending_session)
            return 0;
        rc = hf__cas_loop(&h->port, &l->e->key, &ev, row, 1, until, &out, err);
        over = !rc && out.answer != HF_ANS_OK;
    }
    return over ? hf_fail(err, HF_LOST, 0, "renew '%s': the grant %llu is over", l->e->text,
                          (unsigned long long)l->token)
                : rc;
}

/* Calls `check`, and then knows whether the grant holds with `to`. `begins`: the lease of that
   session begins with this request. Called with the mutex, which is released during requests.
   Returns as `check`; HF_LOST also if the session is over. */
static int bind_to(hf_lock *l, struct hf_session *to, int begins, hf_row *row, hf_error *err)
{
    hf *h = l->h;
    int64_t asked_us = hf__local_us();
    pthread_mutex_unlock(&h->mu);
    int rc = check(l, to, row, err);
    pthread_mutex_lock(&h->mu);
    if (!rc && begins) hf__session_begins(&h->sessions, to, asked_us);
    if (!rc && to->gone) rc = hf_fail(err, HF_LOST, 0, "renew '%s': too late", l->e->text);
    return rc;
}

/* Makes `to` the lock's only session. Takes over the caller's reference to it. */
static void move_to(hf *h, hf_lock *l, struct hf_session *to)
{
    struct hf_session *was = l->session;
    hf__session_put(&h->sessions, l->pending_session);
    l->pending_session = NULL;
    l->session = to;
    hf__session_put(&h->sessions, was);
}

/* Repeats the renewal to pending_session, which wasn't confirmed and may still land. Until that is
   settled no third session is tried: a grant never depends on more than two, and neither is ended.
 */
static int settle_doubt(hf_lock *l, hf_row *row, hf_error *err)
{
    struct hf_session *to = l->pending_session;
    int rc = bind_to(l, to, to->own, row, err);
    if (rc == HF_LOST) hf__mark_lost(l, to->gone ? HF_BY_TIME : HF_BY_STORE);
    if (rc) return rc;
    to->users++;
    move_to(l->h, l, to);
    return 0;
}

int hf__session_renew(hf_lock *l, uint32_t lease_ms, int by_hand, hf_row *row, hf_error *err)
{
    hf *h = l->h;
    int own = l->renew_at_us == INT64_MAX || lease_ms != l->lease_ms;
    int rc = l->pending_session ? settle_doubt(l, row, err) : 0;
    if (rc) return rc;
    struct hf_session *t = l->session, *to = NULL;
    int stays = t->own == own && !t->foreign && t->lease_ms == lease_ms;
    /* The holder of an adopted grant may be another process, which relies on the session that the
       row names. So that session isn't replaced by one that ends sooner. The store tells what is
       left of it in whole seconds, rounded down. */
    int64_t left_us = t->until_us - hf__local_us();
    if (l->adopted && (int64_t)lease_ms * 1000 < left_us + 1000000) stays = 1;
    if (!own && !by_hand && hf__session_stale(&h->sessions, t)) stays = 0;
    if (stays) {
        t->users++;
        to = t;
        if (own || by_hand) rc = hf__session_keep(&h->sessions, t, err);
    } else {
        rc = hf__session_have(&h->sessions, lease_ms, own, &to, err);
    }
    if (!rc) rc = bind_to(l, to, !stays && own, row, err);
    if (!rc) {
        move_to(h, l, to);
        return 0;
    }
    if (rc == HF_LOST) hf__mark_lost(l, to && !to->gone ? HF_BY_STORE : HF_BY_TIME);
    if (rc == HF_UNKNOWN && !stays) {
        l->pending_session = to; /* the row may name either session */
        hf__set_deadline(l);
    } else {
        hf__session_put(&h->sessions, to);
    }
    return rc;
}
