/*
 * step.c - see step.h. The rules, in the order in which they are applied:
 *
 * R1  A holder is over when its lease has run out for certain (lo >= expires) or its session is
 *     known to be dead. What is over is removed by the next step.
 * R2  A free place goes to the head of the queue, in the same write that frees it, with the short
 *     claim lease that the waiter asked for. Dead waiters are dropped on the way.
 * R3  A newcomer is granted at once only if the queue is empty and the holders admit it.
 * R4  A grant's token is the rev of the write that makes it; if one write makes several, they get
 *     consecutive numbers, of which the last is the row's rev. A row begins with the latest reading
 *     of the clock, so that it stands above one that was lost.
 * R5  Only the named grant is renewed, released, broken or finished; a renewal or a finish needs
 *     one that cannot be over yet even at the latest reading of the clock (hi < expires).
 * R6  The same request asked again changes nothing, except that a waiter which was granted the key
 *     claims it (its lease becomes what it asked for), and that it goes over to the session that
 *     asks. claim_ms means something until then only: of a holder that knows that it holds it is 0.
 * R7  A grant that is kept taken after its release (ENDING) has no holder: it only takes up its
 *     place.
 * R8  Where the store has no clock for leases (timeless) all of this holds without times: a holder
 *     is bound to a session of the length of its lease, a waiter to another one, as short as a
 *     claim may take. A claim goes over from this to that.
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

/* Returns the end of a handover's claim timeout, which counts from the latest reading of the clock
   (hi): the waiter loses nothing of it if the releasing client knows the clock badly. It is at most
   twice as long as the claim timeout. */
static int64_t claim_end_of(const struct hf_event *ev, uint32_t claim_ms)
{
    int64_t end = end_of(ev, claim_ms), doubt = ev->now.hi_us - ev->now.lo_us;
    int64_t most = (int64_t)claim_ms * 1000;
    return end ? end + (doubt < most ? doubt : most) : 0;
}

/* Takes the process's session out of a detached hold, which outlives its process. Without a clock
   such a hold has a session of its own. */
static void untie(const struct ctx *c, hf_party *p)
{
    if (p->flags == HF_PARTY_DETACHED && !c->ev->timeless) p->session = 0;
}

/* Makes the party at the end of the holders (just admitted) a holder until expires_us of the
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

/* Removes what has ended, and grants free places to waiters. R1, R2. */
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
    /* The request comes from another process now. From here on that process is the one to wake, and
       its life counts. */
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

/* Returns 1 if the request holds, and its client knows that. Then the client also knows whether the
   event was done when it began. */
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
    /* A try leaves the place in the queue to the wait that stands there for the request. */
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
    /* A hold that was claimed stays: it belongs to another caller with the same request id, or this
       caller doesn't know that it holds (maybe_done). */
    if (at >= 0 && (!holds || row->party[at].flags & HF_PARTY_UNCLAIMED || c->ev->maybe_done))
        remove_party(c, (uint32_t)at);
    settle(c);
    if (c->ev->maybe_done) {
        /* an acquire may still be on its way */
        memcpy(row->last_id, c->ev->id, sizeof row->last_id);
        c->changed = 1;
    }
    return (struct hf_outcome){HF_ANS_OK, 0, 0, 0};
}

/* Ends a grant by its token. R5. */
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
    /* Without a session and without a lease it would never end. */
    if ((ev->lease_ms || p->session) && !(ev->adopted && sooner)) p->expires_us = end;
    if (ev->session) p->session = ev->session;
    p->flags &= HF_PARTY_DETACHED;
    p->claim_ms = 0;
    c->changed = 1;
    return (struct hf_outcome){HF_ANS_OK, 0, 0, p->token};
}

/* Removes the marker, whether or not the key is held: a run that goes on may mark its event
   anew. */
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

/* Returns the least rev of this write. A row that begins may be one that was lost a moment ago. Its
   tokens came from the same clock, so none of them is above the latest reading. */
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
