/*
 * mixed_ask.c - what is asked for at random, and in which way; see mixed.h.
 */
#include "mixed.h"

#include "lock_suite.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Requests that make others wait for long are seldom: a waiter out of line looks now and then. */
void choose(struct player *p, struct request *r)
{
    static const int64_t waits[] = {0, 1, 50, HF_FOREVER};
    const int64_t leases[] = {0, 0, short_ms, LONG_MS};
    static const struct {
        unsigned flag, one_in;
    } flags[] = {{HF_UNQUEUED, 32}, {HF_ALLOW_RECURSIVE, 4}, {HF_NO_RENEW, 4}};
    hf_options none = HF_OPTIONS_INIT;
    r->o = none;
    r->given = NULL;
    if (one_in(p, 4)) return;
    hf_options *o = &r->o;
    r->given = o;
    o->wait_ms = waits[pick(p, 4)];
    o->lease_ms = leases[pick(p, 4)];
    o->mode = (enum hf_mode)pick(p, 3);
    if (o->mode == HF_LIMITED) o->limit = 1 + (uint32_t)pick(p, THREADS - 1);
    for (int i = 0; i < 3; i++)
        if (one_in(p, flags[i].one_in)) o->flags |= flags[i].flag;
    if (o->lease_ms && one_in(p, 4)) o->flags |= HF_DETACHED;
    if (one_in(p, 4)) o->max_hold_ms = LONG_MS / 2;
    if (one_in(p, 64)) o->at_least_ms = 1 + pick(p, 5);
    snprintf(r->owner, sizeof r->owner, "thread %d", p->number);
    snprintf(r->note, sizeof r->note, "turn %" PRIu64, p->turns);
    if (one_in(p, 3)) o->owner = r->owner;
    if (one_in(p, 3)) o->note = one_in(p, 4) ? "" : r->note;
    for (int i = 0; i < 16; i += 8) {
        uint64_t id = next_chance(&p->chances);
        memcpy(r->id + i, &id, 8);
    }
    if (one_in(p, 3)) o->request_id = r->id;
}

void look_refused(struct player *p, const struct request *r, int store, int key, int rc,
                  const hf_error *err, int64_t asked_ms, int canceled)
{
    struct store *s = &stores[store];
    int64_t wait_ms = r->o.wait_ms, took_ms = suite_ms() - asked_ms;
    int may = (rc == HF_BUSY && !wait_ms) || (rc == HF_CANCELED && canceled) ||
              (rc == HF_TIMEOUT && wait_ms > 0 && took_ms >= wait_ms - 1);
    if (!may || err->code != rc || !strstr(err->text, "'mixed/"))
        wrong(p, r, keys[key], "%s after %" PRId64 " ms: %s", hf_code_name(rc), took_ms, err->text);
    count(rc == HF_BUSY ? &s->busy : rc == HF_TIMEOUT ? &s->timeouts : &s->canceled);
    count(&refusals);
}

void granted(struct hold *hold, int64_t asked_ms, uint64_t last)
{
    count(&stores[hold->store].granted);
    count(&grants);
    book_in(hold, asked_ms, last);
}

/* ---- the ways to ask; each says how many holds it was granted ---- */

struct told {
    pthread_mutex_t mu;
    pthread_cond_t changed;
    int told, code;
    hf_lock *lock;
    hf_error err;
};

static void tell(void *arg, int code, hf_lock *lock, const hf_error *err)
{
    struct told *t = arg;
    pthread_mutex_lock(&t->mu);
    t->told++;
    t->code = code;
    t->lock = lock;
    if (code) t->err = *err;
    pthread_cond_signal(&t->changed);
    pthread_mutex_unlock(&t->mu);
}

/* The event is done: by whom and with what result can only be what somebody said. */
static void look_done(struct player *p, const struct request *r, int key, const hf_once *once)
{
    const char *result = once->result;
    if (once->done_us <= 0 || !once->owner[0] || (*result && strncmp(result, "done by ", 8)))
        wrong(p, r, keys[key], "done at %" PRId64 " by '%s': '%s'", once->done_us, once->owner,
              result);
}

static int ask_plainly(struct player *p, struct request *r, struct hold *hold)
{
    hf_error err = {0, 0, ""};
    uint64_t last = book_last(hold->key);
    int64_t asked_ms = suite_ms();
    r->way = "hf_acquire";
    int rc = hf_acquire(stores[hold->store].h, keys[hold->key], r->given, &hold->lock, &err);
    if (rc)
        look_refused(p, r, hold->store, hold->key, rc, &err, asked_ms, 0);
    else
        granted(hold, asked_ms, last);
    return !rc;
}

static int ask_for_all(struct player *p, struct request *r, struct hold *hold)
{
    hf_error err = {0, 0, ""};
    const char *names[KEYS];
    hf_lock *locks[KEYS] = {NULL};
    uint64_t last[KEYS];
    int n = 1 + pick(p, KEYS), first = pick(p, KEYS), step = 1 + pick(p, KEYS - 1);
    r->way = "hf_acquire_all";
    r->o.request_id = NULL; /* each of them has its own */
    for (int i = 0; i < n; i++) {
        hold[i] = hold[0];
        hold[i].key = (first + i * step) % KEYS;
        names[i] = keys[hold[i].key];
        last[i] = book_last(hold[i].key);
    }
    int64_t asked_ms = suite_ms();
    int rc = hf_acquire_all(stores[hold->store].h, names, (size_t)n, r->given, locks, &err);
    if (rc) look_refused(p, r, hold->store, hold->key, rc, &err, asked_ms, 0);
    if (rc && locks[0]) wrong(p, r, keys[first], "refused, with a lock");
    for (int i = 0; !rc && i < n; i++) {
        hold[i].lock = locks[i];
        granted(&hold[i], asked_ms, last[i]);
    }
    return rc ? 0 : n;
}

static int start(struct player *p, struct request *r, struct hold *hold, int event)
{
    struct told t = {.mu = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    hf_error err = {0, 0, ""};
    hf_once once = {0};
    hf_wait *wait;
    hf *h = stores[hold->store].h;
    const char *key = keys[hold->key];
    uint64_t last = book_last(hold->key);
    int64_t asked_ms = suite_ms();
    int cancels = one_in(p, 4), keep_ms = 1 + pick(p, 20);
    r->way = event ? "hf_once_start" : "hf_acquire_start";
    int rc = event ? hf_once_start(h, key, keep_ms, r->given, &once, tell, &t, &wait, &err)
                   : hf_acquire_start(h, key, r->given, tell, &t, &wait, &err);
    if (rc) wrong(p, r, key, "not started: %s: %s", hf_code_name(rc), err.text);
    if (cancels) hf_wait_cancel(wait);
    pthread_mutex_lock(&t.mu);
    while (!t.told) pthread_cond_wait(&t.changed, &t.mu);
    pthread_mutex_unlock(&t.mu);
    hf_wait_free(wait);
    if (t.told != 1 || (t.code && t.lock)) wrong(p, r, key, "told %d times", t.told);
    if (t.code)
        look_refused(p, r, hold->store, hold->key, t.code, &t.err, asked_ms, cancels);
    else if (!t.lock && !event)
        wrong(p, r, key, "granted, without a lock");
    else if (!t.lock)
        look_done(p, r, hold->key, &once);
    hold->runs = event;
    hold->lock = t.lock;
    if (hold->lock) granted(hold, asked_ms, last);
    return hold->lock != NULL;
}

static int ask_to_be_told(struct player *p, struct request *r, struct hold *hold)
{
    return start(p, r, hold, 0);
}

static void choose_event(struct player *p, struct request *r)
{
    r->o.mode = HF_EXCLUSIVE;
    r->o.limit = 0;
    if (r->given && one_in(p, 4)) r->o.flags |= HF_AT_MOST_ONCE;
}

static int ask_to_run(struct player *p, struct request *r, struct hold *hold)
{
    hf_error err = {0, 0, ""};
    hf_once once = {0};
    choose_event(p, r);
    if (one_in(p, 2)) return start(p, r, hold, 1);
    uint64_t last = book_last(hold->key);
    int64_t asked_ms = suite_ms();
    int keep_ms = 1 + pick(p, 20);
    r->way = "hf_once_begin";
    int rc = hf_once_begin(stores[hold->store].h, keys[hold->key], keep_ms, r->given, &once, &err);
    if (rc)
        look_refused(p, r, hold->store, hold->key, rc, &err, asked_ms, 0);
    else if (!once.lock)
        look_done(p, r, hold->key, &once);
    hold->runs = 1;
    hold->lock = once.lock;
    if (hold->lock) granted(hold, asked_ms, last);
    return hold->lock != NULL;
}

int ask(struct player *p, struct request *r, struct hold *holds)
{
    static int (*const ways[])(struct player *, struct request *, struct hold *) = {
        ask_plainly, ask_plainly, ask_plainly, ask_for_all, ask_to_be_told, ask_to_run};
    return ways[pick(p, sizeof ways / sizeof *ways)](p, r, holds);
}
