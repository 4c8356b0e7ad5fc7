/*
 * sim_holdfast.c - a client of Holdfast on a server store: the rules of core/store/cas_loop.c, and
 * of wait_advance.c and accept.c of core/client, around the shipped step.
 *
 * What a client would decide when a reply arrives is decided when the store sends it: the row is
 * the same, and its reading of the store's clock is that of the reply, up to the length of the
 * round trip. A write carries its event instead of the row: it is stepped when it lands, if the rev
 * is the one that it was made for, by the clock that it was made by; so it is the row that was
 * sent.
 */
#include "backoff.h"
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As in core/client: wait_advance.c, wait_schedule.c; in core/store/cas_loop.c; and the drivers'
   queue_cap. */
enum {
    STAGGER_US = 500000,
    NET_US = 30000000,
    SOONEST_US = 2000,
    POLL_MS = 250,
    HEARD_POLL_MS = 5000,
    CALM = 1,
    CLAIM_MS = 1000,
    QUEUE_CAP = 256,
    LONG_ROW = 4, /* more waiters than that are not in a word, which names the holder then */
};

static int64_t about_us(struct sim *s, int64_t ms)
{
    return ms * 750 + (int64_t)sim_random(s, (uint64_t)ms * 500);
}

static uint32_t dice(struct sim *s) { return (uint32_t)sim_random(s, UINT32_MAX); }

static hf_party party_of(const struct sim *s, uint32_t who)
{
    hf_party p;
    memset(&p, 0, offsetof(hf_party, owner));
    p.owner[0] = p.note[0] = 0;
    memcpy(p.id, &who, sizeof who);
    memcpy(p.id + 4, &s->client[who].requests, sizeof s->client[who].requests);
    p.id[15] = 1;
    p.lease_ms = (uint32_t)(s->set.lease_us / 1000);
    p.claim_ms = CLAIM_MS;
    return p;
}

static uint32_t who_is(const hf_party *p)
{
    uint32_t who;
    memcpy(&who, p->id, sizeof who);
    return who;
}

static struct hf_event event_of(struct sim *s, uint32_t who, hf_party *party, struct hf_time now)
{
    struct client *c = &s->client[who];
    *party = party_of(s, who);
    struct hf_event ev = {.kind = (enum hf_event_kind)c->kind, .now = now};
    if (ev.kind == HF_EV_ENQUEUE) ev.party = party;
    ev.token = c->token;
    ev.lease_ms = party->lease_ms;
    ev.holders_cap = QUEUE_CAP;
    ev.queue_cap = hf__backoff_room(QUEUE_CAP, c->full);
    return ev;
}

static int64_t end_of(const hf_row *row)
{
    return row->n_holders && row->party[0].expires_us ? row->party[0].expires_us : INT64_MAX;
}

/* ---- at the store ---- */

static void sees(struct client *c, const hf_row *row)
{
    c->seen_rev = row->rev;
    c->end_us = end_of(row);
}

/* A grant as it stands in the row. */
static void shows_grant(struct client *c, const hf_party *p)
{
    c->token = p->token;
    c->grant_ends_us = p->expires_us;
    c->unclaimed = (p->flags & HF_PARTY_UNCLAIMED) != 0;
}

/* notification.c: is enough left of it for the renewer's claim? */
static int claims_later(const struct client *c, int64_t hi_us)
{
    return c->unclaimed && c->grant_ends_us - hi_us >= CLAIM_MS * 500;
}

/* What the client decides about the row that the reply brings. */
static void looks_at(struct sim *s, uint32_t who, const hf_row *row)
{
    static hf_row scratch;
    struct client *c = &s->client[who];
    hf_party party;
    int64_t trip = 2 * sim_one_way(s, who);
    struct hf_event ev = event_of(s, who, &party, (struct hf_time){s->now_us, s->now_us + trip});
    sees(c, row);
    c->line = row->n_queue > 0;
    c->row_long = 0;
    int64_t at = c->queued && c->kind == HF_EV_ENQUEUE ? hf__find_id(row, party.id) : -1;
    if (at >= 0 && at < (int64_t)row->n_holders) { /* handed over: it holds by having seen it */
        c->out = (struct hf_outcome){HF_ANS_GRANTED, 0, 0, row->party[at].token};
        shows_grant(c, &row->party[at]);
        if (claims_later(c, s->now_us + trip)) return;
        c->out = (struct hf_outcome){HF_ANS_GRANTED, 1, 0, 0};
        return;
    }
    if (at > (int64_t)row->n_holders) { /* nothing_to_do */
        uint32_t place = (uint32_t)at - row->n_holders;
        if (c->end_us == INT64_MAX || s->now_us < c->end_us + (int64_t)place * STAGGER_US) {
            c->out = (struct hf_outcome){HF_ANS_QUEUED, 0, place, 0};
            return;
        }
    }
    if (hf_row_copy(&scratch, row) || hf_row_room(&scratch, row->n_holders + row->n_queue + 1))
        abort();
    c->out = hf__step(&scratch, &ev);
}

/* Notifies clients that listen: the waiter that was granted the key, the first waiter of the new
   holder's end, and all clients that aren't queued. */
static void tell(struct sim *s, uint32_t by, struct place *p, uint64_t token_before)
{
    const hf_row *row = &p->row;
    int handed = row->n_holders && row->party[0].flags & HF_PARTY_UNCLAIMED &&
                 row->party[0].token > token_before;
    if (s->set.plan.how == POLL || (!handed && !row->n_queue)) return;
    uint32_t head = handed ? who_is(&row->party[0]) : by;
    uint32_t next = row->n_queue ? who_is(&row->party[row->n_holders]) : by;
    int is_long = row->n_queue > LONG_ROW;
    for (int32_t i = p->heard; i != NOBODY; i = s->client[i].next_heard) {
        struct client *c = &s->client[i];
        uint32_t who = (uint32_t)i;
        int is_head = handed && who == head;
        if (c->queued && !is_head && who != next) continue;
        s->words++;
        s->busy_us[s->set.world ? c->key % REGIONS : 0]++; /* a microsecond for each */
        if (is_head) {
            shows_grant(c, &row->party[0]);
            c->known_rev = row->rev;
            c->row_long = (uint8_t)is_long;
        } else if (c->queued) {
            c->end_us = end_of(row);
        }
        sim_at(s, s->now_us + sim_one_way(s, who), EV_WORD, who, c->requests);
    }
}

static void lands(struct sim *s, uint32_t who, struct place *p)
{
    struct client *c = &s->client[who];
    hf_party party;
    struct hf_event ev = event_of(s, who, &party, c->now);
    uint64_t token = p->row.token;
    int64_t end = end_of(&p->row);
    uint32_t waited = p->row.n_queue;
    if (hf_row_room(&p->row, p->row.n_holders + p->row.n_queue + 1)) abort();
    c->out = hf__step(&p->row, &ev);
    sees(c, &p->row);
    if (c->kind == HF_EV_ENQUEUE && c->out.answer <= HF_ANS_ALREADY)
        shows_grant(c, &p->row.party[0]);
    if (c->kind == HF_EV_RELEASE && !p->row.n_holders && !p->row.n_queue) {
        c->free_rev = p->row.rev;
        c->free_token = p->row.token;
    }
    if (waited && end_of(&p->row) != end) tell(s, who, p, token);
}

static void stop_hearing(struct sim *s, uint32_t who)
{
    struct client *c = &s->client[who];
    if (!c->listed) return;
    if (c->prev_heard != NOBODY)
        s->client[c->prev_heard].next_heard = c->next_heard;
    else
        s->place[c->key].heard = c->next_heard;
    if (c->next_heard != NOBODY) s->client[c->next_heard].prev_heard = c->prev_heard;
    c->listed = 0;
}

static void begin_to_hear(struct sim *s, uint32_t who, struct place *p)
{
    struct client *c = &s->client[who];
    c->prev_heard = NOBODY;
    c->next_heard = p->heard;
    if (p->heard != NOBODY) s->client[p->heard].prev_heard = (int32_t)who;
    p->heard = (int32_t)who;
    c->listed = 1;
}

void holdfast_serves(struct sim *s, uint32_t who)
{
    struct client *c = &s->client[who];
    struct place *p = &s->place[c->key];
    s->busy_us[s->set.world ? c->key % REGIONS : 0] += (p->row.n_holders + p->row.n_queue) / 10;
    c->conflict = 0;
    switch ((enum op)c->op) {
    case OP_HEAR: begin_to_hear(s, who, p); break;
    case OP_ACQUIRE: {
        hf_party party = party_of(s, who);
        uint32_t before = p->row.n_queue, room = hf__backoff_room(QUEUE_CAP, c->full);
        uint32_t may_queue = s->set.plan.how != POLL ? room : 0;
        if (hf_row_acquire(&p->row, &party, may_queue, s->now_us)) {
            looks_at(s, who, &p->row);
            c->conflict = !c->calm && c->out.changed; /* what it would write isn't written */
            break;
        }
        sees(c, &p->row);
        c->out = (struct hf_outcome){HF_ANS_QUEUED, 0, before, 0};
        if (p->row.n_queue != before) break;
        c->out = (struct hf_outcome){HF_ANS_GRANTED, 0, 0, p->row.token};
        shows_grant(c, &p->row.party[0]);
        break;
    }
    case OP_SWAP:
        if (p->row.rev == c->seen_rev) {
            lands(s, who, p);
            break;
        }
        c->conflict = 1;
        s->conflicts++;
        looks_at(s, who, &p->row);
        break;
    default: looks_at(s, who, &p->row); break;
    }
}

/* ---- at the client ---- */

static void writes(struct sim *s, uint32_t who, enum hf_event_kind kind)
{
    struct client *c = &s->client[who];
    int64_t away = sim_one_way(s, who);
    c->now = (struct hf_time){s->now_us - away, s->now_us + away};
    sim_sends(s, who, OP_SWAP, kind);
}

void holdfast_wants(struct sim *s, uint32_t who)
{
    struct client *c = &s->client[who];
    c->queued = c->heard = c->woken = c->refused = c->full = 0;
    c->calm = CALM;
    c->token = 0;
    c->gen++;
    if (c->free_rev) {
        c->seen_rev = c->free_rev;
        c->free_rev = 0;
        writes(s, who, HF_EV_ENQUEUE);
    } else {
        sim_sends(s, who, OP_ACQUIRE, HF_EV_ENQUEUE);
    }
}

void holdfast_looks(struct sim *s, uint32_t who)
{
    struct client *c = &s->client[who];
    if (c->flight || c->state == DEAD || c->state == IDLE) return;
    c->gen++; /* one look is enough */
    if (c->state == WANTS) c->calm = CALM;
    sim_sends(s, who, OP_GET, c->state == WANTS ? HF_EV_ENQUEUE : (enum hf_event_kind)c->kind);
}

static void is_granted(struct sim *s, uint32_t who, int handed)
{
    struct client *c = &s->client[who];
    stop_hearing(s, who);
    c->gen++;
    c->calm = CALM;
    sim_holds(s, who, handed);
}

/* A word that says enough. */
static int took_word(struct sim *s, uint32_t who)
{
    struct client *c = &s->client[who];
    int64_t hi_us = s->now_us + sim_one_way(s, who);
    if (s->set.plan.how != TOLD || !c->token || !claims_later(c, hi_us)) return 0;
    if (c->row_long) c->known_rev = 0;
    is_granted(s, who, 1);
    return 1;
}

static void plan_look(struct sim *s, uint32_t who)
{
    struct client *c = &s->client[who];
    int64_t at = s->now_us + about_us(s, c->heard ? HEARD_POLL_MS : POLL_MS);
    if (c->queued && c->end_us != INT64_MAX) {
        int64_t end = c->end_us + sim_one_way(s, who) + (int64_t)c->out.place * STAGGER_US;
        if (end < s->now_us + SOONEST_US) end = s->now_us + SOONEST_US;
        if (end < at) at = end;
    }
    if (!c->queued) at = s->now_us + hf__backoff_full_us(c->full, about_us(s, POLL_MS), dice(s));
    sim_at(s, at, EV_LOOK, who, ++c->gen);
}

void holdfast_word(struct sim *s, uint32_t who)
{
    struct client *c = &s->client[who];
    if (c->state != WANTS) return;
    if (c->flight)
        c->woken = 1;
    else if (!took_word(s, who)) {
        c->conflict = 0;
        if (c->queued && !c->token)
            plan_look(s, who); /* of another end */
        else
            holdfast_looks(s, who);
    }
}

static void asked(struct sim *s, uint32_t who)
{
    struct client *c = &s->client[who];
    if (c->out.answer == HF_ANS_GRANTED || c->out.answer == HF_ANS_ALREADY) {
        c->known_rev = c->seen_rev;
        c->conflict = 0;
        if (s->now_us + sim_one_way(s, who) < c->grant_ends_us)
            is_granted(s, who, c->unclaimed);
        else
            holdfast_looks(s, who); /* over before it was known */
        return;
    }
    c->queued = c->out.answer == HF_ANS_QUEUED;
    c->refused = 0;
    if (c->queued)
        c->full = 0;
    else if (c->full < UINT8_MAX)
        c->full++;
    if (c->woken) {
        c->woken = 0;
        if (!took_word(s, who)) holdfast_looks(s, who);
    } else if (s->set.plan.how != POLL && !c->heard && c->queued) {
        c->heard = 1;
        sim_sends(s, who, OP_HEAR, HF_EV_ENQUEUE);
    } else {
        plan_look(s, who);
    }
}

void holdfast_gives(struct sim *s, uint32_t who)
{
    struct client *c = &s->client[who];
    if (c->flight) return; /* a renewal: behind it */
    c->calm = CALM;
    c->seen_rev = c->known_rev;
    if (c->known_rev)
        writes(s, who, HF_EV_RELEASE);
    else
        sim_sends(s, who, OP_GET, HF_EV_RELEASE);
}

void holdfast_renews(struct sim *s, uint32_t who)
{
    struct client *c = &s->client[who];
    if (c->flight) return;
    c->calm = CALM;
    c->seen_rev = c->known_rev;
    if (c->known_rev)
        writes(s, who, HF_EV_RENEW);
    else
        sim_sends(s, who, OP_GET, HF_EV_RENEW);
}

static void answered(struct sim *s, uint32_t who)
{
    struct client *c = &s->client[who];
    if (c->kind == HF_EV_ENQUEUE) {
        asked(s, who);
    } else if (c->kind == HF_EV_RELEASE) {
        sim_idle(s, who);
    } else {
        c->known_rev = c->seen_rev;
        if (c->state == GIVES)
            holdfast_gives(s, who);
        else if (c->out.answer == HF_ANS_GONE)
            sim_let_go(s, who, 1); /* lost */
        else
            sim_at(s, s->now_us + s->set.lease_us / 3, EV_RENEW, who, c->requests);
    }
}

void holdfast_hears(struct sim *s, uint32_t who)
{
    struct client *c = &s->client[who];
    if (c->state == DEAD || c->state == IDLE) return;
    if (c->op == OP_HEAR) {
        holdfast_looks(s, who);
    } else if ((c->op == OP_SWAP && !c->conflict) || !c->out.changed) {
        c->conflict = 0;
        answered(s, who);
    } else if (c->op == OP_SWAP && !c->calm && c->kind == HF_EV_ENQUEUE && !c->queued &&
               s->set.plan.how != POLL) {
        sim_sends(s, who, OP_ACQUIRE, HF_EV_ENQUEUE); /* whatever others write */
    } else if (!c->conflict || (c->op != OP_ACQUIRE && c->calm > 0) || c->kind != HF_EV_ENQUEUE ||
               c->queued || !c->line) {
        if (c->calm) c->calm = (uint8_t)(c->calm - c->conflict);
        writes(s, who, (enum hf_event_kind)c->kind);
    } else {
        if (c->refused < UINT8_MAX) c->refused++;
        int64_t pause = hf__backoff_conflict_us(c->refused, s->now_us - c->sent_us, dice(s));
        sim_at(s, s->now_us + pause, EV_LOOK, who, ++c->gen);
    }
}
