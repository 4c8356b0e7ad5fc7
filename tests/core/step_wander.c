/*
 * step_wander.c - a long random run of the step, with more requests, odd times and lost replies. It
 * also checks that no two clients believe in grants that exclude each other.
 */
#include "step_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = 12, WORLD_STEPS = 20000, ANSWERS = HF_ANS_GONE + 1 };

static uint64_t state;
static uint64_t answers[ANSWERS];

static uint64_t draw(uint64_t below)
{
    state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t x = state;
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return (x ^ x >> 31) % below;
}

/* A client: what it asks for, and what it believes. */
static struct asker {
    struct model_request r;
    uint64_t token; /* 0: believes nothing */
    int64_t until_us;
    int alive;
} asker[MANY];

/* All that believe to hold at this moment, by the most hopeful reading of the clock, admit each
   other: I-BELIEF and I-ONE as the world sees them. */
static const char *believers(int64_t clock_us)
{
    uint32_t n = 0, limit = UINT32_MAX;
    int at[MANY];
    for (int i = 0; i < MANY; i++) {
        struct asker *a = &asker[i];
        if (!a->token || !a->alive || (a->until_us && clock_us >= a->until_us)) continue;
        if (a->r.mode == HF_LIMITED && a->r.limit < limit) limit = a->r.limit;
        at[n++] = i;
    }
    if (n > limit) return "I-BELIEF: more than the limit believe to hold";
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < i; j++) {
            hf_party a, b;
            model_party(&a, &asker[at[i]].r, at[i], 0);
            model_party(&b, &asker[at[j]].r, at[j], 0);
            if (!judge_together(&a, &b))
                return "I-BELIEF: two believe to hold that exclude each other";
        }
    return NULL;
}

static void new_world(struct hf_event *ev)
{
    int modes = (int)draw(4);
    memset(asker, 0, sizeof asker);
    for (int i = 0; i < MANY; i++) {
        struct model_request *r = &asker[i].r;
        r->mode = modes == 3              ? (enum hf_mode)draw(3)
                  : modes == 1 && draw(2) ? HF_EXCLUSIVE
                                          : (enum hf_mode)modes;
        r->limit = r->mode == HF_LIMITED ? 1 + (uint32_t)draw(4) : 0;
        r->session = (int)draw(2);
        r->lease = r->session && draw(2) ? 0 : 1 + (uint32_t)draw(20);
        r->detached = r->lease && !draw(6);
        r->claim = 1 + (uint32_t)draw(5);
        r->owner = (char)('a' + draw(MANY));
        asker[i].alive = 1;
    }
    ev->queue_cap = 1 + (uint32_t)draw(MANY);
    ev->holders_cap = 1 + (uint32_t)draw(MANY);
    hf_row_clear(&model_was);
    if (hf_row_room(&model_was, MODEL_PARTIES)) abort();
    model_was.rev = draw(2) ? 0 : 1 + (draw(2) ? (uint64_t)MODEL_NOW_US + MODEL_FAR_US : 0);
}

/* Notes what the asker believes after the answer, if it gets one. */
static void believe(const struct hf_event *ev, int i, const struct hf_outcome *out)
{
    struct asker *a = &asker[i];
    if (out->answer == HF_ANS_GRANTED || out->answer == HF_ANS_ALREADY) a->token = out->token;
    if (out->answer == HF_ANS_GONE && ev->token == a->token) a->token = 0;
    for (uint32_t j = 0; a->token && j < model_is.n_holders; j++)
        if (model_is.party[j].token == a->token && !(model_is.party[j].flags & HF_PARTY_UNCLAIMED))
            a->until_us = model_is.party[j].expires_us;
}

static uint64_t some_token(int i)
{
    uint64_t kind = draw(8);
    if (kind < 5) return asker[i].token;
    if (kind < 6 || !model_was.n_holders) return model_was.token - draw(2);
    return model_was.party[draw(model_was.n_holders)].token;
}

static int random_event(struct hf_event *ev, int i)
{
    static hf_party p;
    model_party(&p, &asker[i].r, i, 0);
    ev->party = NULL;
    ev->token = 0;
    ev->once = ev->mark = 0;
    ev->until_us = 0;
    ev->result = "";
    ev->result_len = 0;
    switch (draw(12)) {
    case 0: ev->kind = HF_EV_TRY; break;
    case 1:
    case 2:
    case 3: ev->kind = HF_EV_ENQUEUE; break;
    case 4: ev->kind = HF_EV_WITHDRAW; break;
    case 5:
    case 6: ev->kind = HF_EV_RENEW; break;
    case 7:
    case 8: ev->kind = HF_EV_RELEASE; break;
    case 9: ev->kind = HF_EV_PROMOTE; break;
    case 10: ev->kind = draw(8) ? HF_EV_PROMOTE : draw(2) ? HF_EV_BREAK : HF_EV_FORGET; break;
    default: ev->kind = draw(8) ? HF_EV_PROMOTE : HF_EV_FINISH; break;
    }
    if (ev->kind == HF_EV_TRY || ev->kind == HF_EV_ENQUEUE) {
        ev->party = &p;
        ev->once = !draw(8);
        ev->mark = ev->once && !draw(4);
        ev->keep_us = (int64_t)draw(50000);
    } else if (ev->kind == HF_EV_WITHDRAW) {
        memset(ev->id, 0, sizeof ev->id);
        ev->id[0] = (uint8_t)(i + 1);
    } else if (ev->kind != HF_EV_PROMOTE) {
        ev->token = some_token(i);
        ev->lease_ms = (uint32_t)draw(20);
        ev->adopted = (int)draw(2);
        if (!draw(8)) ev->until_us = ev->now.lo_us + (int64_t)draw(20000);
        ev->keep_us = draw(8) ? (int64_t)draw(20000) : INT64_MAX;
        ev->result = draw(2) ? "done" : "";
        ev->result_len = strlen(ev->result);
    }
    return 0;
}

/* Takes away what an asker stops believing before it sends its own event, because the reply may not
   come: everything, or what exceeds the lease that it asks for. A break ends the belief of a client
   that isn't notified here, so its belief is taken away, too. */
static void forget(const struct hf_event *ev, int i)
{
    struct asker *a = &asker[i];
    int64_t end = ev->now.lo_us + (int64_t)ev->lease_ms * 1000;
    int renews = ev->kind == HF_EV_RENEW;
    if (ev->kind == HF_EV_WITHDRAW) a->token = 0;
    if (renews && ev->lease_ms && (!a->until_us || end < a->until_us)) a->until_us = end;
    for (int j = 0; j < MANY; j++)
        if (ev->token && asker[j].token == ev->token && !(renews && j == i)) asker[j].token = 0;
}

int wander(uint64_t seed, uint64_t steps)
{
    struct hf_event ev = {.result = ""};
    int64_t clock_us = 0;
    uint64_t dead[MANY];
    model_start("random");
    state = seed;
    while (model_steps < steps) {
        struct hf_outcome out;
        if (model_steps % WORLD_STEPS == 0 || !clock_us) {
            clock_us = MODEL_NOW_US;
            new_world(&ev);
        }
        int i = (int)draw(MANY);
        if (draw(3) == 0) clock_us += (int64_t)draw(4000);
        ev.now.lo_us = clock_us - (int64_t)draw(3) * (int64_t)draw(2000);
        ev.now.hi_us = clock_us + (int64_t)draw(3) * (int64_t)draw(2000);
        ev.dead = dead;
        ev.n_dead = 0;
        for (int j = 0; j < MANY; j++)
            if (!asker[j].alive && draw(2)) dead[ev.n_dead++] = model_session(j, 0);
        if (asker[i].r.session && !draw(100)) asker[i].alive = 0;
        random_event(&ev, i);
        if (!asker[i].alive) ev.kind = HF_EV_PROMOTE, ev.party = NULL, ev.token = 0;
        forget(&ev, i);
        if (model_step(&ev, &out)) return 1;
        answers[out.answer]++;
        /* One in eight replies is lost, or comes too late: the row was written, but the asker
           doesn't know. */
        if (draw(8) || (!ev.party && ev.kind != HF_EV_RENEW)) {
            believe(&ev, i, &out);
            if (hf_row_copy(&model_was, &model_is)) abort();
        } else if (draw(2) && hf_row_copy(&model_was, &model_is)) {
            abort();
        }
        const char *why = believers(clock_us);
        if (why) return model_fail(why, &ev, &out);
        int anybody = 0;
        for (int j = 0; j < MANY; j++) anybody |= asker[j].alive;
        if (!anybody) clock_us = 0;
    }
    printf("# random: %llu steps; answers:", (unsigned long long)model_steps);
    for (int i = 0; i < ANSWERS; i++) printf(" %llu", (unsigned long long)answers[i]);
    printf("\n");
    /* A run in which something never happens has not tried it. */
    for (int i = 0; i < ANSWERS; i++)
        if (answers[i] < steps / 10000) {
            model_why = "an answer is hardly ever given";
            return 1;
        }
    return 0;
}
