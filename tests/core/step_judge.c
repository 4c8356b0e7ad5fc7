/*
 * step_judge.c - see step_judge.h. One function per invariant; the first one that is violated is
 * reported.
 */
#include "step_judge.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct trial {
    const hf_row *was, *is;
    const struct hf_event *ev;
    const struct hf_outcome *out;
    char why[300];
};

#define WANT(cond, ...)                            \
    do {                                           \
        if (!(cond)) return wrong(t, __VA_ARGS__); \
    } while (0)

__attribute__((format(printf, 2, 3))) static int wrong(struct trial *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(t->why, sizeof t->why, format, args);
    va_end(args);
    return 1;
}

/* ---- words of the contract ---- */

static int asks(const struct hf_event *ev)
{
    return ev->kind == HF_EV_TRY || ev->kind == HF_EV_ENQUEUE;
}

static int ends(const struct hf_event *ev)
{
    return ev->kind == HF_EV_RELEASE || ev->kind == HF_EV_BREAK || ev->kind == HF_EV_FINISH;
}

static int dead(const hf_party *p, const struct hf_event *ev)
{
    for (size_t i = 0; i < ev->n_dead; i++)
        if (p->session && ev->dead[i] == p->session) return 1;
    return 0;
}

/* Over for certain, as a contender must see it. */
static int over(const hf_party *p, const struct hf_event *ev)
{
    return (p->expires_us && ev->now.lo_us >= p->expires_us) || dead(p, ev);
}

/* Perhaps over, as its holder must see it. */
static int doubtful(const hf_party *p, const struct hf_event *ev)
{
    return over(p, ev) || (p->expires_us && ev->now.hi_us >= p->expires_us);
}

static int64_t lease_end(const struct hf_event *ev, uint32_t ms)
{
    return ms && !ev->timeless ? ev->now.lo_us + (int64_t)ms * 1000 : 0;
}
/* Returns the end of a handover: the waiter has its claim timeout, whatever the clock is now; at
   most twice as long. */
static int64_t claim_end(const struct hf_event *ev, uint32_t ms)
{
    int64_t sure = lease_end(ev, ms), latest = ev->now.hi_us + (int64_t)ms * 1000;
    if (!sure) return 0;
    return latest < sure + (int64_t)ms * 1000 ? latest : sure + (int64_t)ms * 1000;
}

static const hf_party *find(const hf_row *row, const uint8_t *id, uint32_t from, uint32_t n)
{
    for (uint32_t i = from; i < from + n; i++)
        if (!memcmp(row->party[i].id, id, 16)) return &row->party[i];
    return NULL;
}

static const hf_party *holder(const hf_row *row, const uint8_t *id)
{
    return find(row, id, 0, row->n_holders);
}

static const hf_party *waiter(const hf_row *row, const uint8_t *id)
{
    return find(row, id, row->n_holders, row->n_queue);
}

static const hf_party *granted(const hf_row *row, uint64_t token)
{
    for (uint32_t i = 0; token && i < row->n_holders; i++)
        if (row->party[i].token == token) return &row->party[i];
    return NULL;
}

static int unclaimed(const hf_party *p) { return p->flags & HF_PARTY_UNCLAIMED; }

static int marked(const hf_row *row, const struct hf_event *ev)
{
    return row->done_us && (row->keep_until_us == INT64_MAX || ev->now.lo_us < row->keep_until_us);
}

static int64_t kept_until(const struct hf_event *ev)
{
    return ev->keep_us >= INT64_MAX - ev->now.hi_us ? INT64_MAX : ev->now.hi_us + ev->keep_us;
}

/* A release that keeps the key taken for a while ends nothing yet. */
static int keeps(const struct hf_event *ev)
{
    return ev->kind == HF_EV_RELEASE &&
           (ev->timeless ? ev->session != 0 : ev->until_us > ev->now.lo_us);
}

int judge_together(const hf_party *a, const hf_party *b)
{
    return a->mode == b->mode && a->mode != HF_EXCLUSIVE;
}

static int fits(const hf_row *row, const hf_party *p, uint32_t cap)
{
    if (!row->n_holders) return 1;
    if (row->n_holders >= cap) return 0;
    for (uint32_t i = 0; i < row->n_holders; i++) {
        const hf_party *h = &row->party[i];
        if (!judge_together(h, p)) return 0;
        if (p->mode == HF_LIMITED && (row->n_holders >= h->limit || row->n_holders >= p->limit))
            return 0;
    }
    return 1;
}

/* ---- the invariants ---- */

static int check_total(struct trial *t)
{
    const hf_row *is = t->is;
    const char *flaw = "";
    WANT(!hf_row_check(is, &flaw), "TOTAL: %s", flaw);
    for (uint32_t i = 0; i < is->n_holders + is->n_queue; i++)
        for (uint32_t j = 0; j < i; j++)
            WANT(memcmp(is->party[i].id, is->party[j].id, 16), "TOTAL: one id twice");
    WANT(is->n_queue <= t->ev->queue_cap || is->n_queue <= t->was->n_queue,
         "TOTAL: queue too long");
    for (uint32_t i = 0; t->ev->timeless && i < is->n_holders + is->n_queue; i++)
        WANT(is->party[i].session && !is->party[i].expires_us, "TIMELESS: ends by time");
    return 0;
}

static int check_change(struct trial *t)
{
    if (!t->out->changed) {
        WANT(hf_row_equal(t->was, t->is), "CHANGED: the row differs but it isn't said");
        return 0;
    }
    WANT(t->is->rev > t->was->rev, "REV: %llu after %llu", (unsigned long long)t->is->rev,
         (unsigned long long)t->was->rev);
    WANT(t->ev->now.lo_us <= 0 || t->is->rev >= (uint64_t)t->ev->now.lo_us,
         "REV: below the store's clock");
    WANT(t->was->rev || t->ev->timeless || t->is->rev >= (uint64_t)t->ev->now.hi_us,
         "REV: a row begins below what a lost one may have had");
    return 0;
}

/* A grant is known by its token. */
static int check_tokens(struct trial *t)
{
    const hf_row *was = t->was, *is = t->is;
    uint64_t last = 0, grants = 0;
    for (uint32_t i = 0; i < is->n_holders; i++) {
        const hf_party *h = &is->party[i];
        if (granted(was, h->token)) continue;
        WANT(h->token > was->rev && h->token <= is->rev && h->token > was->token,
             "I-TOKEN: token %llu, rev %llu to %llu", (unsigned long long)h->token,
             (unsigned long long)was->rev, (unsigned long long)is->rev);
        WANT(!grants++ || h->token == last + 1, "I-TOKEN: tokens of a write aren't consecutive");
        last = h->token;
    }
    if (grants)
        WANT(last == is->rev && is->token == last, "I-TOKEN: the last grant isn't the row's rev");
    else
        WANT(is->token == was->token, "I-TOKEN: changed without a grant");
    return 0;
}

static int check_one(struct trial *t)
{
    const hf_row *is = t->is;
    for (uint32_t i = 0; i < is->n_holders; i++) {
        const hf_party *a = &is->party[i];
        for (uint32_t j = 0; j < i; j++)
            WANT(judge_together(a, &is->party[j]), "I-ONE: two hold that don't admit each other");
        WANT(a->mode != HF_LIMITED || is->n_holders <= a->limit, "I-ONE: more hold than the limit");
    }
    WANT(is->n_holders <= t->ev->holders_cap || is->n_holders <= t->was->n_holders,
         "I-ONE: more hold than the store can");
    return 0;
}

/* May this holder be taken out of the row by this event? */
static int may_go(const struct trial *t, const hf_party *h)
{
    const struct hf_event *ev = t->ev;
    if (ev->kind != HF_EV_RENEW && over(h, ev)) return 1;
    if (ends(ev) && t->out->answer == HF_ANS_OK && h->token == ev->token) return 1;
    if (ev->kind == HF_EV_WITHDRAW && !memcmp(ev->id, h->id, 16))
        return unclaimed(h) || ev->maybe_done;
    return asks(ev) && t->out->answer == HF_ANS_DONE && !memcmp(ev->party->id, h->id, 16);
}

/* Checks that nothing of a grant changes but by its own event. */
static int check_owner(struct trial *t)
{
    const struct hf_event *ev = t->ev;
    for (uint32_t i = 0; i < t->was->n_holders; i++) {
        const hf_party *h = &t->was->party[i], *now = granted(t->is, h->token);
        int named = h->token == ev->token && t->out->answer == HF_ANS_OK;
        int asked = asks(ev) && !memcmp(ev->party->id, h->id, 16);
        int claims = asked && unclaimed(h), renewed = named && ev->kind == HF_EV_RENEW;
        if (!now) {
            WANT(may_go(t, h), "I-OWNER: the grant %llu was ended by another's event",
                 (unsigned long long)h->token);
            continue;
        }
        int kept = named && keeps(ev);
        WANT(claims || renewed || kept ||
                 (now->expires_us == h->expires_us && now->flags == h->flags),
             "I-OWNER: the grant %llu was changed by another's event",
             (unsigned long long)h->token);
        WANT(asked || kept || now->session == (renewed && ev->session ? ev->session : h->session),
             "I-OWNER: the grant %llu changed its session", (unsigned long long)h->token);
        WANT((now->flags & HF_PARTY_DETACHED) == (h->flags & HF_PARTY_DETACHED) || kept,
             "I-OWNER: a detached grant isn't any more");
        WANT(now->since_us == h->since_us && now->lease_ms == h->lease_ms && now->mode == h->mode &&
                 now->limit == h->limit,
             "I-OWNER: the grant %llu is another", (unsigned long long)h->token);
        WANT(kept || !memcmp(now->id, h->id, 16), "I-OWNER: a grant went to another request");
        WANT(now->owner_len == h->owner_len && !memcmp(now->owner, h->owner, h->owner_len),
             "I-OWNER: a grant changed hands");
    }
    return 0;
}

/* The events that name a grant. */
static int check_named(struct trial *t)
{
    const struct hf_event *ev = t->ev;
    const hf_party *h = granted(t->was, ev->token), *now = granted(t->is, ev->token);
    if (!ends(ev) && ev->kind != HF_EV_RENEW) return 0;
    int strict = ev->kind == HF_EV_RENEW || ev->kind == HF_EV_FINISH;
    int valid = h && !(strict ? doubtful(h, ev) : over(h, ev));
    /* A key that stays taken for a while has no holder, but an operator may end it. */
    if (h && h->flags & HF_PARTY_ENDING && ev->kind != HF_EV_BREAK) valid = 0;
    WANT(t->out->answer == (valid ? HF_ANS_OK : HF_ANS_GONE),
         valid ? "I-OWNER: refused to the owner" : "I-OWNER: obeyed for a grant that is over");
    if (!valid) return 0;
    if (ev->kind == HF_EV_RENEW) {
        WANT(now && !unclaimed(now), "I-OWNER: renewed, and gone");
        int64_t end = lease_end(ev, ev->lease_ms);
        if (ev->adopted && end && (!h->expires_us || h->expires_us > end)) end = h->expires_us;
        WANT(now->expires_us == end || (!ev->lease_ms && !h->session),
             "I-BELIEF: a renewal by another time than asked");
    } else if (keeps(ev)) {
        WANT(now && now->expires_us == (ev->timeless ? 0 : ev->until_us) &&
                 now->session == (ev->timeless ? ev->session : 0) && now->flags == HF_PARTY_ENDING,
             "I-OWNER: not kept");
        WANT(!holder(t->is, h->id), "I-OWNER: kept under the request's own id");
    } else {
        WANT(!now, "I-OWNER: ended, and still there");
    }
    return 0;
}

/* Checks claim_ms: it is what the request asked for until its client knows that it holds, and 0
   after that. */
static int check_claim(struct trial *t)
{
    for (uint32_t i = 0; i < t->is->n_holders + t->is->n_queue; i++) {
        const hf_party *p = &t->is->party[i];
        if (i < t->is->n_holders && !unclaimed(p)) {
            WANT(!p->claim_ms, "I-CLAIM: time to claim in, of a grant that is taken up");
            continue;
        }
        /* A grant that was over is gone; its request may have been asked again. */
        int asked = asks(t->ev) && !memcmp(t->ev->party->id, p->id, 16) &&
                    p->claim_ms == t->ev->party->claim_ms;
        for (uint32_t j = 0; j < t->was->n_holders + t->was->n_queue; j++)
            if (!memcmp(t->was->party[j].id, p->id, 16) && p->claim_ms == t->was->party[j].claim_ms)
                asked = 1;
        WANT(asked, "I-CLAIM: another time to claim in");
    }
    return 0;
}

/* Checks that leases count from the earliest reading of the clock, and that no request is granted
   before another grant's end. */
static int check_belief(struct trial *t)
{
    const struct hf_event *ev = t->ev;
    for (uint32_t i = 0; i < t->is->n_holders; i++) {
        const hf_party *h = &t->is->party[i], *before = granted(t->was, h->token);
        int fresh = !before;
        int claimed = asks(ev) && !memcmp(ev->party->id, h->id, 16) && !unclaimed(h) &&
                      (fresh || unclaimed(before));
        if (!fresh && !claimed) continue;
        int64_t end = claimed ? lease_end(ev, h->lease_ms) : claim_end(ev, h->claim_ms);
        WANT(h->expires_us == end, "I-BELIEF: a lease that isn't what was asked");
        if (fresh) WANT(h->since_us == ev->now.lo_us, "I-BELIEF: since another time");
        WANT(claimed || unclaimed(h), "I-BELIEF: believed by a party that wasn't asked");
        WANT(!claimed || !(h->flags & HF_PARTY_DETACHED) || !h->session || ev->timeless,
             "I-BELIEF: a detached hold is bound to a session");
    }
    return 0;
}

/* Checks that waiters that were granted stood before all that still wait, whose order stays. */
static int check_fifo(struct trial *t)
{
    const hf_row *was = t->was, *is = t->is;
    const struct hf_event *ev = t->ev;
    uint32_t at = is->n_holders;
    int left = 0;
    for (uint32_t i = was->n_holders; i < was->n_holders + was->n_queue; i++) {
        const hf_party *w = &was->party[i];
        if (holder(is, w->id)) {
            WANT(!left, "I-FIFO: let in before one that stood ahead of it");
            continue;
        }
        int mine = asks(ev) && !memcmp(ev->party->id, w->id, 16);
        if (waiter(is, w->id) && !(mine && dead(w, ev))) {
            left = 1;
            WANT(!memcmp(is->party[at].id, w->id, 16), "I-FIFO: the order of the queue changed");
            WANT(is->party[at].since_us == w->since_us && is->party[at].mode == w->mode &&
                     is->party[at].flags == w->flags &&
                     (mine || is->party[at].session == w->session),
                 "I-FIFO: a waiter was changed");
            at++;
            continue;
        }
        WANT(dead(w, ev) || (ev->kind == HF_EV_WITHDRAW && !memcmp(ev->id, w->id, 16)) ||
                 (mine && t->out->answer == HF_ANS_DONE),
             "I-FIFO: a live waiter was dropped");
    }
    uint32_t newcomers = is->n_holders + is->n_queue - at;
    WANT(newcomers <= 1, "I-FIFO: waiters out of nowhere");
    if (newcomers)
        WANT(asks(ev) && t->out->answer == HF_ANS_QUEUED &&
                 !memcmp(is->party[at].id, ev->party->id, 16),
             "I-FIFO: a waiter that didn't ask");
    /* A newcomer is granted only if the queue is empty. */
    for (uint32_t i = 0; i < is->n_holders; i++) {
        const uint8_t *id = is->party[i].id;
        if (granted(was, is->party[i].token) || waiter(was, id)) continue;
        WANT(asks(ev) && !memcmp(ev->party->id, id, 16),
             "I-OWNER: granted to a party that didn't ask");
        WANT(!is->n_queue, "I-FIFO: a newcomer barged past the queue");
    }
    return 0;
}

/* After an event that settles the row, holders that are over are out; the next that fit are in. */
static int check_wake(struct trial *t)
{
    const hf_row *is = t->is;
    const struct hf_event *ev = t->ev;
    if (ev->kind == HF_EV_RENEW || (keeps(ev) && t->out->answer == HF_ANS_OK)) return 0;
    for (uint32_t i = 0; i < is->n_holders; i++)
        WANT(!over(&is->party[i], ev) || !granted(t->was, is->party[i].token),
             "I-WAKE: a holder that is over is still in the way");
    for (uint32_t i = is->n_holders; i < is->n_holders + is->n_queue; i++)
        WANT(!dead(&is->party[i], ev) || !waiter(t->was, is->party[i].id),
             "I-WAKE: the dead are still in line");
    WANT(!is->n_queue || !fits(is, &is->party[is->n_holders], ev->holders_cap),
         "I-WAKE: a place is free, and the head of the queue isn't let in");
    return 0;
}

static int check_done(struct trial *t)
{
    const struct hf_event *ev = t->ev;
    const hf_row *was = t->was, *is = t->is;
    const hf_party *by = NULL;
    if (ev->kind == HF_EV_FINISH && t->out->answer == HF_ANS_OK) by = granted(was, ev->token);
    if (asks(ev) && ev->once && ev->mark && t->out->answer == HF_ANS_GRANTED) by = ev->party;
    if (ev->kind == HF_EV_FORGET) {
        WANT((t->out->answer == HF_ANS_OK) == marked(was, ev), "DONE: forgotten, or not?");
        if (marked(was, ev)) {
            WANT(!is->done_us && !is->keep_until_us && !is->result_len && !is->done_by_len,
                 "DONE: not forgotten");
            return 0;
        }
    }
    if (!by) {
        WANT(was->done_us == is->done_us && was->keep_until_us == is->keep_until_us &&
                 was->result_len == is->result_len,
             "DONE: the marker changed by itself");
        return 0;
    }
    size_t len = ev->kind == HF_EV_FINISH ? ev->result_len : 0;
    WANT(is->done_us > 0 && is->keep_until_us == kept_until(ev), "DONE: not marked");
    WANT(is->done_by_len == by->owner_len && !memcmp(is->done_by, by->owner, by->owner_len),
         "DONE: by another");
    WANT(is->result_len == len && (!len || !memcmp(is->result, ev->result, len)),
         "DONE: with another result");
    return 0;
}

static int check_asked(struct trial *t)
{
    const struct hf_event *ev = t->ev;
    const struct hf_outcome *out = t->out;
    const hf_row *is = t->is;
    if (!asks(ev)) return 0;
    const hf_party *before = holder(t->was, ev->party->id), *h = holder(is, ev->party->id);
    const hf_party *w = waiter(is, ev->party->id);
    int held = before && !unclaimed(before) && !over(before, ev);
    if (ev->once && !held)
        WANT((out->answer == HF_ANS_DONE) == marked(t->was, ev),
             marked(t->was, ev) ? "DONE: ignored" : "DONE: answered without a marker");
    switch (out->answer) {
    case HF_ANS_GRANTED:
        WANT(h && !unclaimed(h) && !held, "ANSWER: granted, but not holding");
        WANT(h->token == out->token, "I-OWNER: granted with another's token");
        WANT(!h->session || h->session == ev->party->session, "I-BELIEF: on another's session");
        break;
    case HF_ANS_ALREADY:
        WANT(h && held && h->token == out->token && before->token == h->token,
             "ANSWER: already, but not holding that");
        WANT(!h->session || h->session == ev->party->session, "I-BELIEF: on another's session");
        break;
    case HF_ANS_QUEUED:
        WANT(ev->kind == HF_EV_ENQUEUE && w && !h &&
                 out->place == (uint32_t)(w - is->party) - is->n_holders,
             "ANSWER: queued, but not there");
        WANT(w->session == (ev->timeless ? ev->session : ev->party->session) &&
                 w->wakeup == ev->party->wakeup,
             "I-WAKE: another would be woken");
        break;
    case HF_ANS_BUSY:
    case HF_ANS_NO_ROOM:
        WANT(!h && (!w || ev->kind == HF_EV_TRY), "ANSWER: not now, but in the row");
        WANT(is->n_queue || !fits(is, ev->party, ev->holders_cap), "ANSWER: not now, but free");
        WANT(out->answer == HF_ANS_BUSY ? ev->kind == HF_EV_TRY
                                        : ev->kind == HF_EV_ENQUEUE && is->n_queue >= ev->queue_cap,
             "ANSWER: not now, for the wrong reason");
        break;
    case HF_ANS_DONE: WANT(ev->once && !h && !w, "DONE: but holds or waits"); break;
    default: WANT(0, "ANSWER: %d to a question", out->answer);
    }
    return 0;
}

static int check_withdrawn(struct trial *t)
{
    const struct hf_event *ev = t->ev;
    if (ev->kind != HF_EV_WITHDRAW) return 0;
    const hf_party *h = holder(t->is, ev->id);
    WANT(!waiter(t->is, ev->id), "ANSWER: withdrawn, but it waits");
    WANT(!h || (!unclaimed(h) && !ev->maybe_done), "ANSWER: withdrawn, but it holds");
    WANT(t->out->changed || !ev->maybe_done, "ANSWER: a write under way could still land");
    return 0;
}

const char *judge_step(const hf_row *before, const struct hf_event *ev, const hf_row *after,
                       const struct hf_outcome *out)
{
    static int (*const checks[])(struct trial *) = {
        check_total, check_change, check_tokens,    check_one,  check_owner,
        check_named, check_belief, check_claim,     check_fifo, check_wake,
        check_done,  check_asked,  check_withdrawn,
    };
    static struct trial t;
    t.was = before;
    t.is = after;
    t.ev = ev;
    t.out = out;
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        if (checks[i](&t)) return t.why;
    return NULL;
}
