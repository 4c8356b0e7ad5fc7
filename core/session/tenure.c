/*
 * tenure.c - sessions that end by themselves unless they are kept (stores with HF_CAN_LEASES).
 *
 * Such a store has no clock that a lease could be counted by, but it counts one itself: the life of
 * a session. A tenure is such a session of ours, of the length of a lease, and what we know of its
 * end by the local clock: the moment before the request that made it or kept it, and its length.
 * The store counts from a later one.
 *
 * Holds of one lease length share a tenure, and all waits share another, short one, as long as a
 * claim may take: who doesn't come for what it was handed is passed over when that ends. The
 * renewer keeps them, however many hang on them, by one request every third of their length. A hold
 * that isn't renewed, or that outlives this handle, has a tenure of its own. Where a session wears
 * out (etcd: when there is a new leader) holds go over to a new one when they are renewed.
 *
 * What is over once stays over: a tenure that was kept too late is dead to us, whatever the store
 * says.
 */
#include "handle.h"

#include <stdlib.h>
#include <string.h>

/* hf_left_ms says 0 for less than a millisecond. */
enum { SOON_US = 500000, GRAIN_US = 1000 };

/* Shorter by as much as two clocks' rates may differ. */
static int64_t safe_us(int64_t ms) { return ms * (1000 - HF_CLOCK_RATE_PPM / 1000); }

/* The request that was sent then has made it live for `ms`. */
static void lasts(struct hf_tenure *t, int64_t sent_us, int64_t ms)
{
    t->lives_until_us = sent_us + safe_us(ms);
    t->until_us = hf__min64(t->lives_until_us, sent_us + safe_us(t->lease_ms));
    /* One grant's own counts from the grant: hf__tenure_begins. */
    if (t->own && t->keep_at_us != INT64_MAX) t->until_us = t->lives_until_us;
    if (t->keep_at_us != INT64_MAX) t->keep_at_us = sent_us + (int64_t)t->lease_ms * 1000 / 3;
}

/* ---- losing, forgetting ---- */

static void lose_by(hf_lock *l, void *t)
{
    const struct hf_tenure *over = t;
    if (l->tenure != over && l->doubt != over) return;
    if (over->why) hf__reason_keep(&l->why, over->why);
    hf__lock_lose(l, HF_BY_TIME);
}

/* It ends sooner than its holds were to be looked at. */
static void look_sooner(hf_lock *l, void *t)
{
    if (l->tenure == t || l->doubt == t) hf__care(l);
}

/* Of one that wasn't gone: who finds that out is alone with it (`busy`). */
static void lose(hf *h, struct hf_tenure *t)
{
    t->gone = 1;
    t->keep_at_us = INT64_MAX;
    hf__each_lock(h, lose_by, t);
    for (struct hf_wait *w = h->at_store; w; w = w->list_next)
        if (w->tenure == t || w->standing == t) {
            if (!w->pumped) w->look_at_us = 0;
            hf__notify(w);
        }
    hf__kick_pump(h);
}

static void dispose(struct hf_tenure *t)
{
    hf__reason_clear(&t->why);
    free(t);
}

/* It is in no list any more. What isn't over, nor left to itself, is to be ended at the store. */
static void part_with(hf *h, struct hf_tenure *t)
{
    if (t->gone || t->left) {
        dispose(t);
        return;
    }
    t->next = h->ending;
    h->ending = t;
}

static void forget(hf *h, struct hf_tenure *t)
{
    struct hf_tenure **at = &h->tenures;
    while (*at != t) at = &(*at)->next;
    *at = t->next;
    part_with(h, t);
    if (h->ending && !hf__need_renewer(h, NULL)) pthread_cond_signal(&h->renewer_cond);
}

/* Under the mutex. */
void hf__tenure_put(hf *h, struct hf_tenure *t)
{
    if (!t || --t->users) return;
    t->used_at_us = hf__local_us();
    if (t->own || t->gone) forget(h, t);
}

/* Under the mutex, dropped: tells the store of one that nobody needs any more. */
static void end_one(hf *h)
{
    struct hf_tenure *t = h->ending;
    h->ending = t->next;
    pthread_mutex_unlock(&h->mu);
    int rc = hf__port_lease_end(&h->port, t->session, NULL);
    dispose(t);
    pthread_mutex_lock(&h->mu);
    /* They end without our help, too: not worth several times the patience. */
    while (rc && rc != HF_LOST && h->ending) {
        t = h->ending;
        h->ending = t->next;
        dispose(t);
    }
}

/* When the handle is closed. No other thread is left. `away`: the store doesn't answer, and isn't
   asked to end what ends by itself. */
void hf__tenures_close(hf *h, int away)
{
    pthread_mutex_lock(&h->mu);
    for (struct hf_regret *r; (r = h->regrets);) {
        h->regrets = r->next;
        free(r);
    }
    while (h->tenures) {
        struct hf_tenure *t = h->tenures;
        h->tenures = t->next;
        t->left |= (uint8_t)away;
        part_with(h, t);
    }
    while (h->ending && !away) end_one(h);
    for (struct hf_tenure *t; (t = h->ending);) {
        h->ending = t->next;
        dispose(t);
    }
    pthread_mutex_unlock(&h->mu);
}

/* ---- making, keeping ---- */

static struct hf_tenure *add(hf *h, uint32_t lease_ms, int own)
{
    struct hf_tenure *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    t->lease_ms = lease_ms;
    t->own = (uint8_t)own;
    t->next = h->tenures;
    h->tenures = t;
    return t;
}

static int worn(const hf *h, const struct hf_tenure *t)
{
    const hf_driver *drv = h->port.drv;
    return drv->lease_worn && drv->lease_worn(h->port.st, t->session);
}

static struct hf_tenure *shared(const hf *h, uint32_t lease_ms)
{
    for (struct hf_tenure *t = h->tenures; t; t = t->next)
        if (!t->own && !t->gone && t->lease_ms == lease_ms && !worn(h, t)) return t;
    return NULL;
}

/* One is to be kept, or at another time. Where no keeper can be started the renewer does it. */
static void kick(hf *h)
{
    if (!hf__kick_keepers(h)) pthread_cond_signal(&h->renewer_cond);
}

static int make(hf *h, uint32_t lease_ms, int own, struct hf_tenure **ret, hf_error *err)
{
    uint64_t session;
    int64_t ms;
    h->making += !own;
    pthread_mutex_unlock(&h->mu);
    int64_t sent_us = hf__local_us();
    int rc = hf__port_lease_make(&h->port, lease_ms, &session, &ms, err);
    /* A session whose making wasn't confirmed is named by no row, and ends by itself. */
    if (rc == HF_UNKNOWN) rc = HF_UNAVAILABLE;
    pthread_mutex_lock(&h->mu);
    h->making -= !own;
    pthread_cond_broadcast(&h->changed);
    if (!rc) rc = hf__need_renewer(h, err);
    if (rc) return rc;
    struct hf_tenure *t = add(h, lease_ms, own);
    if (!t) return hf_fail(err, HF_NOMEM, 0, "lease: out of memory");
    t->session = session;
    lasts(t, sent_us, ms);
    kick(h);
    *ret = t;
    return 0;
}

/* Has it run out? Of a session that was made elsewhere this handle knows only how long it lives at
   least (the store may count in whole seconds, and others may have kept it): there the store's
   answer decides. */
static int run_out(const struct hf_tenure *t, int64_t now_us)
{
    return !t->adopted && now_us + GRAIN_US > t->until_us;
}

/* How long an attempt to keep it may take: a third of its length where the caller asks for it; else
   a sixth, or half of that if the one before wasn't answered, so that there is time for several.
   But what takes longer every day is waited for. */
static int64_t patience_us(hf *h, const struct hf_tenure *t)
{
    int64_t third = (int64_t)t->lease_ms * 1000 / 3, part = t->mute ? third / 4 : third / 2;
    if (t->keep_at_us == INT64_MAX) part = third;
    int64_t slow = hf__min64(3 * hf__port_trip_us(&h->port), third);
    return hf__min64(h->port.io_timeout_ms * 1000, slow > part ? slow : part);
}

/* Under the mutex, dropped. HF_LOST: it is over, and so is whatever hangs on it. */
int hf__tenure_keep(hf *h, struct hf_tenure *t, hf_error *err)
{
    int64_t ms;
    hf_error why = {0};
    if (!err) err = &why; /* the session keeps it */
    while (t->busy) pthread_cond_wait(&h->changed, &h->mu);
    if (!t->gone && run_out(t, hf__local_us())) lose(h, t);
    if (t->gone) return hf_fail(err, HF_LOST, 0, "lease: it has run out");
    t->busy = 1;
    int64_t patience = patience_us(h, t);
    pthread_mutex_unlock(&h->mu);
    int64_t sent_us = hf__local_us();
    int rc = hf__port_lease_keep(&h->port, t->session, sent_us + patience, &ms, err);
    pthread_mutex_lock(&h->mu);
    int64_t now = hf__local_us(); /* under the mutex: who was told that it is over mustn't err */
    t->busy = 0;
    t->mute = rc == HF_UNAVAILABLE || rc == HF_UNKNOWN;
    pthread_cond_broadcast(&h->changed);
    if (rc) hf__reason_keep(&t->why, err);
    if (rc == HF_LOST || run_out(t, now)) lose(h, t);
    if (t->gone) return rc == HF_LOST ? rc : hf_fail(err, HF_LOST, 0, "lease: it has run out");
    int64_t until_us = t->until_us;
    if (!rc) {
        hf__reason_clear(&t->why);
        lasts(t, sent_us, ms);
        if (t->until_us < until_us) hf__each_lock(h, look_sooner, t);
        if (now + GRAIN_US > t->until_us) /* adopted: it may have ended since the store answered */
            rc = hf_fail(err, HF_UNAVAILABLE, 0, "lease: the store's answer took longer than it");
    } else if (t->keep_at_us != INT64_MAX) {
        /* At once, if that attempt has taken its time. */
        t->keep_at_us = sent_us + hf__min64((int64_t)t->lease_ms * 1000 / 12, SOON_US);
    }
    kick(h);
    return rc;
}

/* Under the mutex, dropped. In *at, which is the caller's reference or NULL: a tenure of which at
   least a half is left. */
int hf__tenure_have(hf *h, uint32_t lease_ms, int own, struct hf_tenure **at, hf_error *err)
{
    int rc = 0;
    while (!own && h->making && !*at) pthread_cond_wait(&h->changed, &h->mu);
    for (int tries = 0; tries < 3; tries++) {
        struct hf_tenure *t = *at;
        if (!t && !own && (t = shared(h, lease_ms))) {
            t->users++;
            *at = t;
        }
        if (!t) {
            rc = make(h, lease_ms, own, at, err);
            if (!rc) (*at)->users++;
            return rc;
        }
        if (!t->gone && t->until_us - hf__local_us() >= safe_us(t->lease_ms) / 2) return 0;
        rc = hf__tenure_keep(h, t, err);
        if (rc != HF_LOST) return rc;
        *at = NULL;
        hf__tenure_put(h, t);
    }
    return HF_UNAVAILABLE; /* each of them was dead */
}

/* A grant that was made elsewhere: what is left of its session. Under the mutex. */
struct hf_tenure *hf__tenure_adopt(hf *h, const hf_party *p, int64_t sent_us, int64_t ms)
{
    struct hf_tenure *t = add(h, p->lease_ms, 1);
    if (!t) return NULL;
    t->users = 1;
    t->session = p->session;
    t->keep_at_us = INT64_MAX;
    t->adopted = 1;
    /* Bound to the life of another process: that keeps it, and ends it. */
    t->foreign = t->left = !(p->flags & HF_PARTY_DETACHED);
    t->lives_until_us = t->until_us = sent_us + safe_us(ms);
    return t;
}

/* One grant's own, from now on not kept: it counts from asked_us on, as a lease does that is
   counted from its grant. Under the mutex, dropped. */
void hf__tenure_begins(hf *h, struct hf_tenure *t, int64_t asked_us)
{
    int64_t all = safe_us(t->lease_ms);
    t->keep_at_us = INT64_MAX;
    /* It was made for one who then had to wait. */
    if (t->lives_until_us < asked_us + all - all / 16 && hf__tenure_keep(h, t, NULL) == HF_LOST)
        return;
    t->until_us = hf__min64(t->lives_until_us, asked_us + all);
}

int hf__tenure_kept(const hf *h, uint64_t session)
{
    for (const struct hf_tenure *t = h->tenures; t; t = t->next)
        if (!t->own && !t->gone && t->session == session) return 1;
    return 0;
}

/* ---- what was given up ---- */

/* It is withdrawn in the background. Under the mutex. Without memory it stands until this handle is
   closed. */
void hf__regret(hf *h, struct hf_entry *e, const uint8_t id[16])
{
    struct hf_regret *r = calloc(1, sizeof *r);
    if (!r) return;
    memcpy(r->id, id, 16);
    r->e = e;
    r->at_us = hf__local_us() + SOON_US;
    e->refs++;
    r->next = h->regrets;
    h->regrets = r;
    if (!hf__need_renewer(h, NULL)) pthread_cond_signal(&h->renewer_cond);
}

/* Withdraws the one that is due longest: one at a time, for meanwhile sessions are to be kept. When
   to look again; 0 if the mutex was dropped. Under it; only the renewer takes any out. */
static int64_t tend_regrets(hf *h)
{
    struct hf_regret *r = h->regrets, **at = &h->regrets;
    if (!r) return INT64_MAX;
    for (struct hf_regret *other = r->next; other; other = other->next)
        if (other->at_us < r->at_us) r = other;
    if (r->at_us > hf__local_us()) return r->at_us;
    pthread_mutex_unlock(&h->mu);
    int rc = hf__withdraw(h, r->e, r->id, 1, 0, NULL);
    pthread_mutex_lock(&h->mu);
    r->at_us = hf__local_us() + SOON_US;
    if (rc && rc != HF_CORRUPT) return 0;
    while (*at != r) at = &(*at)->next;
    *at = r->next;
    hf__entry_put(r->e);
    free(r);
    return 0;
}

/* It is due: it is kept, or left to itself. Under the mutex, dropped. */
void hf__tenure_tend(hf *h, struct hf_tenure *t)
{
    if (!t->users && hf__local_us() - t->used_at_us >= (int64_t)t->lease_ms * 1000) {
        t->left = 1; /* nobody has needed it for long: it may run out */
        forget(h, t);
        return;
    }
    t->users++; /* which keeps it in the list */
    hf__tenure_keep(h, t, NULL);
    if (!--t->users && (t->own || t->gone)) forget(h, t);
}

/* The renewer's part: what was given up; and where no keeper can be started, what is due. When to
   look again. Under the mutex, dropped. */
int64_t hf__tenures_tend(hf *h)
{
    int64_t next;
    /* One a round: those who give them up may be quicker, and what is kept mustn't wait for that.
     */
    if (h->ending) end_one(h);
again:
    if (h->closing == 3) return 0;
    next = INT64_MAX;
    int kept = !h->tenures || hf__kick_keepers(h);
    for (struct hf_tenure *t = h->tenures; t && !kept; t = t->next) {
        if (t->gone || t->busy) continue;
        if (t->keep_at_us <= hf__local_us()) {
            hf__tenure_tend(h, t);
            goto again;
        }
        next = hf__min64(next, t->keep_at_us);
    }
    next = hf__min64(next, tend_regrets(h));
    return h->ending ? 0 : next; /* at once: some were given up while this thread wasn't asleep */
}

/* ---- what hangs on them ---- */

/* The store says that a session which this wait wrote with is dead. Under the mutex, dropped. */
void hf__tenures_doubt(hf *h, struct hf_wait *w)
{
    struct hf_tenure **at[] = {&w->tenure, &w->standing};
    for (int i = 0; i < 2; i++) {
        struct hf_tenure *t = *at[i];
        if (!t || hf__tenure_keep(h, t, NULL) != HF_LOST) continue;
        *at[i] = NULL;
        hf__tenure_put(h, t);
    }
}

/* Until when its holder may believe, by the local clock. It has a tenure. */
int64_t hf__tenure_until(const hf_lock *l)
{
    int64_t until = l->tenure->gone ? 0 : l->tenure->until_us;
    if (l->doubt) until = hf__min64(until, l->doubt->gone ? 0 : l->doubt->until_us);
    return until;
}

/* For a hold that is released but kept taken for what is left of at_least_ms: one of its own, that
   nobody keeps. None if that is over. Under the mutex, dropped. */
int hf__tenure_keeper(hf_lock *l, struct hf_tenure **ret, hf_error *err)
{
    int64_t left_ms = (int64_t)l->at_least_ms - (hf__local_us() - l->granted_at_us) / 1000;
    int rc = left_ms > 0 ? hf__tenure_have(l->h, (uint32_t)left_ms, 1, ret, err) : 0;
    if (!rc && *ret) (*ret)->keep_at_us = INT64_MAX;
    return rc;
}

/* The row goes on naming this grant; with which session? */
static int check(hf_lock *l, const struct hf_tenure *to, hf_row *row, hf_error *err)
{
    hf *h = l->h;
    struct hf_event ev = {.kind = HF_EV_RENEW, .token = l->token, .lease_ms = l->lease_ms};
    struct hf_outcome out;
    ev.session = to->session;
    int64_t until = hf__local_us() + hf__min64(h->port.io_timeout_ms, l->lease_ms / 3) * 1000;
    int rc = hf__port_get(&h->port, &l->e->key, row, err);
    if (rc) return rc;
    int64_t at = hf__find_grant(row, l->token);
    const hf_party *p = at < 0 ? NULL : &row->party[at];
    if (!p || p->flags & HF_PARTY_DEAD)
        return hf_fail(err, HF_LOST, 0, "renew '%s': the grant %llu is over", l->e->text,
                       (unsigned long long)l->token);
    /* In doubt it is written in any case: the lost write must not land any more. */
    if (p->session == to->session && !(p->flags & HF_PARTY_UNCLAIMED) && !l->doubt) return 0;
    rc = hf__turn(&h->port, &l->e->key, &ev, row, 1, until, &out, err);
    if (!rc && out.answer != HF_ANS_OK)
        rc = hf_fail(err, HF_LOST, 0, "renew '%s': the grant %llu is over", l->e->text,
                     (unsigned long long)l->token);
    return rc;
}

/* Exchanges the lock's tenure. */
static void move_to(hf *h, hf_lock *l, struct hf_tenure *to)
{
    struct hf_tenure *was = l->tenure;
    hf__tenure_put(h, l->doubt);
    l->doubt = NULL;
    l->tenure = to;
    hf__tenure_put(h, was);
}

/* A renewal with another session wasn't confirmed, and may land yet. It is made again, so that
   there are never more than the two that it may hold with, none of which is ended. */
static int settle_doubt(hf_lock *l, hf_row *row, hf_error *err)
{
    hf *h = l->h;
    struct hf_tenure *to = l->doubt;
    int64_t asked_us = hf__local_us();
    pthread_mutex_unlock(&h->mu);
    int rc = check(l, to, row, err);
    pthread_mutex_lock(&h->mu);
    if (!rc && to->own) hf__tenure_begins(h, to, asked_us);
    if (!rc && to->gone) rc = hf_fail(err, HF_LOST, 0, "renew '%s': too late", l->e->text);
    if (rc == HF_LOST) hf__lock_lose(l, to->gone ? HF_BY_TIME : HF_BY_STORE);
    if (rc) return rc;
    to->users++;
    move_to(h, l, to);
    return 0;
}

/* The renewal of such a hold: the tenure that it should have, and a look whether it is still there.
   Under the mutex, dropped; the lock is seized. */
int hf__tenure_renew(hf_lock *l, uint32_t lease_ms, int by_hand, hf_row *row, hf_error *err)
{
    hf *h = l->h;
    int own = l->renew_at_us == INT64_MAX || lease_ms != l->lease_ms;
    int rc = l->doubt ? settle_doubt(l, row, err) : 0;
    if (rc) return rc;
    struct hf_tenure *t = l->tenure, *to = NULL;
    int stays = t->own == own && !t->foreign && t->lease_ms == lease_ms;
    if (!own && !by_hand && worn(h, t)) stays = 0;
    if (stays) {
        t->users++;
        to = t;
        if (own || by_hand) rc = hf__tenure_keep(h, t, err);
    } else {
        rc = hf__tenure_have(h, lease_ms, own, &to, err);
    }
    int64_t asked_us = hf__local_us();
    if (!rc) {
        pthread_mutex_unlock(&h->mu);
        rc = check(l, to, row, err);
        pthread_mutex_lock(&h->mu);
    }
    if (!rc && !stays && own) hf__tenure_begins(h, to, asked_us);
    if (!rc && to->gone) rc = hf_fail(err, HF_LOST, 0, "renew '%s': too late", l->e->text);
    if (!rc) {
        move_to(h, l, to);
        return 0;
    }
    if (rc == HF_LOST) hf__lock_lose(l, to && !to->gone ? HF_BY_STORE : HF_BY_TIME);
    if (rc == HF_UNKNOWN && !stays) {
        l->doubt = to; /* it may hold with either */
        hf__care(l);
    } else {
        hf__tenure_put(h, to);
    }
    return rc;
}
