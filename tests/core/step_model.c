/*
 * step_model.c - see step_model.h.
 */
#include "step_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

hf_row model_was, model_is;
const char *model_name, *model_why;
uint64_t model_steps, model_acquired[2];
static hf_row twin;

void model_start(const char *name)
{
    hf_row *const rows[] = {&model_was, &model_is, &twin};
    model_name = name;
    model_why = NULL;
    model_steps = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i]->party)
            hf_row_clear(rows[i]);
        else
            hf_row_init(rows[i]);
        if (hf_row_room(rows[i], MODEL_PARTIES)) abort();
    }
}

uint64_t model_session(int i, int other) { return 100 + 2 * (uint64_t)i + (other != 0); }

void model_party(hf_party *p, const struct model_request *r, int i, int other)
{
    memset(p, 0, offsetof(hf_party, owner) + 2);
    p->id[0] = (uint8_t)(i + 1);
    p->session = r->session ? model_session(i, other) : 0;
    p->lease_ms = r->lease;
    p->claim_ms = r->claim;
    p->limit = r->limit;
    p->mode = (uint8_t)r->mode;
    p->flags = r->detached ? HF_PARTY_DETACHED : 0;
    p->wakeup = (uint8_t)(2 * i + other);
    p->owner_len = 1;
    p->owner[0] = r->owner;
    p->owner[1] = 0;
    p->note_len = 0;
    p->note[0] = 0;
}

int model_index(const hf_party *p) { return p->wakeup / 2; }

void model_ending(hf_party *p)
{
    p->flags = HF_PARTY_ENDING;
    p->session = 0;
    memset(p->id, 0xff, sizeof p->id);
    memcpy(p->id, &p->token, sizeof p->token);
}

static void show_row(const char *title, const hf_row *row)
{
    printf("#   %s: rev %llu token %llu", title, (unsigned long long)row->rev,
           (unsigned long long)row->token);
    if (row->done_us) printf(" done until %lld", (long long)row->keep_until_us);
    for (uint32_t i = 0; i < row->n_holders + row->n_queue; i++) {
        const hf_party *p = &row->party[i];
        printf("%s%d", i == row->n_holders ? " | waiting " : " ", model_index(p));
        if (i < row->n_holders)
            printf("(%llu flags %d session %llu to %lld)", (unsigned long long)p->token, p->flags,
                   (unsigned long long)p->session, (long long)p->expires_us);
    }
    printf("\n");
}

int model_fail(const char *why, const struct hf_event *ev, const struct hf_outcome *out)
{
    static const char *const kinds[] = {"TRY",     "ENQUEUE", "WITHDRAW", "RENEW", "RELEASE",
                                        "PROMOTE", "BREAK",   "FINISH",   "FORGET"};
    if (model_why) return 1;
    model_why = strdup(why);
    printf("# %s: %s\n", model_name, why);
    show_row("before", &model_was);
    printf("#   %s", kinds[ev->kind]);
    if (ev->party)
        printf(" by %d session %llu", model_index(ev->party),
               (unsigned long long)ev->party->session);
    if (ev->kind == HF_EV_WITHDRAW) printf(" of %d", ev->id[0] - 1);
    if (ev->token) printf(" of %llu", (unsigned long long)ev->token);
    printf(" lease %u until %lld once %d mark %d maybe %d dead %zu at %lld to %lld -> "
           "answer %d\n",
           ev->lease_ms, (long long)ev->until_us, ev->once, ev->mark, ev->maybe_done, ev->n_dead,
           (long long)ev->now.lo_us, (long long)ev->now.hi_us, (int)out->answer);
    show_row("after", &model_is);
    return 1;
}

/* Without the step, a store may grant or append by hf_row_acquire alone: then it has to store what
   the step stores, whatever a caller's clock leaves open. The store doesn't know which
   parties are dead. */
static const char *judge_acquire(const struct hf_event *ev)
{
    int queues = ev->kind == HF_EV_ENQUEUE;
    if ((!queues && ev->kind != HF_EV_TRY) || ev->once || ev->timeless || ev->n_dead) return NULL;
    memcpy(model_was.last_id, "nobody's", 8);
    if (hf_row_copy(&twin, &model_was) || hf_row_room(&twin, MODEL_PARTIES)) abort();
    int rc = hf_row_acquire(&twin, ev->party, queues ? ev->queue_cap : 0, ev->now.lo_us);
    model_acquired[0] += rc == 0 && !twin.n_queue;
    model_acquired[1] += rc == 0 && twin.n_queue;
    if (rc && rc != HF_CONFLICT) return "ACQUIRE: it fails";
    /* In a new row the store uses its one reading, and the step the latest of the interval. */
    if (!rc && !model_was.rev && twin.rev <= model_is.rev)
        twin.rev = twin.token = twin.party[0].token = model_is.rev;
    if (!hf_row_equal(&twin, rc ? &model_was : &model_is))
        return rc ? "ACQUIRE: refused, it changes the row" : "ACQUIRE: it stores another row";
    int is_free = !model_was.n_holders && !model_was.n_queue;
    return rc && is_free ? "ACQUIRE: what is free is refused" : NULL;
}

int model_step(const struct hf_event *ev, struct hf_outcome *ret)
{
    if (hf_row_copy(&model_is, &model_was)) abort();
    *ret = hf__step(&model_is, ev);
    model_steps++;
    const char *why = judge_step(&model_was, ev, &model_is, ret);
    if (!why) why = judge_acquire(ev);
    if (why) return model_fail(why, ev, ret);
    if (ev->kind != HF_EV_PROMOTE || !ret->changed) return 0;
    if (hf_row_copy(&twin, &model_is)) abort();
    struct hf_outcome again = hf__step(&twin, ev);
    return again.changed ? model_fail("STABLE: noticed twice", ev, ret) : 0;
}
