/*
 * step_enum.c - the step, exhaustively: every state that a few requests can bring a row into, every
 * event in each of them, and what step_judge.c says of it. Then a long random run with more of
 * everything, which also checks what each party believes to hold.
 *
 *     step_enum [-s SEED] [-n STEPS] [-m STATES]
 *
 * -s, -n: the random run; default from the system, 2,000,000. -m: no more than so many states of
 * each universe, where all of them were walked by another build and a sanitizer makes it slow.
 *
 * A state is a row without what makes no difference: tokens count by their order, times by their
 * distance from now. Each state is made concrete in two ways, with revs far below and far above the
 * clock, which must come to the same. A tick is a millisecond. A caller's clock may be exact, or a
 * tick off to either side.
 */
#include "step_model.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    REQUESTS = 5,
    CODE_CAP = 6 + 4 * REQUESTS + 2,
    NEVER = 99, /* no end by time */
    BOUND = 8,  /* beside the flags of a holder: the holder has its session */
    OTHER = 16, /* timeless: the one that its request waits with */
    SPARE = 32, /* timeless: one that was made for a grant alone */
    GAP = 3     /* between the tokens of a concrete row, so that there is room for wrong ones */
};

struct universe {
    const char *name;
    int n, queue_cap, holders_cap;
    int once;  /* events are begun and finished */
    int keeps; /* releases that keep the key taken */
    int timeless;
    struct model_request request[REQUESTS];
};

static const struct universe universes[] = {
    {"exclusive, by lease",
     5,
     8,
     8,
     0,
     1,
     0,
     {{HF_EXCLUSIVE, 0, 2, 1, 0, 0, 'a'},
      {HF_EXCLUSIVE, 0, 3, 1, 0, 0, 'b'},
      {HF_EXCLUSIVE, 0, 1, 2, 0, 0, 'a'},
      {HF_EXCLUSIVE, 0, 2, 1, 0, 0, 'c'},
      {HF_EXCLUSIVE, 0, 2, 1, 0, 0, 'd'}}},
    {"exclusive, by session and by lease, a short queue",
     4,
     2,
     8,
     0,
     1,
     0,
     {{HF_EXCLUSIVE, 0, 0, 1, 1, 0, 'a'},
      {HF_EXCLUSIVE, 0, 2, 1, 0, 0, 'b'},
      {HF_EXCLUSIVE, 0, 0, 1, 1, 0, 'c'},
      {HF_EXCLUSIVE, 0, 2, 1, 1, 0, 'd'}}},
    {"shared and exclusive",
     4,
     8,
     8,
     0,
     0,
     0,
     {{HF_SHARED, 0, 2, 1, 0, 0, 'a'},
      {HF_SHARED, 0, 0, 1, 1, 0, 'b'},
      {HF_EXCLUSIVE, 0, 2, 1, 0, 0, 'c'},
      {HF_SHARED, 0, 1, 1, 0, 0, 'd'}}},
    {"shared, room for two",
     4,
     2,
     2,
     0,
     0,
     0,
     {{HF_SHARED, 0, 2, 1, 0, 0, 'a'},
      {HF_SHARED, 0, 0, 1, 1, 0, 'b'},
      {HF_SHARED, 0, 2, 1, 0, 0, 'a'},
      {HF_EXCLUSIVE, 0, 1, 1, 0, 0, 'd'}}},
    {"limited",
     4,
     8,
     8,
     0,
     0,
     0,
     {{HF_LIMITED, 2, 2, 1, 0, 0, 'a'},
      {HF_LIMITED, 2, 0, 1, 1, 0, 'b'},
      {HF_LIMITED, 3, 2, 1, 0, 0, 'c'},
      {HF_LIMITED, 1, 1, 1, 0, 0, 'd'}}},
    {"all modes",
     5,
     8,
     8,
     0,
     0,
     0,
     {{HF_LIMITED, 2, 2, 1, 0, 0, 'a'},
      {HF_SHARED, 0, 2, 1, 0, 0, 'b'},
      {HF_EXCLUSIVE, 0, 0, 1, 1, 0, 'c'},
      {HF_LIMITED, 2, 2, 1, 0, 0, 'd'},
      {HF_SHARED, 0, 1, 1, 0, 0, 'c'}}},
    {"once",
     3,
     8,
     8,
     1,
     0,
     0,
     {{HF_EXCLUSIVE, 0, 2, 1, 0, 0, 'a'},
      {HF_EXCLUSIVE, 0, 0, 1, 1, 0, 'b'},
      {HF_EXCLUSIVE, 0, 1, 1, 0, 0, 'c'}}},
    {"detached, and asked by two processes",
     3,
     8,
     8,
     0,
     0,
     0,
     {{HF_EXCLUSIVE, 0, 2, 1, 2, 1, 'a'},
      {HF_EXCLUSIVE, 0, 0, 1, 2, 0, 'b'},
      {HF_EXCLUSIVE, 0, 1, 1, 1, 0, 'c'}}},
    {"shared, detached, kept",
     3,
     8,
     2,
     0,
     1,
     0,
     {{HF_SHARED, 0, 2, 1, 1, 1, 'a'},
      {HF_SHARED, 0, 0, 1, 1, 0, 'b'},
      {HF_EXCLUSIVE, 0, 2, 1, 1, 0, 'c'}}},
    {"without a clock",
     3,
     2,
     8,
     0,
     1,
     1,
     {{HF_EXCLUSIVE, 0, 2, 1, 1, 0, 'a'},
      {HF_EXCLUSIVE, 0, 1, 1, 1, 1, 'b'},
      {HF_EXCLUSIVE, 0, 2, 1, 1, 0, 'a'}}},
    {"without a clock, shared and limited",
     3,
     8,
     2,
     0,
     1,
     1,
     {{HF_SHARED, 0, 2, 1, 1, 0, 'a'},
      {HF_LIMITED, 2, 1, 1, 1, 1, 'b'},
      {HF_SHARED, 0, 1, 1, 1, 0, 'c'}}},
};

/* ---- states ---- */

struct state {
    unsigned char code[CODE_CAP];
};

static struct {
    const struct universe *u;
    struct state *state; /* the states, in the order in which they were found */
    uint32_t *slot;      /* open addressing; 0: free, else index + 1 */
    uint32_t n, cap, slots;
} run;

/* Timeless: the session that no request asks with, and the bit that says that it is dead. */
static uint64_t spare_session(void) { return model_session(REQUESTS, 0); }
static int spare_bit(void) { return 2 * run.u->n; }
static uint64_t session_of(int bit)
{
    return bit == spare_bit() ? spare_session() : model_session(bit / 2, bit % 2);
}
static int bits(void) { return spare_bit() + run.u->timeless; }

static uint64_t hash_of(const struct state *s)
{
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < CODE_CAP; i++) h = (h ^ s->code[i]) * 1099511628211u;
    return h ^ h >> 29;
}

static void *grown(void *p, size_t size)
{
    p = realloc(p, size);
    if (!p) abort();
    return p;
}

static uint32_t *slot_for(const struct state *s)
{
    uint32_t i = (uint32_t)hash_of(s) & (run.slots - 1);
    while (run.slot[i] && memcmp(&run.state[run.slot[i] - 1], s, sizeof *s))
        i = (i + 1) & (run.slots - 1);
    return &run.slot[i];
}

static void add_state(const struct state *s)
{
    uint32_t *slot = slot_for(s);
    if (*slot) return;
    if (run.n == run.cap) {
        run.cap = run.cap ? run.cap * 2 : 1024;
        run.state = grown(run.state, run.cap * sizeof *run.state);
    }
    run.state[run.n++] = *s;
    *slot = run.n;
    if (run.n * 2 < run.slots) return;
    run.slots *= 2;
    run.slot = grown(run.slot, run.slots * sizeof *run.slot);
    memset(run.slot, 0, run.slots * sizeof *run.slot);
    for (uint32_t i = 0; i < run.n; i++) *slot_for(&run.state[i]) = i + 1;
}

/* ---- rows to states and back ---- */

/* Returns a time as ticks from now. All times that are over at every reading of the clock are
   equal. */
static unsigned char ticks(int64_t us, int64_t now_us)
{
    if (!us || us == INT64_MAX) return NEVER;
    int64_t t = (us - now_us) / MODEL_TICK_US;
    return (unsigned char)((t < -1 ? -1 : t) + 2);
}

static int64_t from_ticks(unsigned char t)
{
    return t == NEVER ? 0 : MODEL_NOW_US + (t - 2) * MODEL_TICK_US;
}

static unsigned char rank(const hf_row *row, uint64_t value)
{
    uint64_t below[MODEL_PARTIES + 2];
    unsigned n = 0;
    if (!value) return 0;
    for (uint32_t i = 0; i < row->n_holders + 2; i++) {
        uint64_t v = i < row->n_holders    ? row->party[i].token
                     : i == row->n_holders ? row->token
                                           : row->rev;
        int known = !v || v >= value;
        for (unsigned j = 0; j < n && !known; j++) known = below[j] == v;
        if (!known) below[n++] = v;
    }
    return (unsigned char)(n + 1);
}

static void encode(struct state *s, const hf_row *row, unsigned dead, int64_t now_us)
{
    unsigned char *c = s->code;
    if (6 + 4 * row->n_holders + row->n_queue > CODE_CAP) abort(); /* a universe without an end */
    memset(s, 0, sizeof *s);
    *c++ = (unsigned char)row->n_holders;
    *c++ = (unsigned char)row->n_queue;
    *c++ = (unsigned char)dead;
    *c++ = rank(row, row->rev);
    *c++ = rank(row, row->token);
    *c++ = row->done_us
               ? (row->keep_until_us == INT64_MAX ? NEVER : ticks(row->keep_until_us, now_us))
               : 0;
    for (uint32_t i = 0; i < row->n_holders; i++) {
        const hf_party *p = &row->party[i];
        *c++ = (unsigned char)p->wakeup;
        int other = run.u->timeless && p->session == model_session(p->wakeup / 2, 1);
        *c++ = (unsigned char)(p->flags | (p->session ? BOUND : 0) | (other ? OTHER : 0) |
                               (p->session == spare_session() ? SPARE : 0));
        *c++ = ticks(p->expires_us, now_us);
        *c++ = rank(row, p->token);
    }
    for (uint32_t i = 0; i < row->n_queue; i++)
        *c++ = (unsigned char)row->party[row->n_holders + i].wakeup;
}

static uint64_t value_of(unsigned char r, int above)
{
    return r ? (above ? (uint64_t)MODEL_NOW_US + MODEL_FAR_US : 0) + (uint64_t)r * GAP : 0;
}

static unsigned decode(const struct state *s, hf_row *row, int above)
{
    const unsigned char *c = s->code;
    row->n_holders = *c++;
    row->n_queue = *c++;
    unsigned dead = *c++;
    row->rev = value_of(*c++, above);
    row->token = value_of(*c++, above);
    row->done_us = *c ? 1 : 0;
    row->keep_until_us = *c == NEVER ? INT64_MAX : *c ? from_ticks(*c) : 0;
    c++;
    row->result_len = row->done_by_len = 0;
    row->result[0] = row->done_by[0] = 0;
    for (uint32_t i = 0; i < row->n_holders + row->n_queue; i++) {
        hf_party *p = &row->party[i];
        int who = *c++, r = who / 2;
        model_party(p, &run.u->request[r], r, who % 2);
        p->since_us = 1;
        if (i >= row->n_holders) {
            if (run.u->timeless) p->session = model_session(r, 1);
            continue;
        }
        p->flags = *c & (BOUND - 1);
        if (*c & OTHER) p->session = model_session(r, 1);
        if (!(*c++ & BOUND)) p->session = 0;
        int spare = c[-1] & SPARE;
        p->expires_us = from_ticks(*c++);
        p->token = value_of(*c++, above);
        if (!(p->flags & HF_PARTY_UNCLAIMED)) p->claim_ms = 0;
        if (p->flags & HF_PARTY_ENDING) model_ending(p);
        if (spare) p->session = spare_session();
    }
    return dead;
}

/* Makes the step from a state, in both concrete forms. The result may be a new state. */
static int step_from(const struct state *s, struct hf_event *ev)
{
    struct state next[2];
    struct hf_outcome out[2];
    unsigned char token = (unsigned char)ev->token;
    for (int above = 0; above < 2; above++) {
        unsigned dead = decode(s, &model_was, above);
        /* Tokens of the row, and (odd ones) some that aren't there. */
        ev->token = value_of(token / 2, above) + token % 2;
        if (model_step(ev, &out[above])) return 1;
        encode(&next[above], &model_is, dead, MODEL_NOW_US);
    }
    if (memcmp(&next[0], &next[1], sizeof next[0]) || out[0].answer != out[1].answer)
        return model_fail("SCALE: it depends on how far the rev is from the clock", ev, &out[1]);
    ev->token = token;
    if (out[0].changed) add_state(&next[0]);
    return 0;
}

/* ---- every event in a state ---- */

static int named_events(const struct state *s, struct hf_event *ev, uint64_t spare)
{
    unsigned char most = s->code[3] + 1;
    /* 2 * rank: a value of the row; odd: one that stands for nothing in it. */
    for (unsigned char token = 0; token <= 2 * most; token++) {
        ev->token = token;
        for (int i = 0; i < (run.u->keeps ? 2 : 1); i++) {
            ev->kind = HF_EV_RELEASE;
            ev->until_us = i ? MODEL_NOW_US + 2 * MODEL_TICK_US : 0;
            ev->session = i ? spare : 0;
            if (step_from(s, ev)) return 1;
        }
        ev->until_us = 0;
        ev->session = 0;
        ev->kind = HF_EV_BREAK;
        if (step_from(s, ev)) return 1;
        ev->kind = HF_EV_FORGET;
        if (run.u->once && !token && step_from(s, ev)) return 1;
        ev->kind = HF_EV_RENEW;
        for (ev->lease_ms = 0; ev->lease_ms < 3; ev->lease_ms += 2)
            for (ev->adopted = 0; ev->adopted < 2; ev->adopted++)
                if (step_from(s, ev)) return 1;
        ev->adopted = 0;
        ev->lease_ms = 2;
        ev->session = spare;
        if (spare && step_from(s, ev)) return 1;
        ev->session = ev->lease_ms = 0;
        ev->kind = HF_EV_FINISH;
        for (int i = 0; i < 2 && run.u->once; i++) {
            ev->keep_us = i ? INT64_MAX : MODEL_TICK_US;
            if (step_from(s, ev)) return 1;
        }
    }
    ev->token = 0;
    return 0;
}

static int asking_events(const struct state *s, struct hf_event *ev, int i, int other)
{
    hf_party p;
    model_party(&p, &run.u->request[i], i, other);
    ev->party = &p;
    ev->session = run.u->timeless ? model_session(i, 1) : 0;
    for (int flags = 0; flags < 4; flags++) {
        ev->once = flags & 1;
        ev->mark = flags >> 1 & 1;
        ev->keep_us = MODEL_TICK_US;
        if ((ev->mark && !ev->once) || (ev->once && !run.u->once)) continue;
        ev->kind = HF_EV_TRY;
        if (step_from(s, ev)) return 1;
        ev->kind = HF_EV_ENQUEUE;
        if (step_from(s, ev)) return 1;
    }
    ev->once = ev->mark = 0;
    ev->party = NULL;
    ev->session = 0;
    ev->kind = HF_EV_WITHDRAW;
    ev->id[0] = (uint8_t)(i + 1);
    int rc = step_from(s, ev);
    ev->maybe_done = 1;
    if (!rc) rc = step_from(s, ev);
    ev->maybe_done = 0;
    ev->id[0] = 0;
    return rc;
}

/* The requests that exist: two processes per request at most. */
static int exists(int i) { return i % 2 == 0 || run.u->request[i / 2].session == 2; }

/* Returns 1 if the request may ask: none asks with a dead session; if timeless, both its sessions
   must live. */
static int asks(unsigned dead, int i)
{
    return exists(i) && !(dead >> i & 1) && !(run.u->timeless && dead >> (i + 1) & 1);
}

static int events(const struct state *s, unsigned dead)
{
    uint64_t dead_session[2 * REQUESTS + 1];
    size_t n_dead = 0;
    for (int i = 0; i < bits(); i++)
        if (dead >> i & 1) dead_session[n_dead++] = session_of(i);
    uint64_t spare = run.u->timeless && !(dead >> spare_bit() & 1) ? spare_session() : 0;
    for (int informed = 0; informed <= (n_dead > 0); informed++)
        for (int off = 0; off < 3; off++) {
            /* Exact; a tick off to both sides; ahead only. */
            struct hf_event ev = {.now = {MODEL_NOW_US - (off == 1) * MODEL_TICK_US,
                                          MODEL_NOW_US + (off > 0) * MODEL_TICK_US},
                                  .result = "",
                                  .dead = dead_session,
                                  .n_dead = informed ? n_dead : 0,
                                  .queue_cap = (uint32_t)run.u->queue_cap,
                                  .holders_cap = (uint32_t)run.u->holders_cap,
                                  .timeless = run.u->timeless};
            ev.kind = HF_EV_PROMOTE;
            if (step_from(s, &ev) || named_events(s, &ev, spare)) return 1;
            for (int i = 0; i < 2 * run.u->n; i++)
                if (asks(dead, i) && asking_events(s, &ev, i / 2, i % 2)) return 1;
        }
    return 0;
}

/* Time passes; processes die; the place of a forgotten one is taken by another. */
static void world(const struct state *s)
{
    struct state next;
    unsigned dead = decode(s, &model_was, 0);
    encode(&next, &model_was, dead, MODEL_NOW_US + MODEL_TICK_US);
    add_state(&next);
    for (int i = 0; i < bits(); i++) {
        if (!run.u->timeless && (!run.u->request[i / 2].session || !exists(i))) continue;
        int there = 0;
        for (uint32_t j = 0; j < model_was.n_holders + model_was.n_queue; j++)
            there |= model_was.party[j].session == session_of(i);
        if (dead >> i & 1 && there) continue;
        encode(&next, &model_was, dead ^ 1u << i, MODEL_NOW_US);
        add_state(&next);
    }
}

/* Returns 1 if every row becomes empty when only time passes and a client looks: no row is
   stuck. */
static int drains(const struct state *s)
{
    uint64_t all[2 * REQUESTS + 1];
    struct hf_event ev = {.kind = HF_EV_PROMOTE,
                          .dead = all,
                          .timeless = run.u->timeless,
                          .queue_cap = (uint32_t)run.u->queue_cap,
                          .holders_cap = (uint32_t)run.u->holders_cap};
    struct hf_outcome out;
    decode(s, &model_was, 0);
    /* Parties bound to a session only would hold for ever: they are dead by then. */
    for (int i = 0; i < bits(); i++) all[ev.n_dead++] = session_of(i);
    for (int round = 0; round <= 2 * REQUESTS; round++) {
        if (!model_was.n_holders && !model_was.n_queue) return 0;
        ev.now.lo_us = ev.now.hi_us = MODEL_NOW_US + (round + 1) * 100 * MODEL_TICK_US;
        if (model_step(&ev, &out)) return 1;
        if (hf_row_copy(&model_was, &model_is)) abort();
    }
    return model_fail("STUCK: nobody is left, and it isn't empty", &ev, &out);
}

static int explore(const struct universe *u, uint64_t most)
{
    struct state first;
    memset(&first, 0, sizeof first);
    model_start(u->name);
    run.u = u;
    run.n = 0;
    run.slots = 4096;
    run.slot = grown(run.slot, run.slots * sizeof *run.slot);
    memset(run.slot, 0, run.slots * sizeof *run.slot);
    add_state(&first);
    for (uint32_t at = 0; at < run.n && at < most; at++) {
        struct state s = run.state[at]; /* the array moves */
        if (drains(&s) || events(&s, s.code[2])) return 1;
        world(&s);
    }
    printf("# %s: %u states, %llu steps\n", u->name, run.n, (unsigned long long)model_steps);
    return 0;
}

int main(int argc, char **argv)
{
    enum { WORLDS = sizeof universes / sizeof *universes };
    uint64_t seed, steps = 2000000, most = UINT64_MAX;
    int failed = 0, fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, &seed, sizeof seed) != sizeof seed) return 70;
    close(fd);
    for (int c; (c = getopt(argc, argv, "s:n:m:")) >= 0;) {
        if (c == '?') return 64;
        *(c == 's' ? &seed : c == 'n' ? &steps : &most) = strtoull(optarg, NULL, 10);
    }
    printf("1..%d\n# seed %llu\n", WORLDS + 2, (unsigned long long)seed);
    for (int i = 0; i <= WORLDS; i++) {
        int bad = i < WORLDS ? explore(&universes[i], most) : wander(seed, steps);
        failed += bad;
        printf("%sok %d - %s%s%s\n", bad ? "not " : "", i + 1, model_name, bad ? ": " : "",
               bad ? model_why : "");
        fflush(stdout);
    }
    int both = model_acquired[0] && model_acquired[1];
    printf("%sok %d - hf_row_acquire grants (%llu times) and appends (%llu times)\n",
           both ? "" : "not ", WORLDS + 2, (unsigned long long)model_acquired[0],
           (unsigned long long)model_acquired[1]);
    return failed || !both;
}
