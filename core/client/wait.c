/*
 * wait.c - a request that isn't granted at once: its look at the store, and the thread that drives
 * it.
 */
#include "wait.h"

#include "claim.h"
#include "claim_timeout.h"
#include "handle.h"
#include "held_sessions.h"
#include "kept_error.h"
#include "key.h"
#include "last_row.h"
#include "local_line.h"
#include "look_queue.h"
#include "notification.h"
#include "os.h"
#include "plan.h"
#include "session.h"
#include "start_threads.h"
#include "wait_state.h"
#include "wanted_keys.h"
#include "withdraw.h"
#include "yield.h"

#include <stdlib.h>
#include <string.h>

static const int64_t AWAY_CAP_US =
    15000000; /* how long an endless wait bears a store that's away */

/* The party of a request with these options. */
static void fill_party(hf *h, const hf_options *o, hf_party *p)
{
    hf_party_copy(p, &h->party);
    p->flags = 0; /* it may wait */
    hf__new_id(h, p->id);
    if (o->request_id) memcpy(p->id, o->request_id, 16);
    if (o->owner) {
        p->owner_len = (uint8_t)strlen(o->owner);
        memcpy(p->owner, o->owner, (size_t)p->owner_len + 1);
    }
    if (o->note) {
        p->note_len = (uint8_t)strlen(o->note);
        memcpy(p->note, o->note, (size_t)p->note_len + 1);
        hf__clean_utf8(p->note);
    }
    if (o->lease_ms) p->lease_ms = (uint32_t)o->lease_ms;
    /* Without sessions every hold ends by time: the row says nothing more of it. */
    if (o->flags & HF_DETACHED && (h->port.caps.liveness || h->port.caps.sessions))
        p->flags = HF_PARTY_DETACHED;
    p->mode = (uint8_t)o->mode;
    p->limit = o->mode == HF_LIMITED ? o->limit : 0;
}

/* ---- sessions, where every party needs one ---- */

/* Those that are over, or that would be soon, aren't used: hf__turn asks for others. */
static void look_at_sessions(struct hf_wait *w, struct hf_event *ev)
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

/* The session to hold with, or the one to stand in the queue with. */
static int bind(struct hf_wait *w, struct hf_event *ev, int stands, hf_error *err)
{
    hf *h = w->h;
    int own = (w->flags & (HF_NO_RENEW | HF_DETACHED)) != 0, rc;
    pthread_mutex_lock(&h->mu);
    if (stands)
        rc = hf__session_have(&h->sessions, w->party.claim_ms, 0, &w->queue_session, err);
    else
        rc = hf__session_have(&h->sessions, w->party.lease_ms, own, &w->session, err);
    if (!rc && stands)
        ev->session = w->queue_session->id;
    else if (!rc)
        w->party.session = w->session->id;
    w->asked_at_us = hf__local_us();
    pthread_mutex_unlock(&h->mu);
    return rc;
}

/* hf__turn, with the sessions that it asks for. */
static int ask(struct hf_wait *w, struct hf_event *ev, hf_row *row, int known, int64_t until,
               struct hf_outcome *out, hf_error *err)
{
    hf *h = w->h;
    int rc, again = 1;
    look_at_sessions(w, ev);
    for (;;) {
        rc = hf__turn(&h->port, &w->e->key, ev, row, known, until, out, err);
        known = rc == HF_UNBOUND;
        if (rc == HF_UNBOUND) {
            if (hf__find_id(row, w->party.id) >= 0) w->maybe_in_row = 1; /* a reply was lost */
            rc = bind(w, ev, out->answer == HF_ANS_QUEUED, err);
            if (rc) return rc;
        } else if (rc == HF_LOST && h->port.caps.sessions && again-- > 0) {
            /* A session of ours has died unnoticed, or another's that the row names. */
            pthread_mutex_lock(&h->mu);
            hf__recheck_sessions(h, w);
            pthread_mutex_unlock(&h->mu);
            look_at_sessions(w, ev);
        } else {
            return rc;
        }
    }
}

/* ---- one look at the store ---- */

/* A wait whose limit has passed while the store failed wasn't in vain because of a holder: what the
   store said is its result. */
static void say_given_up(struct hf_wait *w, int code)
{
    int failed = code == HF_TIMEOUT && w->why, why = failed ? w->why->code : 0;
    if (why == HF_UNKNOWN || why == HF_LOST) why = HF_UNAVAILABLE;
    if (failed)
        w->code = hf_fail(&w->err, why, w->why->sys, "acquire '%s': %s, as the store failed: %s",
                          w->e->text, hf_code_text(code), w->why->text);
    else
        hf__wait_error(w, code, hf_code_text(code));
}

/* Ends the wait without a grant; 1. */
static int give_up(struct hf_wait *w, int code)
{
    say_given_up(w, code);
    if (w->maybe_in_row) hf__withdraw_wait(w);
    return 1;
}

static int event_done(struct hf_wait *w, const hf_row *row)
{
    hf_once *o = w->ret_once;
    hf *h = w->h;
    /* Whoever marked it may not have come to this yet; who is told that it is done won't do it. */
    w->code = hf__port_sync(&h->port, &w->e->key, &w->err);
    if (w->code) return 1;
    o->lock = NULL;
    o->done_us = row->done_us;
    memcpy(o->owner, row->done_by, (size_t)row->done_by_len + 1);
    memcpy(o->result, row->result, (size_t)row->result_len + 1);
    w->code = HF_OK;
    return 1;
}

static void answered(struct hf_wait *w)
{
    w->away_since_us = 0;
    hf__error_clear(&w->why);
}

static int store_failed(struct hf_wait *w, int rc, const hf_error *err)
{
    int64_t now = hf__local_us();
    if (rc == HF_UNKNOWN) w->maybe_in_row = w->lost_reply = 1;
    if (!w->away_since_us) w->away_since_us = now;
    hf__error_keep(&w->why, err);
    /* LOST: sessions of ours died twice while it asked. */
    int away = rc == HF_UNAVAILABLE || rc == HF_UNKNOWN || rc == HF_LOST;
    if (away && w->deadline_us > now &&
        (w->deadline_us != INT64_MAX || now - w->away_since_us < AWAY_CAP_US)) {
        hf__look_at(w, now + hf__poll_us(w->h));
        return 0;
    }
    w->code = rc;
    w->err = *err;
    if (rc != HF_UNKNOWN && w->maybe_in_row) hf__withdraw_wait(w);
    if (rc == HF_UNKNOWN) hf__defer_withdrawal(w);
    return 1;
}

/* ---- one request for all of it, where the store can ---- */

/* Is this a request that the store may decide by itself? Not one that begins an event, or needs a
   session of its own; nor where the row can be changed in place. */
static int may_acquire(const struct hf_wait *w)
{
    const struct hf_port *port = &w->h->port;
    return port->drv->acquire && !w->once && !(w->party.flags & HF_PARTY_DETACHED) &&
           w->state != HF_WAIT_QUEUED && !port->caps.local && !port->caps.sessions;
}

/* How many may wait in the row if the store appends the request; 0: it mustn't. */
static uint32_t may_queue(const struct hf_wait *w, const struct hf_event *ev)
{
    int asks = ev->kind == HF_EV_ENQUEUE && may_acquire(w);
    return asks && !w->h->port.caps.liveness ? ev->queue_cap : 0;
}

/* Is the queue full, by the row of a refusal? Not for a request that an earlier sending, of which
   the reply was lost, has put there. */
static int is_full(const struct hf_wait *w, const struct hf_event *ev, const hf_row *row)
{
    return row->n_holders && row->n_queue >= ev->queue_cap && hf__find_id(row, w->party.id) < 0;
}

/* 0: granted, or in line (*out). HF_CONFLICT: the row has to be stepped. Else the error. Sent again
   as long as its reply is lost: then it finds what the first one did, or does it. */
static int acquire(struct hf_wait *w, const struct hf_event *ev, hf_row *row, int64_t until,
                   struct hf_outcome *out, hf_error *err)
{
    uint32_t most = may_queue(w, ev);
    for (;;) {
        int rc = hf__port_acquire(&w->h->port, &w->e->key, &w->party, most, row, err);
        if (rc == HF_UNKNOWN) w->maybe_in_row = w->lost_reply = w->lost_acquire = 1;
        if (!rc && !row->n_queue)
            *out = (struct hf_outcome){HF_ANS_GRANTED, 1, 0, row->token};
        else if (!rc)
            *out = (struct hf_outcome){HF_ANS_QUEUED, 1, row->n_queue - 1, 0};
        if (rc != HF_UNKNOWN || hf__local_us() >= until) return rc;
        hf__pause(HF_POLL_MS * 200);
    }
}

/* The row that this handle has left behind, free or given on, where a write upon it needs no read
   before. 1: it is in *row. */
static int is_left(struct hf_wait *w, const struct hf_event *ev, hf_row *row)
{
    hf *h = w->h;
    int known = hf__last_row_use(w, ev->kind == HF_EV_ENQUEUE, row);
    /* Given on, the row may have been written again since; an acquire gets in line all the same. */
    if (known && may_queue(w, ev) && row->n_holders == 1 && row->party[0].mode == HF_EXCLUSIVE) {
        hf_row_clear(row);
        return 0;
    }
    pthread_mutex_lock(&h->mu);
    /* With a clock that was read long ago a lease could be over as soon as it is granted. */
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

/* The first request of a wait. 0: *out is the answer. HF_CONFLICT: it wasn't decided; *known: *row
   is what is stored, as far as is known. Else the error. */
static int ask_first(struct hf_wait *w, const struct hf_event *ev, hf_row *row, int *known,
                     int64_t until, struct hf_outcome *out, hf_error *err)
{
    *known = is_left(w, ev, row);
    if (*known || !may_acquire(w)) return HF_CONFLICT;
    int rc = acquire(w, ev, row, until, out, err);
    *known = rc == HF_CONFLICT;
    return rc;
}

/* By a step. If others always write first, the store lets it in whatever they write. */
static int request(struct hf_wait *w, struct hf_event *ev, hf_row *row, int known, int64_t until,
                   struct hf_outcome *out, hf_error *err)
{
    int rc = ask(w, ev, row, known, until, out, err);
    if (rc != HF_CONFLICT || !may_queue(w, ev)) return rc;
    rc = acquire(w, ev, row, until, out, err);
    if (rc != HF_CONFLICT || !is_full(w, ev, row)) return rc;
    *out = (struct hf_outcome){HF_ANS_NO_ROOM, 0, 0, 0};
    return 0;
}

static struct hf_event event_of(struct hf_wait *w)
{
    return (struct hf_event){.kind = w->flags & HF_UNQUEUED ? HF_EV_TRY : HF_EV_ENQUEUE,
                             .party = &w->party,
                             .once = w->once,
                             .mark = w->flags & HF_AT_MOST_ONCE ? 1 : 0,
                             .keep_us = w->keep_us};
}

/* ---- the last look ---- */

/* The wait's time is over, and it is looked at, late perhaps, for others had to be. If it was
   handed the key meanwhile, or the key is free, it takes it; else it is withdrawn. Where the store
   may block, who isn't in line has nothing to withdraw, and doesn't ask. 1: it is over. */
static int last_look(struct hf_wait *w, hf_row *row, int64_t now_us)
{
    hf *h = w->h;
    hf_error err = {0};
    struct hf_outcome out;
    struct hf_event ev = event_of(w);
    int64_t until_us = now_us + h->port.io_timeout_ms * 1000;
    if (w->away_since_us || (w->state != HF_WAIT_QUEUED && !h->port.caps.local))
        return give_up(w, HF_TIMEOUT);
    ev.kind = HF_EV_TRY;
    int rc = hf__look(&h->port, &w->e->key, &ev, row, &out, &err), answered = rc == 1;
    int known = !rc;
    if (known && hf__accept_handover(w, row)) return 1;
    /* Behind others in line nothing changes by its asking. */
    if (known && hf__find_id(row, w->party.id) < (int64_t)row->n_holders + 1) {
        rc = ask(w, &ev, row, 1, now_us, &out, &err);
        known = answered = !rc;
        if (rc == HF_UNKNOWN) w->maybe_in_row = w->lost_reply = 1;
    }
    if (rc < 0) hf__error_keep(&w->why, &err);
    if (answered && out.answer == HF_ANS_DONE) return event_done(w, row);
    if (answered && (out.answer == HF_ANS_GRANTED || out.answer == HF_ANS_ALREADY)) {
        if (w->state == HF_WAIT_QUEUED) hf__watch_claim(h, w->e, row);
        w->maybe_in_row = 1;
        if (hf__accept_grant(w, row)) return 1;
        known = 0;
    }
    say_given_up(w, HF_TIMEOUT);
    if (!w->maybe_in_row) return 1;
    if (known)
        hf__withdraw_from(w, row, until_us);
    else if (hf__local_us() < until_us)
        hf__withdraw_until(w, until_us);
    else
        hf__withdrawn(w, HF_UNAVAILABLE, NULL); /* a mute store isn't asked again */
    return 1;
}

/* Its first look begins. */
static void asks(struct hf_wait *w)
{
    pthread_mutex_lock(&w->h->mu);
    hf__wait_asks(w);
    pthread_mutex_unlock(&w->h->mu);
}

static int advance(struct hf_wait *w, hf_row *row)
{
    hf *h = w->h;
    hf_error err = {0};
    struct hf_outcome out;
    struct hf_event ev = event_of(w);
    int64_t now_us = hf__local_us();
    int try_only = w->deadline_us <= w->started_us, late = !try_only && now_us >= w->deadline_us;
    if (__atomic_load_n(&w->cancel, __ATOMIC_RELAXED)) return give_up(w, HF_CANCELED);
    int first = w->state == HF_WAIT_FIRST_LOOK;
    if (late && !first) return last_look(w, row, now_us);
    if (try_only || late) ev.kind = HF_EV_TRY; /* too late to wait, it has a look */
    int64_t until =
        hf__min64(try_only ? INT64_MAX : w->deadline_us, now_us + h->port.io_timeout_ms * 1000);
    int rc = 0, known = 0, answers = 0;
    if (first && hf__yields_first(w)) return 0;
    if (first) asks(w);
    ev.queue_cap = hf__room_for(w);
    if (first || w->overtaken) {
        rc = ask_first(w, &ev, row, &known, until, &out, &err);
        if (rc < 0) return store_failed(w, rc, &err);
        answers = !rc && out.answer == HF_ANS_QUEUED;
        if (!rc && !answers && hf__accept_grant(w, row)) return 1;
    }
    int queued = w->state == HF_WAIT_QUEUED;
    if (!known && !answers && (queued || try_only)) {
        enum hf_notified word = queued ? hf__read_notification(w, row) : HF_NOTIFIED_NOTHING;
        if (word == HF_NOTIFIED_ENDED || word == HF_NOTIFIED_OLD) return word == HF_NOTIFIED_ENDED;
        /* Looking first: a try fails at once on a store that is away, a waiter seldom writes. */
        rc = word == HF_NOTIFIED_NOTHING ? hf__look(&h->port, &w->e->key, &ev, row, &out, &err) : 0;
        answers = rc == 1;
        if (!rc) rc = hf__withdraw_orphans(w, row, until, &err);
        if (rc < 0) return store_failed(w, rc, &err);
        answered(w);
        if (!answers && hf__nothing_to_do(w, row)) return 0;
        if (!answers && hf__accept_handover(w, row)) return 1;
        known = 1;
    }
    if (!answers) now_us = hf__local_us();
    rc = answers ? 0 : request(w, &ev, row, known, until, &out, &err);
    if (rc == HF_CONFLICT) {
        hf__plan_after_conflict(w, row, now_us);
        return try_only ? give_up(w, HF_BUSY) : 0;
    }
    if (rc) return store_failed(w, rc, &err);
    answered(w);
    switch (out.answer) {
    case HF_ANS_GRANTED:
    case HF_ANS_ALREADY:
        if (w->state == HF_WAIT_QUEUED) hf__watch_claim(h, w->e, row);
        w->maybe_in_row = 1;
        if (hf__accept_grant(w, row)) return 1;
        hf__look_at(w, 0);
        return try_only ? give_up(w, HF_TIMEOUT) : 0; /* as the reply came late */
    case HF_ANS_QUEUED:
        w->maybe_in_row = 1;
        hf__plan_next_look(w, row, out.place);
        return 0;
    case HF_ANS_DONE: return event_done(w, row);
    default: break;
    }
    if (try_only) return give_up(w, HF_BUSY);
    hf__plan_outside(w, out.answer);
    pthread_mutex_lock(&h->mu);
    hf__wait_outside(w);
    pthread_mutex_unlock(&h->mu);
    return 0;
}

/* One look at the store. 1: the wait is over (code, lock, err); 0: look again at look_at_us. Called
   without the mutex, by the one who drives the wait. */
int hf__advance(struct hf_wait *w)
{
    hf_row row;
    hf_row_init(&row);
    int over = advance(w, &row);
    hf_row_clear(&row);
    return over;
}

/* ---- who drives it ---- */

void hf__wait_init(hf *h, struct hf_wait *w, struct hf_entry *e, const hf_options *o)
{
    memset(w, 0, sizeof *w);
    w->h = h;
    w->forks = hf__forks;
    w->e = e;
    fill_party(h, o, &w->party);
    w->named = o->request_id != NULL;
    w->flags = o->flags;
    if (!h->port.caps.queues) w->flags |= HF_UNQUEUED;
    w->started_us = hf__local_us();
    w->deadline_us = o->wait_ms == HF_FOREVER ? INT64_MAX : w->started_us + o->wait_ms * 1000;
    w->max_hold_ms = o->max_hold_ms;
    w->at_least_ms = o->at_least_ms;
    hf__thread_condition(&w->changed);
}

/* The caller's thread drives its own wait on a bell. Under the mutex. */
static void drive_by_bell(hf *h, struct hf_wait *w)
{
    const hf_local_ops *local = h->port.caps.local;
    uint8_t bell = w->party.bell;
    pthread_mutex_unlock(&h->mu);
    for (int over = 0; !over;) {
        hf_ear ear;
        int deaf = local->wakeup_begin(h->port.st, bell, 0, &ear, NULL);
        over = hf__advance(w);
        if (!over && deaf) hf__pause(hf__poll_us(h));
        if (!over && !deaf)
            local->sleep(h->port.st, bell, &ear, hf__min64(w->deadline_us, w->look_at_us), NULL);
    }
    pthread_mutex_lock(&h->mu);
}

/* Waits until it is over. Under the mutex. */
void hf__wait_sync(hf *h, struct hf_wait *w)
{
    int bells = h->port.caps.local != NULL, over = 0;
    w->party.bell = bells ? (uint8_t)(1 + h->next_bell++ % (HF_BELLS - 1)) : 0;
    h->callers++;
    hf__line_up(h, w);
    while (w->state == HF_WAIT_LOCAL) {
        int code = w->cancel ? HF_CANCELED : hf__local_us() >= w->deadline_us ? HF_TIMEOUT : 0;
        if (code) {
            hf__wait_error(w, code, hf_code_text(code));
            over = 1;
            break;
        }
        hf__cond_until(&w->changed, &h->mu, w->deadline_us);
    }
    if (!over && bells) {
        drive_by_bell(h, w);
        over = 1;
    } else if (!over) {
        /* The first look is ours: uncontended, no other thread is needed. */
        do {
            hf__cond_until(&w->changed, &h->mu, w->look_at_us);
            pthread_mutex_unlock(&h->mu);
            over = hf__advance(w);
            pthread_mutex_lock(&h->mu);
        } while (!over && w->state == HF_WAIT_FIRST_LOOK);
        if (!over && (w->code = hf__need_dispatcher(h, &w->err)) != 0) {
            pthread_mutex_unlock(&h->mu);
            hf__withdraw_wait(w); /* UNKNOWN if the store may still have the request */
            pthread_mutex_lock(&h->mu);
            over = 1;
        }
        w->dispatched = !over;
        h->n_dispatched += w->dispatched;
        hf__schedule(w);
        if (!over && hf__subscription_changes(w, 1)) hf__change_subscription(h, w->e);
        if (!over) hf__kick_dispatcher(h);
    }
    if (over) hf__wait_finish(w);
    while (w->state != HF_WAIT_ENDED || w->pins) pthread_cond_wait(&w->changed, &h->mu);
    hf__leave_call(h);
}
