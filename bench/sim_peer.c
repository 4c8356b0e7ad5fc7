/*
 * sim_peer.c - a lock as most libraries make it: set if absent with an end by time, deleted by its
 * owner; a client that doesn't get it tries again after a pause.
 */
#include "sim.h"

void peer_serves(struct sim *s, uint32_t who)
{
    struct client *c = &s->client[who];
    struct place *p = &s->place[c->key];
    if (c->kind == HF_EV_RELEASE) {
        if (p->peer == (int32_t)who) p->peer = NOBODY;
        return;
    }
    c->conflict = p->peer != NOBODY && s->now_us < p->peer_ends_us;
    if (c->conflict) {
        s->conflicts++;
        return;
    }
    p->peer = (int32_t)who;
    p->peer_ends_us = s->now_us + s->set.lease_us;
}

void peer_hears(struct sim *s, uint32_t who)
{
    struct client *c = &s->client[who];
    const struct plan *plan = &s->set.plan;
    if (c->kind == HF_EV_RELEASE) {
        sim_idle(s, who);
    } else if (!c->conflict) {
        sim_holds(s, who, 0);
    } else {
        uint64_t range = (uint64_t)(plan->most_us - plan->least_us) + 1;
        sim_at(s, s->now_us + plan->least_us + (int64_t)sim_random(s, range), EV_LOOK, who, c->gen);
    }
}
