/*
 * session.c - see session.h.
 */
#include "session.h"

#include "deadlines.h"
#include "kept_error.h"
#include "os.h"
#include "renewal.h"

#include <stdlib.h>

/* GRAIN_US: a session with less than a millisecond left counts as run out, because hf_left_ms
   rounds down. SOON_US: the longest pause before a failed request to keep a session is repeated. */
enum { SOON_US = 500000, GRAIN_US = 1000 };

/* Returns `ms` in µs, less the most by which two clocks may drift apart in that time. */
static int64_t safe_us(int64_t ms) { return ms * (1000 - HF_CLOCK_RATE_PPM / 1000); }

/* Notes that a request sent at sent_us has made the session live for `ms`. */
static void lasts(struct hf_session *t, int64_t sent_us, int64_t ms)
{
    t->lives_until_us = sent_us + safe_us(ms);
    t->until_us = hf__min64(t->lives_until_us, sent_us + safe_us(t->lease_ms));
    /* The lease of a session that is for one grant begins later, with the grant
       (hf__session_begins). A session that was made elsewhere lasts for as long as the store says.
     */
    if (t->adopted || (t->own && t->keep_at_us != INT64_MAX)) t->until_us = t->lives_until_us;
    if (t->keep_at_us != INT64_MAX) t->keep_at_us = sent_us + (int64_t)t->lease_ms * 1000 / 3;
}

/* ---- losing, forgetting ---- */

/* Marks the session as over and reports that. Called under the mutex, by the thread that has set
   `busy`, or while no thread has. */
static void lose(struct hf_sessions *s, struct hf_session *t)
{
    t->gone = 1;
    t->keep_at_us = INT64_MAX;
    s->above->lost(s->of, t);
}

static void dispose(struct hf_session *t)
{
    hf__error_clear(&t->why);
    free(t);
}

/* Puts a session that is in no list any more into `ending`, so that the store is asked to end it;
   or frees it if it is over, or is left to run out. */
static void part_with(struct hf_sessions *s, struct hf_session *t)
{
    if (t->gone || t->left) {
        dispose(t);
        return;
    }
    t->next = s->ending;
    s->ending = t;
}

static void forget(struct hf_sessions *s, struct hf_session *t)
{
    struct hf_session **at = &s->all;
    while (*at != t) at = &(*at)->next;
    *at = t->next;
    part_with(s, t);
    if (s->ending && !s->above->need_renewer(s->of, NULL)) s->above->wake_renewer(s->of);
}

void hf__session_put(struct hf_sessions *s, struct hf_session *t)
{
    if (!t || --t->users) return;
    t->used_at_us = hf__local_us();
    if (t->own || t->gone) forget(s, t);
}

/* Leaves the sessions in `ending` to run out. */
static void drop_ending(struct hf_sessions *s)
{
    for (struct hf_session *t; (t = s->ending);) {
        s->ending = t->next;
        dispose(t);
    }
}

/* Asks the store to end one session that is no longer needed. Called with the mutex, which is
   released during the request. */
static void end_one(struct hf_sessions *s)
{
    struct hf_session *t = s->ending;
    s->ending = t->next;
    pthread_mutex_unlock(s->mu);
    int rc = hf__port_lease_end(s->port, t->id, NULL);
    dispose(t);
    pthread_mutex_lock(s->mu);
    /* After an error the store isn't asked about the others: if it doesn't answer, each request
       would take a whole timeout. */
    if (rc && rc != HF_LOST) drop_ending(s);
}

void hf__sessions_close(struct hf_sessions *s, int away)
{
    pthread_mutex_lock(s->mu);
    while (s->all) {
        struct hf_session *t = s->all;
        s->all = t->next;
        t->left |= (uint8_t)away;
        part_with(s, t);
    }
    while (s->ending && !away) end_one(s);
    drop_ending(s);
    pthread_mutex_unlock(s->mu);
}

/* ---- making, keeping ---- */

static struct hf_session *add(struct hf_sessions *s, uint32_t lease_ms, int own)
{
    struct hf_session *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    t->lease_ms = lease_ms;
    t->own = (uint8_t)own;
    t->next = s->all;
    s->all = t;
    return t;
}

int hf__session_stale(const struct hf_sessions *s, const struct hf_session *t)
{
    const hf_session_ops *ops = s->port->caps.sessions;
    return ops->stale && ops->stale(s->port->st, t->id);
}

static struct hf_session *shared(const struct hf_sessions *s, uint32_t lease_ms)
{
    for (struct hf_session *t = s->all; t; t = t->next)
        if (!t->own && !t->gone && t->lease_ms == lease_ms && !hf__session_stale(s, t)) return t;
    return NULL;
}

/* Makes the keepers look at the sessions again. If no keeper runs, the renewer keeps the sessions.
 */
static void kick(struct hf_sessions *s)
{
    if (!s->above->kick_keepers(s)) s->above->wake_renewer(s->of);
}

static int make(struct hf_sessions *s, uint32_t lease_ms, int own, struct hf_session **ret,
                hf_error *err)
{
    uint64_t session;
    int64_t ms;
    s->making += !own;
    pthread_mutex_unlock(s->mu);
    int64_t sent_us = hf__local_us();
    int rc = hf__port_lease_make(s->port, lease_ms, &session, &ms, err);
    /* If the session was made all the same, no row names it, and it ends by itself. */
    if (rc == HF_UNKNOWN) rc = HF_UNAVAILABLE;
    pthread_mutex_lock(s->mu);
    s->making -= !own;
    pthread_cond_broadcast(s->changed);
    if (!rc) rc = s->above->need_renewer(s->of, err);
    if (rc) return rc;
    struct hf_session *t = add(s, lease_ms, own);
    if (!t) return hf_fail(err, HF_NOMEM, 0, "session: out of memory");
    t->id = session;
    lasts(t, sent_us, ms);
    kick(s);
    *ret = t;
    return 0;
}

/* Returns 1 if the session has run out. Never for an adopted session, about which the store's
   answer decides: the store may count in whole seconds, and another process may have kept it. */
static int run_out(const struct hf_session *t, int64_t now_us)
{
    return !t->adopted && now_us + GRAIN_US > t->until_us;
}

/* Returns how long one attempt to keep the session may take, in µs, at most io_timeout_ms. If no
   keeper keeps the session (keep_at_us is INT64_MAX), a call of the program asks for it, and the
   attempt may take longer. */
static int64_t patience_us(struct hf_sessions *s, const struct hf_session *t)
{
    enum hf_renewal_try nth = t->mute ? HF_RENEWAL_AGAIN : HF_RENEWAL_FIRST;
    if (t->keep_at_us == INT64_MAX) nth = HF_RENEWAL_CALLED;
    int64_t us =
        hf__renewal_patience_us(nth, (int64_t)t->lease_ms * 1000, t->until_us - hf__local_us(),
                                hf__port_round_trip_us(s->port));
    return hf__min64(s->port->io_timeout_ms * 1000, us);
}

int hf__session_keep(struct hf_sessions *s, struct hf_session *t, hf_error *err)
{
    int64_t ms;
    hf_error why = {0};
    if (!err) err = &why; /* its text is kept in t->why */
    while (t->busy) pthread_cond_wait(s->changed, s->mu);
    if (!t->gone && run_out(t, hf__local_us())) lose(s, t);
    if (t->gone) return hf_fail(err, HF_LOST, 0, "session: its lease has run out");
    t->busy = 1;
    int64_t patience = patience_us(s, t);
    pthread_mutex_unlock(s->mu);
    int64_t sent_us = hf__local_us();
    int rc = hf__port_lease_keep(s->port, t->id, sent_us + patience, &ms, err);
    pthread_mutex_lock(s->mu);
    int64_t now = hf__local_us(); /* read under the mutex, so that a session that any thread has
                                     reported as over stays over */
    t->busy = 0;
    t->mute = rc == HF_UNAVAILABLE || rc == HF_UNKNOWN;
    pthread_cond_broadcast(s->changed);
    if (rc) hf__error_keep(&t->why, err);
    if (rc == HF_LOST || run_out(t, now)) lose(s, t);
    if (t->gone)
        return rc == HF_LOST ? rc : hf_fail(err, HF_LOST, 0, "session: its lease has run out");
    int64_t until_us = t->until_us;
    if (!rc) {
        hf__error_clear(&t->why);
        lasts(t, sent_us, ms);
        if (t->until_us < until_us) s->above->ends_sooner(s->of, t);
        if (now + GRAIN_US > t->until_us) /* an adopted session: over since the store answered? */
            rc = hf_fail(err, HF_UNAVAILABLE, 0,
                         "session: the store's answer took longer than its lease");
    } else if (t->keep_at_us != INT64_MAX) {
        /* If this time has passed when the attempt ends, the next attempt is made at once. */
        t->keep_at_us = sent_us + hf__min64((int64_t)t->lease_ms * 1000 / 24, SOON_US);
    }
    kick(s);
    return rc;
}

int hf__session_have(struct hf_sessions *s, uint32_t lease_ms, int own, struct hf_session **at,
                     hf_error *err)
{
    int rc = 0;
    while (!own && s->making && !*at) pthread_cond_wait(s->changed, s->mu);
    for (int tries = 0; tries < 3; tries++) {
        struct hf_session *t = *at;
        if (!t && !own && (t = shared(s, lease_ms))) {
            t->users++;
            *at = t;
        }
        if (!t) {
            rc = make(s, lease_ms, own, at, err);
            if (!rc) (*at)->users++;
            return rc;
        }
        if (!t->gone && t->until_us - hf__local_us() >= safe_us(t->lease_ms) / 2) return 0;
        rc = hf__session_keep(s, t, err);
        if (rc != HF_LOST) return rc;
        *at = NULL;
        hf__session_put(s, t);
    }
    return HF_UNAVAILABLE; /* three sessions, one after the other, were dead */
}

struct hf_session *hf__session_adopt(struct hf_sessions *s, const hf_party *p, int64_t sent_us,
                                     int64_t ms)
{
    struct hf_session *t = add(s, p->lease_ms, 1);
    if (!t) return NULL;
    t->users = 1;
    t->id = p->session;
    t->keep_at_us = INT64_MAX;
    t->adopted = 1;
    /* Another process keeps and ends the session, unless the grant is detached. */
    t->foreign = t->left = !(p->flags & HF_PARTY_DETACHED);
    t->lives_until_us = t->until_us = sent_us + safe_us(ms);
    return t;
}

void hf__session_begins(struct hf_sessions *s, struct hf_session *t, int64_t asked_us)
{
    int64_t all = safe_us(t->lease_ms);
    t->keep_at_us = INT64_MAX;
    /* If the session was made much earlier than the grant, because the request had to wait, the
       session is kept once more, so that it lasts for the whole lease. */
    if (t->lives_until_us < asked_us + all - all / 16 && hf__session_keep(s, t, NULL) == HF_LOST)
        return;
    t->until_us = hf__min64(t->lives_until_us, asked_us + all);
}

int hf__session_kept(const struct hf_sessions *s, uint64_t session)
{
    for (const struct hf_session *t = s->all; t; t = t->next)
        if (!t->own && !t->gone && t->id == session) return 1;
    return 0;
}

void hf__session_tend(struct hf_sessions *s, struct hf_session *t)
{
    if (!t->users && hf__local_us() - t->used_at_us >= (int64_t)t->lease_ms * 1000) {
        t->left = 1; /* unused for a whole lease: it may run out */
        forget(s, t);
        return;
    }
    t->users++; /* so that no other thread frees the session meanwhile */
    hf__session_keep(s, t, NULL);
    if (!--t->users && (t->own || t->gone)) forget(s, t);
}

int64_t hf__sessions_tend(struct hf_sessions *s)
{
    int64_t next;
    /* One session in each call: locks may give up sessions faster than the store ends them, and
       keeping the others must not wait for that. */
    if (s->ending) end_one(s);
again:
    if (s->closed) return 0;
    next = INT64_MAX;
    int kept = !s->all || s->above->kick_keepers(s);
    for (struct hf_session *t = s->all; t && !kept; t = t->next) {
        if (t->gone || t->busy) continue;
        if (t->keep_at_us <= hf__local_us()) {
            hf__session_tend(s, t);
            goto again;
        }
        next = hf__min64(next, t->keep_at_us);
    }
    return next;
}
