/*
 * lost.c - marks a lock as lost, tells its holder, and finds the reason. See lost.h.
 */
#include "lost.h"

#include "belief.h"
#include "deadline_list.h"
#include "handle.h"
#include "kept_error.h"
#include "os.h"
#include "renewal_queue.h"
#include "start_threads.h"
#include "thread.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- a lock is lost, and its holder is told ---- */

/* Returns the kept error of the lock, or else of its session; NULL: neither has one. */
static const hf_error *cause(const hf_lock *l)
{
    if (l->why) return l->why;
    if (l->session && l->session->why) return l->session->why;
    return l->pending_session ? l->pending_session->why : NULL;
}

/* Keeps "no answer" as the cause of a loss while a request for the lock is under way, unless
   another cause is kept. */
static void note_no_answer(hf_lock *l)
{
    hf_error why;
    if (cause(l)) return;
    hf_fail(&why, HF_UNAVAILABLE, 0, "the store didn't answer");
    hf__error_keep(&l->why, &why);
}

void hf__mark_lost(hf_lock *l, enum hf_lost_by by)
{
    if (l->lost) return;
    l->lost = 1;
    l->lost_by = (uint8_t)by;
    if (by == HF_BY_TIME && (l->busy || (l->session && l->session->busy))) note_no_answer(l);
    /* A pending release stays in the queue: its repetition frees the lock. */
    if (!l->pending_release) hf__renew_at(l, INT64_MAX);
    l->h->stats.lost++;
    if (l->lost_fd >= 0) hf__wake(l->lost_fd);
    if (l->on_lost) hf__set_deadline(l);
}

void hf__mark_expired(hf_lock *l)
{
    int capped = l->hold_until_us && hf__local_us() >= l->hold_until_us;
    hf__mark_lost(l, capped ? HF_BY_MAX_HOLD : HF_BY_TIME);
}

void hf__mark_corrupt(hf_lock *l, const hf_error *why)
{
    if (l->lost) return;
    hf__error_clear(&l->why); /* an earlier failure isn't why it is lost */
    hf__error_keep(&l->why, why);
    hf__mark_lost(l, HF_BY_STORE);
}

void hf__renewal_corrupt(hf_lock *l, const hf_error *why)
{
    int64_t now_us = hf__local_us();
    if (!l->corrupt_us) l->corrupt_us = now_us;
    if (now_us - l->corrupt_us >= hf__renewal_pause_us(l))
        hf__mark_corrupt(l, why);
    else
        hf__error_keep(&l->why, why);
}

void hf__run_on_lost(hf_lock *l)
{
    hf *h = l->h;
    void (*tell)(void *, hf_lock *) = l->on_lost;
    void *arg = l->on_lost_arg;
    l->loss_reported = 1;
    l->in_callback = 1;
    l->callback_thread = pthread_self();
    int freed = 0;
    l->freed = &freed;
    pthread_mutex_unlock(&h->mu);
    hf__begin_callback();
    tell(arg, l);
    hf__end_callback();
    pthread_mutex_lock(&h->mu);
    if (freed) return; /* released by the callback */
    l->freed = NULL;
    l->in_callback = 0;
    pthread_cond_broadcast(&h->changed);
}

int hf_lost_fd(hf_lock *l)
{
    HF_NOT_CANCELED;
    hf *h = l->h;
    if (hf__held_here(l, "lost", NULL)) return -1;
    pthread_mutex_lock(&h->mu);
    if (!l->lost && hf__need_monitor(h)) { /* without the monitor it would never become readable */
        pthread_mutex_unlock(&h->mu);
        return -1;
    }
    if (l->lost_fd < 0) {
        l->lost_fd = hf__wake_fd();
        if (l->lost && l->lost_fd >= 0) hf__wake(l->lost_fd);
        l->ask_at_us = 0;
        hf__set_deadline(l);
    }
    int fd = l->lost_fd;
    pthread_mutex_unlock(&h->mu);
    return fd;
}

int hf_on_lost(hf_lock *l, void (*lost)(void *arg, hf_lock *lock), void *arg)
{
    HF_NOT_CANCELED;
    hf *h = l->h;
    int rc = hf__held_here(l, "lost", NULL);
    if (rc) return rc;
    pthread_mutex_lock(&h->mu);
    if (lost) rc = hf__need_monitor(h); /* the monitor calls the callback */
    if (!rc) {
        l->on_lost = lost;
        l->on_lost_arg = arg;
    }
    if (!rc && lost) {
        l->ask_at_us = 0;
        hf__set_deadline(l);
    }
    pthread_mutex_unlock(&h->mu);
    return rc;
}

/* ---- why ---- */

/* Writes a time as "5 s" or "1.5 s", rounded up. */
static const char *seconds(int64_t ms, char *to, size_t cap)
{
    ms = (ms + 99) / 100 * 100;
    if (ms % 1000 && ms < 10000)
        snprintf(to, cap, "%lld.%lld s", (long long)(ms / 1000), (long long)(ms % 1000 / 100));
    else
        snprintf(to, cap, "%lld s", (long long)((ms + 999) / 1000));
    return to;
}

/* Returns 1 if the grant has ended by time, whether or not the lock is marked as lost. */
static int ran_out(const hf_lock *l)
{
    return l->lost ? l->lost_by == HF_BY_TIME : hf__time_is_over(l);
}

int hf__unanswered(const hf_lock *l) { return l->lost_by == HF_BY_TIME && cause(l); }

int hf__lost_error(const hf_lock *l, const char *what, hf_error *err)
{
    const hf_error *why = cause(l);
    unsigned long long token = l->token;
    char lease[32];
    if (l->lost_by == HF_BY_MAX_HOLD ||
        (!l->lost && l->hold_until_us && hf__local_us() >= l->hold_until_us))
        return hf_fail(err, HF_LOST, ETIME,
                       "%s '%s': the grant %llu has been held for as long as max_hold_ms allows",
                       what, l->e->text, token);
    if (ran_out(l) && l->claims)
        return hf_fail(err, HF_LOST, 0,
                       "%s '%s': the grant %llu is over: it was handed over, and its claim timeout "
                       "ran out before the claim was stored%s%s",
                       what, l->e->text, token, why ? ": " : "", why ? why->text : "");
    if (ran_out(l) && why)
        return hf_fail(
            err, HF_LOST, why->sys,
            "%s '%s': the grant %llu is over: its lease (%s) ran out, as it could not be "
            "renewed: %s",
            what, l->e->text, token, seconds(l->lease_ms, lease, sizeof lease), why->text);
    if (ran_out(l) && l->lease_ms)
        return hf_fail(err, HF_LOST, 0, "%s '%s': the grant %llu is over: its lease (%s) ran out",
                       what, l->e->text, token, seconds(l->lease_ms, lease, sizeof lease));
    if (l->lost && why && why->code == HF_CORRUPT)
        return hf_fail(err, HF_LOST, 0, "%s '%s': the grant %llu is over: %s", what, l->e->text,
                       token, why->text);
    return hf_fail(err, HF_LOST, 0,
                   "%s '%s': the grant %llu is over: it was released or broken, or its lease ran "
                   "out",
                   what, l->e->text, token);
}

/* Writes until when the key may stay held if its release wasn't confirmed. */
static void until_when(const hf_lock *l, char *to, size_t cap)
{
    char lease[32];
    int64_t left_ms = -1;
    if (l->expires_us) left_ms = (l->expires_us - hf__port_now(&l->h->port).lo_us + 999) / 1000;
    if (l->session) left_ms = (l->session->lives_until_us - hf__local_us() + 999) / 1000;
    if (l->at_least_ms && !l->expires_us && !l->session)
        snprintf(to, cap, "the lock may stay held");
    else if ((l->expires_us || l->session) && left_ms <= 0)
        /* A renewal that wasn't answered may have been made. */
        snprintf(to, cap, "%s",
                 l->unanswered || (l->session && l->session->mute)
                     ? "the lock may stay held until its lease ends"
                     : "its lease has ended");
    else if (l->expires_us || l->session)
        snprintf(to, cap, "the lock may stay held until its lease ends (%s)",
                 seconds(left_ms, lease, sizeof lease));
    else
        snprintf(to, cap, "the lock may stay held until this process ends");
}

/* Changes the error's text to "WHAT 'KEY': the text as it was; STATE"; or, if it is LOST, to "the
   text as it was; STATE": it names the key already. If that is too long, the old text is cut, not
   the state. */
static void add_state(const hf_lock *l, const char *what, const char *state, hf_error *err)
{
    char why[HF_TEXT_CAP];
    memcpy(why, err->text, sizeof why);
    size_t used = strlen(what) + strlen(l->e->text) + strlen(state) + 8;
    int most = used < sizeof err->text ? (int)(sizeof err->text - used) : 0;
    if (err->code == HF_LOST)
        hf_fail(err, HF_LOST, err->sys, "%.*s; %s", most, why, state);
    else
        hf_fail(err, err->code, err->sys, "%s '%s': %.*s; %s", what, l->e->text, most, why, state);
}

void hf__may_stay(const hf_lock *l, const char *what, hf_error *err)
{
    char until[96];
    if (!err) return;
    until_when(l, until, sizeof until);
    add_state(l, what, until, err);
}

void hf__not_marked(const hf_lock *l, hf_error *err)
{
    const char *state = "the event isn't marked as done, and may run again";
    if (!err) return;
    if (err->code == HF_UNKNOWN) state = "the event may not be marked as done, and may run again";
    /* Another client may have run it since. */
    if (err->code == HF_LOST) state = "this run hasn't marked the event as done; it may run again";
    add_state(l, "once", state, err);
}

int hf_lost_reason(const hf_lock *lock, hf_error *err)
{
    hf *h = lock->h;
    int rc = hf__held_here(lock, "hold", err);
    if (rc) return rc;
    pthread_mutex_lock(&h->mu);
    const hf_error *why = lock->lost ? cause(lock) : NULL;
    if (lock->lost) rc = hf__lost_error(lock, "hold", err);
    if (why && why->code == HF_CORRUPT) {
        rc = HF_CORRUPT;
        if (err) err->code = rc;
    }
    pthread_mutex_unlock(&h->mu);
    return rc;
}
