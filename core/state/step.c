/*
 * step.c - see step.h. The rules, in the order in which they are applied:
 *
 * R1  A holder is over when its lease has run out for certain (lo >= expires) or its session is
 *     known to be dead. The next step removes a holder that is over.
 * R2  A free place goes to the first waiter, in the same write that frees it. The grant lasts for
 *     the claim timeout that the waiter asked for. The step removes dead waiters first.
 * R3  A newcomer is granted at once only if the queue is empty and the holders admit it.
 * R4  A grant's token is the rev of the write that makes it; if one write makes several, they get
 *     consecutive tokens, of which the last is the row's rev. A new row begins with the latest
 *     reading of the clock (hi), so that its rev is above those of a row of this key that was lost.
 * R5  Only the named grant is renewed, released, broken or finished; a renewal or a finish needs
 *     one that cannot be over yet even at the latest reading of the clock (hi < expires).
 * R6  The same request asked again changes nothing, with two exceptions. A party that was granted
 *     the key while it waited claims it: its lease becomes what it asked for, and claim_ms 0. And
 *     the party moves to the session of the process that asks now.
 * R7  A released grant whose key stays taken (ENDING) has no holder any more: it only keeps its
 *     place among the holders.
 * R8  On a store that has no clock for leases (timeless) all of this holds without times. A holder
 *     is bound to a session as long as its lease, a waiter to a session as long as its claim
 *     timeout. A claim moves the party from the second to the first.
 */
#include "step.h"

#include "validity.h"

#include <string.h>

/* One step's bookkeeping. Tokens of this write start at `base`. */
struct ctx {
    hf_row *row;
    const struct hf_event *ev;
    uint64_t base;
    uint32_t grants;
    int changed;
};

static int is_dead(const hf_party *p, const struct hf_event *ev)
{
    for (size_t i = 0; p->session && i < ev->n_dead; i++)
        if (ev->dead[i] == p->session) return 1;
    return 0;
}

static enum hf_validity validity(const hf_party *p, const struct hf_event *ev)
{
    return hf__validity(p, ev->now, is_dead(p, ev));
}

/* Returns 1 if this holder's grant has ended for certain, as a contender must see it. */
static int party_over(const hf_party *p, const struct hf_event *ev)
{
    return validity(p, ev) == HF_GRANT_OVER;
}

int64_t hf__find_id(const hf_row *row, const uint8_t id[16])
{
    for (uint32_t i = 0; i < row->n_holders + row->n_queue; i++)
        if (!memcmp(row->party[i].id, id, 16)) return i;
    return -1;
}

int64_t hf__find_token(const hf_row *row, uint64_t token)
{
    for (uint32_t i = 0; token && i < row->n_holders; i++)
        if (row->party[i].token == token) return i;
    return -1;
}

int64_t hf__find_grant(const hf_row *row, uint64_t token)
{
    int64_t at = hf__find_token(row, token);
    return at >= 0 && row->party[at].flags & HF_PARTY_ENDING ? -1 : at;
}

int hf__marked(const hf_row *row, struct hf_time now)
{
    return row->done_us && (row->keep_until_us == INT64_MAX || now.lo_us < row->keep_until_us);
}

int hf__prunable(const hf_row *row, struct hf_time now, int64_t idle_us)
{
    return row->rev && !row->n_holders && !row->n_queue && !hf__marked(row, now) &&
           now.lo_us - (int64_t)row->rev >= idle_us;
}

static void remove_party(struct ctx *c, uint32_t i)
{
    hf_row *row = c->row;
    uint32_t n = row->n_holders + row->n_queue;
    if (i < row->n_holders) memcpy(row->last_id, row->party[i].id, sizeof row->last_id);
    for (uint32_t j = i; j + 1 < n; j++) hf_party_copy(&row->party[j], &row->party[j + 1]);
    if (i < row->n_holders)
        row->n_holders--;
    else
        row->n_queue--;
    c->changed = 1;
}

/* Returns 1 if the present holders leave a place for `p`. */
static int admits(const struct ctx *c, const hf_party *p)
{
    const hf_row *row = c->row;
    uint32_t limit = p->limit;
    if (!row->n_holders) return 1;
    if (p->mode == HF_EXCLUSIVE || row->n_holders >= c->ev->holders_cap) return 0;
    for (uint32_t i = 0; i < row->n_holders; i++) {
        if (row->party[i].mode != p->mode) return 0;
        if (row->party[i].limit < limit) limit = row->party[i].limit;
    }
    return p->mode == HF_SHARED || row->n_holders < limit;
}

static int64_t end_of(const struct hf_event *ev, uint32_t lease_ms)
{
    return lease_ms && !ev->timeless ? ev->now.lo_us + (int64_t)lease_ms * 1000 : 0;
}

/* Returns the store's time at which a handover's claim timeout ends. The timeout begins at the
   latest reading of the clock (hi), so that the waiter has all of it even if the releasing client
   knows the clock badly; but it begins at lo + claim_ms at the latest. */
static int64_t claim_end_of(const struct hf_event *ev, uint32_t claim_ms)
{
    int64_t end = end_of(ev, claim_ms), doubt = ev->now.hi_us - ev->now.lo_us;
    int64_t most = (int64_t)claim_ms * 1000;
    return end ? end + (doubt < most ? doubt : most) : 0;
}

/* Takes the process's session out of a detached hold, which outlives its process. On a timeless
   store a detached hold has a session of its own, and keeps it. */
static void untie(const struct ctx *c, hf_party *p)
{
    if (p->flags == HF_PARTY_DETACHED && !c->ev->timeless) p->session = 0;
}

/* Grants to `p`, which the caller has just made the last of the holders, until expires_us of the
   store's clock. */
static void grant(struct ctx *c, hf_party *p, int64_t expires_us, unsigned flags)
{
    p->token = c->base + c->grants++;
    p->since_us = c->ev->now.lo_us;
    p->expires_us = expires_us;
    p->flags = (uint8_t)((p->flags & HF_PARTY_DETACHED) | flags);
    if (!(flags & HF_PARTY_UNCLAIMED)) p->claim_ms = 0;
    untie(c, p);
    c->row->token = p->token;
    c->changed = 1;
}

/* Removes holders that are over and dead waiters, and grants free places to waiters. R1, R2. */
static void settle(struct ctx *c)
{
    hf_row *row = c->row;
    for (uint32_t i = row->n_holders; i-- > 0;)
        if (party_over(&row->party[i], c->ev)) remove_party(c, i);
    for (uint32_t i = row->n_holders + row->n_queue; c->ev->n_dead && i-- > row->n_holders;)
        if (is_dead(&row->party[i], c->ev)) remove_party(c, i);
    while (row->n_queue && admits(c, &row->party[row->n_holders])) {
        hf_party *head = &row->party[row->n_holders++];
        row->n_queue--;
        grant(c, head, claim_end_of(c->ev, head->claim_ms), HF_PARTY_UNCLAIMED);
    }
}

static void mark_done(struct ctx *c, int64_t until_us, const hf_party *by)
{
    hf_row *row = c->row;
    /* A clock that reads 0 must not look like "no marker". */
    row->done_us = c->ev->now.lo_us > 0 ? c->ev->now.lo_us : 1;
    row->keep_until_us = until_us;
    row->done_by_len = by->owner_len;
    memcpy(row->done_by, by->owner, (size_t)by->owner_len + 1);
    row->result_len = 0;
    row->result[0] = 0;
    c->changed = 1;
}

static int64_t keep_until(const struct hf_event *ev)
{
    if (ev->keep_us >= INT64_MAX - ev->now.hi_us) return INT64_MAX;
    return ev->now.hi_us + ev->keep_us;
}

static struct hf_outcome granted(struct ctx *c, hf_party *p)
{
    if (c->ev->once && c->ev->mark) mark_done(c, keep_until(c->ev), p);
    return (struct hf_outcome){HF_ANS_GRANTED, 0, 0, p->token};
}

/* Answers a request that is in the row already, at i. R6. */
static struct hf_outcome again(struct ctx *c, uint32_t i)
{
    hf_party *p = &c->row->party[i];
    const hf_party *asks = c->ev->party;
    int waits = i >= c->row->n_holders;
    uint64_t session = waits && c->ev->session ? c->ev->session : asks->session;
    /* The request now comes from another process. From here on the store wakes that process, and
       the party ends if that process dies. */
    if (p->session && session && p->session != session) {
        p->session = session;
        p->wakeup = asks->wakeup;
        c->changed = 1;
    }
    if (waits) return (struct hf_outcome){HF_ANS_QUEUED, 0, i - c->row->n_holders, 0};
    if (!(p->flags & HF_PARTY_UNCLAIMED))
        return (struct hf_outcome){HF_ANS_ALREADY, 0, 0, p->token};
    p->flags &= HF_PARTY_DETACHED;
    p->claim_ms = 0;
    untie(c, p);
    p->expires_us = end_of(c->ev, p->lease_ms);
    c->changed = 1;
    return granted(c, p);
}

/* Returns 1 if the request is a holder that has claimed and isn't over. Its client then runs the
   once-event, so a marker doesn't make it DONE. `at`: the party's index; -1: not in the row. */
static int runs(const struct ctx *c, int64_t at)
{
    const hf_party *p = at < 0 ? NULL : &c->row->party[at];
    return p && (uint32_t)at < c->row->n_holders && !(p->flags & HF_PARTY_UNCLAIMED) &&
           !party_over(p, c->ev);
}

/* The events TRY and ENQUEUE. R3, R6. */
static struct hf_outcome ask(struct ctx *c)
{
    const hf_party *p = c->ev->party;
    hf_row *row = c->row;
    int64_t at = c->ev->once ? hf__find_id(row, p->id) : -1;
    if (c->ev->once && !runs(c, at) && hf__marked(row, c->ev->now)) {
        if (at >= 0) remove_party(c, (uint32_t)at);
        settle(c);
        return (struct hf_outcome){HF_ANS_DONE, 0, 0, 0};
    }
    settle(c);
    at = hf__find_id(row, p->id);
    /* If a wait of the same request is in the queue, a try leaves its place alone. */
    int stands = at >= (int64_t)row->n_holders;
    if (at >= 0 && !(stands && c->ev->kind == HF_EV_TRY)) return again(c, (uint32_t)at);
    if (!row->n_queue && admits(c, p)) {
        hf_party *to = &row->party[row->n_holders++];
        hf_party_copy(to, p);
        grant(c, to, end_of(c->ev, p->lease_ms), 0);
        return granted(c, to);
    }
    if (c->ev->kind == HF_EV_TRY) return (struct hf_outcome){HF_ANS_BUSY, 0, 0, 0};
    if (row->n_queue >= c->ev->queue_cap) return (struct hf_outcome){HF_ANS_NO_ROOM, 0, 0, 0};
    hf_party *to = &row->party[row->n_holders + row->n_queue];
    hf_party_copy(to, p);
    to->token = 0;
    to->since_us = c->ev->now.lo_us;
    to->expires_us = 0;
    to->flags &= HF_PARTY_DETACHED;
    if (c->ev->session) to->session = c->ev->session;
    c->changed = 1;
    return (struct hf_outcome){HF_ANS_QUEUED, 0, row->n_queue++, 0};
}

static struct hf_outcome withdraw(struct ctx *c)
{
    hf_row *row = c->row;
    int64_t at = hf__find_id(row, c->ev->id);
    int holds = at >= 0 && at < (int64_t)row->n_holders;
    /* A claimed hold stays: it belongs to another caller with the same request id. Unless
       maybe_done: then the hold may come from a write of this caller whose reply was lost. */
    if (at >= 0 && (!holds || row->party[at].flags & HF_PARTY_UNCLAIMED || c->ev->maybe_done))
        remove_party(c, (uint32_t)at);
    settle(c);
    if (c->ev->maybe_done) {
        /* A late `acquire` of this request must not be granted: last_id makes the store refuse it.
         */
        memcpy(row->last_id, c->ev->id, sizeof row->last_id);
        c->changed = 1;
    }
    return (struct hf_outcome){HF_ANS_OK, 0, 0, 0};
}

/* The events RELEASE, BREAK and FINISH. R5, R7. */
static struct hf_outcome end_grant(struct ctx *c)
{
    const struct hf_event *ev = c->ev;
    int64_t at = hf__find_token(c->row, ev->token);
    hf_party *p = at < 0 ? NULL : &c->row->party[at];
    enum hf_validity is = p ? validity(p, ev) : HF_GRANT_OVER;
    if (is == HF_GRANT_OVER || (is == HF_GRANT_ENDING && ev->kind != HF_EV_BREAK) ||
        (is == HF_GRANT_UNKNOWN && ev->kind == HF_EV_FINISH)) {
        settle(c);
        return (struct hf_outcome){HF_ANS_GONE, 0, 0, 0};
    }
    if (ev->kind == HF_EV_RELEASE &&
        (ev->timeless ? ev->session != 0 : ev->until_us > ev->now.lo_us)) {
        p->expires_us = ev->timeless ? 0 : ev->until_us;
        p->session = ev->session; /* the hold outlives its process, so it has no session of that
                                     process */
        p->flags = HF_PARTY_ENDING;
        p->claim_ms = 0;
        /* An id that no request has, so that the request may be made again. */
        memset(p->id, 0xff, sizeof p->id);
        memcpy(p->id, &p->token, sizeof p->token);
        c->changed = 1;
        return (struct hf_outcome){HF_ANS_OK, 0, 0, 0};
    }
    if (ev->kind == HF_EV_FINISH) {
        mark_done(c, keep_until(ev), p);
        memcpy(c->row->result, ev->result, ev->result_len);
        c->row->result[ev->result_len] = 0;
        c->row->result_len = (uint16_t)ev->result_len;
    }
    remove_party(c, (uint32_t)at);
    settle(c);
    return (struct hf_outcome){HF_ANS_OK, 0, 0, 0};
}

static struct hf_outcome renew(struct ctx *c)
{
    const struct hf_event *ev = c->ev;
    int64_t at = hf__find_token(c->row, ev->token);
    hf_party *p = at < 0 ? NULL : &c->row->party[at];
    if (!p || validity(p, ev) != HF_GRANT_HELD) return (struct hf_outcome){HF_ANS_GONE, 0, 0, 0};
    int64_t end = end_of(ev, ev->lease_ms);
    int sooner = end && (!p->expires_us || end < p->expires_us);
    /* With neither a session nor a lease the grant would never end: then its end stays. */
    if ((ev->lease_ms || p->session) && !(ev->adopted && sooner)) p->expires_us = end;
    if (ev->session) p->session = ev->session;
    p->flags &= HF_PARTY_DETACHED;
    p->claim_ms = 0;
    c->changed = 1;
    return (struct hf_outcome){HF_ANS_OK, 0, 0, p->token};
}

/* Removes the marker, even while the key is held: the run that holds it may set the marker again.
 */
static struct hf_outcome forget_mark(struct ctx *c)
{
    hf_row *row = c->row;
    int marked = hf__marked(row, c->ev->now);
    if (marked) {
        row->done_us = row->keep_until_us = 0;
        row->done_by_len = 0;
        row->result_len = 0;
        row->done_by[0] = row->result[0] = 0;
        c->changed = 1;
    }
    settle(c);
    return (struct hf_outcome){marked ? HF_ANS_OK : HF_ANS_GONE, 0, 0, 0};
}

/* Returns the least rev that this write may have. A new row may follow one of the same key that was
   lost a moment ago. The tokens of that one came from the same clock, so none of them is above the
   latest reading (hi). */
static int64_t rev_floor(const hf_row *row, const struct hf_event *ev)
{
    int begins = !row->rev && !ev->timeless && ev->now.hi_us < HF_CLOCK_UNKNOWN;
    return begins ? ev->now.hi_us : ev->now.lo_us;
}

struct hf_outcome hf__step(hf_row *row, const struct hf_event *ev)
{
    struct ctx c = {row, ev, hf_rev_next(row->rev, rev_floor(row, ev)), 0, 0};
    struct hf_outcome out = {HF_ANS_OK, 0, 0, 0};
    switch (ev->kind) {
    case HF_EV_TRY:
    case HF_EV_ENQUEUE: out = ask(&c); break;
    case HF_EV_WITHDRAW: out = withdraw(&c); break;
    case HF_EV_RENEW: out = renew(&c); break;
    case HF_EV_PROMOTE: settle(&c); break;
    case HF_EV_FORGET: out = forget_mark(&c); break;
    case HF_EV_RELEASE:
    case HF_EV_BREAK:
    case HF_EV_FINISH: out = end_grant(&c); break;
    }
    out.changed = c.changed;
    if (c.changed) row->rev = c.base + (c.grants ? c.grants - 1 : 0);
    return out;
}
