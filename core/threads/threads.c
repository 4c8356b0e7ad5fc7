/*
 * threads.c - the expiry monitor and the renewer of a handle (see handle.h).
 */
#include "threads.h"

#include "belief.h"
#include "deadline_list.h"
#include "deferred_cancel.h"
#include "handle.h"
#include "kept_error.h"
#include "lock.h"
#include "lost.h"
#include "os.h"
#include "renewals.h"
#include "session.h"
#include "wait_monitor.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { BREAK_LOOK_US = 250000, MOURN_LOOKS = 11 };

/* A death may be told a little before the store knows it: when to ask again after being told. */
static const int64_t mourn_after_us[MOURN_LOOKS] = {
    0, 300, 1000, 3000, 10000, 30000, 100000, 300000, 1000000, 3000000, 10000000};

/* ---- the expiry monitor ---- */

/* Has somebody ended a grant that lasts as long as its session? Or is the store gone, in which case
   others may be granted the key by another one? Under the mutex, dropped. */
static void look_for_break(hf *h, hf_lock *l)
{
    hf_row row;
    l->busy = 1;
    pthread_mutex_unlock(&h->mu);
    hf_row_init(&row);
    hf_error err = {0};
    int rc = hf__port_get(&h->port, &l->e->key, &row, &err);
    int64_t at = rc ? -1 : hf__find_grant(&row, l->token);
    int there = rc ? rc != HF_CORRUPT : at >= 0;
    pthread_mutex_lock(&h->mu);
    /* Who knows the token may have given it another lease, which counts. */
    if (at >= 0) l->expires_us = row.party[at].expires_us;
    hf_row_clear(&row);
    l->ask_at_us = hf__local_us() + BREAK_LOOK_US;
    if (!there) {
        hf__error_keep(&l->why, &err);
        hf__mark_lost(l, HF_BY_STORE);
    }
    hf__let_go(l);
}

/* One lock whose time has come: loses it, tells, looks. Under the mutex, dropped: then others may
   have it, and it may be gone. */
static void tend_lock(hf *h, hf_lock *l, int64_t now)
{
    int instant = h->port.caps.local != NULL;
    if (l->pending_release) {
        if (instant && !l->busy && l->ask_at_us <= now) hf__release(l, NULL);
        return;
    }
    if (!l->lost && !l->releasing) {
        /* While an adopted hold is being renewed, the store's answer decides. */
        int decides = l->session && !(l->session->adopted && l->busy);
        if (decides && now >= hf__session_until(l) + (l->session->adopted ? ADOPTED_US : 0))
            hf__mark_lost(l, HF_BY_TIME);
        if (l->expires_us && hf__lease_ends(l, now) <= now) hf__mark_lost(l, HF_BY_TIME);
        if (l->hold_until_us && now >= l->hold_until_us) hf__mark_lost(l, HF_BY_MAX_HOLD);
    }
    /* Not while it is being given back: its memory may be another grant's by then. */
    if (l->lost && l->on_lost && !l->loss_reported && !l->releasing) {
        hf__run_on_lost(l);
        return;
    }
    int asks = (l->lost_fd >= 0 || l->on_lost) && instant;
    if (!l->lost && !l->releasing && !l->busy && asks && l->ask_at_us <= now) look_for_break(h, l);
}

static void look_again(hf_lock *l, void *arg)
{
    hf *h = arg;
    if (l->watch.nth) hf__deadline_set(&h->watched, &l->watch, hf__watch_at(l, hf__local_us()));
}

/* Those whose time has come, the first of them first. When to look again. Under the mutex, dropped.
 */
static int64_t tend_locks(hf *h)
{
    uint64_t steps = hf__port_clock_jumps(&h->port);
    if (steps != h->clock_jumps)
        hf__each_lock(h, look_again, h); /* the clock jumped: all ends anew */
    h->clock_jumps = steps;
    for (struct hf_deadline *d; (d = h->watched.first);) {
        hf_lock *l = HF_DEADLINE_OF(d, hf_lock, watch);
        int64_t now = hf__local_us();
        if (d->at_us > now) return d->at_us;
        int64_t at = hf__watch_at(l, now); /* it may have been renewed meanwhile */
        if (at <= now) {
            /* Whoever has it then says when to look again. */
            hf__deadline_set(&h->watched, d, INT64_MAX);
            tend_lock(h, l, now);
        } else {
            hf__deadline_set(&h->watched, d, at);
        }
    }
    return INT64_MAX;
}

static void monitor_sleep(hf *h, struct pollfd *fds, int64_t until)
{
    int64_t left = until == INT64_MAX ? -1 : until - hf__local_us();
    if (until != INT64_MAX && left < 0) left = 0;
    struct timespec t = {left / 1000000, left % 1000000 * 1000};
    h->monitor_sleeps = 1;
    pthread_mutex_unlock(&h->mu);
    ppoll(fds, 2, left < 0 ? NULL : &t, NULL);
    pthread_mutex_lock(&h->mu);
    h->monitor_sleeps = 0;
    uint64_t n;
    if (read(h->monitor_fd, &n, sizeof n) < 0) return; /* nobody had kicked */
}

void *hf__expiry_monitor(void *arg)
{
    hf *h = arg;
    struct pollfd fds[2] = {{h->monitor_fd, POLLIN, 0}, {-1, POLLIN, 0}};
    int64_t mourn_at = 0, told_at = 0;
    const hf_liveness_ops *liveness = h->port.caps.liveness;
    int looks = 0;
    pthread_mutex_lock(&h->mu);
    while (h->closing < 3) {
        if (h->port.caps.local && liveness && !h->mourning && h->at_store) {
            /* From here on deaths are told; who died before is found by looking once. */
            int can = liveness->death_fd != NULL;
            fds[1].fd = can ? liveness->death_fd(h->port.st) : -1;
            h->mourning = !can || fds[1].fd >= 0 ? 1 : -1;
            hf__look_after_waits(h);
        }
        if (fds[1].revents & POLLIN) {
            fds[1].revents = 0;
            if (liveness->death_read(h->port.st)) {
                told_at = mourn_at = hf__local_us();
                looks = 0;
            }
        }
        if (looks < MOURN_LOOKS && told_at && hf__local_us() >= mourn_at) {
            hf__look_for_deaths(h);
            mourn_at = ++looks < MOURN_LOOKS ? told_at + mourn_after_us[looks] : INT64_MAX;
        }
        h->monitor_todo = 0; /* a kick from here on asks for another round */
        h->monitor_until_us = INT64_MAX;
        int64_t until = looks < MOURN_LOOKS && told_at ? mourn_at : INT64_MAX, waits = INT64_MAX;
        until = hf__min64(until, tend_locks(h));
        if (h->port.caps.local) waits = hf__tend_waits(h);
        until = hf__min64(until, hf__min64(waits, hf__tend_claims(h)));
        if (h->closing == 3 || h->monitor_todo) continue;
        h->monitor_until_us = until;
        monitor_sleep(h, fds, until);
    }
    pthread_mutex_unlock(&h->mu);
    return NULL;
}

/* ---- the renewer ---- */

void *hf__renewer(void *arg)
{
    hf *h = arg;
    pthread_mutex_lock(&h->mu);
    while (h->closing < 3) {
        int64_t until_us = hf__sessions_tend(&h->sessions);
        if (h->closing < 3) until_us = hf__min64(until_us, hf__deferred_cancels_tend(h));
        if (h->closing == 3) break;
        /* At once: some were given up while this thread wasn't asleep. */
        if (h->sessions.ending) until_us = 0;
        h->renewer_until_us = hf__min64(hf__renewals_tend(h), until_us);
        hf__cond_until(&h->renewer_cond, &h->mu, h->renewer_until_us);
        h->renewer_until_us = 0;
    }
    pthread_mutex_unlock(&h->mu);
    return NULL;
}
