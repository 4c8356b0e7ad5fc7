/*
 * wait_advance.c - one look of a wait at the store: what is asked, and what the answer means. See
 * wait_advance.h.
 */
#include "wait_advance.h"

#include "accept.h"
#include "cas_loop.h"
#include "claim_length.h"
#include "deadline_list.h"
#include "handle.h"
#include "kept_error.h"
#include "os.h"
#include "session.h"
#include "wait_request.h"
#include "wait_schedule.h"
#include "wait_state.h"
#include "withdraw.h"

#include <errno.h>
#include <string.h>

/* How long a wait without a limit goes on while the store doesn't answer. */
static const int64_t AWAY_CAP_US = 15000000;
/* A wait that finds the server full looks again after so many polls. */
enum { BUSY_POLLS = 4 };

/* ---- what ends a wait ---- */

/* Sets the result of a wait that has given up. If the store wasn't answering when the limit passed,
   the result is the store's error, not TIMEOUT: no holder was in the way, as far as is known. */
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

/* Ends the wait without a grant. Returns 1. */
static int give_up(struct hf_wait *w, int code)
{
    say_given_up(w, code);
    if (w->maybe_in_row) hf__withdraw_wait(w);
    return 1;
}

/* Ends a wait for an event that is marked as done in `row`. Returns 1. */
static int event_done(struct hf_wait *w, const hf_row *row)
{
    hf_once *o = w->once;
    hf *h = w->h;
    /* The caller won't run the event. So the marker has to be durable first, which the client that
       wrote it may not have awaited yet. */
    w->code = hf__port_sync(&h->port, &w->e->key, &w->err);
    if (w->code) return 1;
    o->lock = NULL;
    o->done_us = row->done_us;
    memcpy(o->owner, row->done_by, (size_t)row->done_by_len + 1);
    memcpy(o->result, row->result, (size_t)row->result_len + 1);
    w->code = HF_OK;
    return 1;
}

/* Notes that the store has answered. */
static void answered(struct hf_wait *w)
{
    w->away_since_us = 0;
    hf__error_clear(&w->why);
}

/* Plans another look after an error of the store, or ends the wait with it: if the store refused,
   if the wait's limit has passed, or if a wait without a limit had no answer for AWAY_CAP_US. A
   server that says that it is full has answered; it is asked more rarely, because the connections
   of many waits would keep it from its work.
   Returns 1 if the wait is over. */
static int store_failed(struct hf_wait *w, int rc, const hf_error *err)
{
    int64_t now = hf__local_us();
    if (rc == HF_UNKNOWN) w->maybe_in_row = w->lost_reply = 1;
    int busy = rc == HF_UNAVAILABLE && err->sys == EBUSY;
    if (!w->away_since_us || busy) w->away_since_us = now;
    hf__error_keep(&w->why, err);
    /* LOST: a session died during the request, and again during its repetition. */
    int away = rc == HF_UNAVAILABLE || rc == HF_UNKNOWN || rc == HF_LOST;
    if (away && w->deadline_us > now &&
        (w->deadline_us != INT64_MAX || now - w->away_since_us < AWAY_CAP_US)) {
        hf__look_at(w, now + hf__poll_us(w->h) * (busy ? BUSY_POLLS : 1));
        return 0;
    }
    w->code = rc;
    w->err = *err;
    if (rc != HF_UNKNOWN && w->maybe_in_row) hf__withdraw_wait(w);
    if (rc == HF_UNKNOWN) hf__defer_withdrawal(w);
    return 1;
}

static struct hf_event event_of(struct hf_wait *w)
{
    hf *h = w->h;
    /* Until the wait is queued, its claim timeout follows the store's round trip. Not on stores
       with sessions: there the claim timeout is the length of the session that all waits share. */
    if (!h->port.caps.local && !h->port.caps.sessions && w->state != HF_WAIT_QUEUED)
        w->party.claim_ms = hf__claim_ms(h->party.claim_ms, hf__port_round_trip_us(&h->port));
    return (struct hf_event){.kind = w->flags & HF_UNQUEUED ? HF_EV_TRY : HF_EV_ENQUEUE,
                             .party = &w->party,
                             .once = w->once != NULL,
                             .mark = w->flags & HF_AT_MOST_ONCE ? 1 : 0,
                             .keep_us = w->keep_us};
}

/* ---- the last look ---- */

/* Ends a wait whose limit has passed. If the key was granted to it meanwhile, or is free, the wait
   takes it: the dispatcher may have been late, with other waits to look for. Otherwise the request
   is withdrawn. The store isn't asked for the key if it didn't answer lately, or if it may block
   and the wait is outside its queue. Returns 1. */
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
    int rc = hf__get_or_claim(&h->port, &w->e->key, &ev, row, &out, &err), answered = rc == 1;
    int known = !rc;
    if (rc >= 0)
        hf__error_clear(&w->why); /* the store answers: an earlier error isn't why the wait took
                                     so long */
    if (known && hf__accept_handover(w, row)) return 1;
    /* Behind other waiters (index above the first waiter's) a step would change nothing. */
    if (known && hf__find_id(row, w->party.id) < (int64_t)row->n_holders + 1) {
        rc = hf__wait_step(w, &ev, row, 1, now_us, &out, &err);
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
    if (known || hf__local_us() < until_us)
        hf__withdraw_until(w, known ? row : NULL, until_us);
    else
        hf__withdrawn(w, HF_UNAVAILABLE, NULL); /* not asked again: the store doesn't answer */
    return 1;
}

/* ---- any other look ---- */

/* A look under way: what is asked, and what is known so far. */
struct look {
    struct hf_wait *w;
    hf_row *row;
    struct hf_event ev;
    struct hf_outcome out;
    hf_error err;
    int64_t until_us; /* local: until when requests of this look are repeated */
    int try_only;     /* 1: wait_ms is 0: the wait is over after this look */
    int known;        /* 1: `row` is the row as far as is known, and may be stepped */
    int answered;     /* 1: `out` is the answer: nothing is left to ask */
};

/* A look has four parts, the functions below. Each returns GOES_ON if the next part follows, else
   what the look returns (1: the wait is over; 0: it isn't). */
enum { GOES_ON = -1 };

/* Finds the row that the handle knows, or calls the driver's `acquire`. */
static int ask_first(struct look *l)
{
    struct hf_wait *w = l->w;
    int rc = hf__wait_ask_first(w, &l->ev, l->row, &l->known, l->until_us, &l->out, &l->err);
    if (rc < 0) return store_failed(w, rc, &l->err);
    l->answered = !rc && l->out.answer == HF_ANS_QUEUED;
    if (!rc && !l->answered && hf__accept_grant(w, l->row)) return 1;
    return GOES_ON;
}

/* Finds out what has become of the request or the key: by a notification, else by a read. A read
   comes before a write here because a waiter seldom has to write, and because a read fails at once
   if the store can't be reached, as an attempt should. */
static int see(struct look *l)
{
    struct hf_wait *w = l->w;
    enum hf_notified notified = HF_NOTIFIED_NOTHING;
    int rc = 0;
    if (w->state == HF_WAIT_QUEUED) notified = hf__act_on_notification(w, l->row);
    if (notified == HF_NOTIFIED_ENDED) return 1;
    if (notified == HF_NOTIFIED_OLD) return 0;
    if (notified == HF_NOTIFIED_NOTHING)
        rc = hf__get_or_claim(&w->h->port, &w->e->key, &l->ev, l->row, &l->out, &l->err);
    l->answered = rc == 1;
    if (!rc) rc = hf__withdraw_orphans(w, l->row, l->until_us, &l->err);
    if (rc < 0) return store_failed(w, rc, &l->err);
    answered(w);
    if (!l->answered && hf__leave_to_others(w, l->row)) return 0;
    if (!l->answered && hf__accept_handover(w, l->row)) return 1;
    l->known = 1;
    return GOES_ON;
}

/* Asks for the key by a step. */
static int request(struct look *l)
{
    struct hf_wait *w = l->w;
    int64_t sent_us = hf__local_us();
    int rc = hf__wait_request(w, &l->ev, l->row, l->known, l->until_us, &l->out, &l->err);
    if (rc == HF_CONFLICT) {
        hf__plan_after_conflict(w, l->row, sent_us);
        return l->try_only ? give_up(w, HF_BUSY) : 0;
    }
    return rc ? store_failed(w, rc, &l->err) : GOES_ON;
}

/* Acts on the answer: the last part of a look. */
static int act_on_answer(struct look *l)
{
    struct hf_wait *w = l->w;
    answered(w);
    switch (l->out.answer) {
    case HF_ANS_GRANTED:
    case HF_ANS_ALREADY:
        if (w->state == HF_WAIT_QUEUED) hf__watch_claim(w->h, w->e, l->row);
        w->maybe_in_row = 1;
        if (hf__accept_grant(w, l->row)) return 1;
        hf__look_at(w, 0);
        return l->try_only ? give_up(w, HF_TIMEOUT) : 0; /* the reply came too late */
    case HF_ANS_QUEUED:
        w->maybe_in_row = 1;
        hf__plan_next_look(w, l->row, l->out.place);
        return 0;
    case HF_ANS_DONE: return event_done(w, l->row);
    default: break;
    }
    if (l->try_only) return give_up(w, HF_BUSY);
    hf__plan_outside(w, l->out.answer);
    hf__wait_moves_locking(w, HF_WAIT_OUTSIDE);
    return 0;
}

static int look(struct hf_wait *w, hf_row *row)
{
    struct look l = {.w = w, .row = row, .ev = event_of(w)};
    int64_t now_us = hf__local_us();
    int first = w->state == HF_WAIT_FIRST_LOOK, then = GOES_ON;
    l.try_only = w->deadline_us <= w->started_us;
    int late = !l.try_only && now_us >= w->deadline_us;
    if (__atomic_load_n(&w->cancel, __ATOMIC_RELAXED)) return give_up(w, HF_CANCELED);
    if (late && !first) return last_look(w, row, now_us);
    if (l.try_only || late) l.ev.kind = HF_EV_TRY; /* late: the first look is made, but no wait */
    l.until_us = hf__min64(l.try_only ? INT64_MAX : w->deadline_us,
                           now_us + w->h->port.io_timeout_ms * 1000);
    if (first && hf__yields_first(w)) return 0; /* the first look is put off */
    if (first) hf__wait_moves_locking(w, HF_WAIT_OUTSIDE);
    l.ev.queue_cap = hf__room_for(w);
    if (first || w->overtaken) then = ask_first(&l);
    int sees = w->state == HF_WAIT_QUEUED || l.try_only;
    if (then == GOES_ON && !l.known && !l.answered && sees) then = see(&l);
    if (then == GOES_ON && !l.answered) then = request(&l);
    return then == GOES_ON ? act_on_answer(&l) : then;
}

int hf__wait_advance(struct hf_wait *w)
{
    hf_row row;
    hf_row_init(&row);
    int over = look(w, &row);
    hf_row_clear(&row);
    return over;
}
