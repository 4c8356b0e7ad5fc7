/*
 * expiry_monitor.c - the expiry monitor: its loop, and what it does for locks that are due
 * (deadline_list.h says when they are). What it does for waits and claims is in wait_monitor.c.
 */
#include "deadline_list.h"
#include "handle.h"
#include "kept_error.h"
#include "lock.h"
#include "lost.h"
#include "os.h"
#include "release.h"
#include "session.h"
#include "threads.h"

#include <poll.h>
#include <time.h>
#include <unistd.h>

/* ---- the locks that are due ---- */

/* How often the store is asked about the grant of a lock for which hf__asks_store returns 1. */
enum { ASK_US = 250000 };

/* Asks the store whether it still has the lock's grant, which an operator may have ended, and marks
   the lock as lost if not. The lock is also lost if the store is damaged or was replaced
   (HF_CORRUPT): a new store may grant the key to others. Any other error changes nothing. Called
   with the mutex, which is released during the request. */
static void look_into_store(hf *h, hf_lock *l)
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
    /* Another client that has adopted the grant may have given it a lease, which then counts. */
    if (at >= 0) l->expires_us = row.party[at].expires_us;
    hf_row_clear(&row);
    l->ask_at_us = hf__local_us() + ASK_US;
    if (!rc) l->corrupt_us = 0;
    if (rc == HF_CORRUPT)
        hf__mark_corrupt(l, &err);
    else if (!there)
        hf__mark_lost(l, HF_BY_STORE);
    hf__let_go(l);
}

/* Handles one lock that is due: marks it lost, reports the loss, or asks the store. Called with the
   mutex, which may be released: other threads may then use the lock, and free it. */
static void tend_lock(hf *h, hf_lock *l, int64_t now)
{
    if (l->pending_release) {
        if (h->port.caps.local && !l->busy && l->ask_at_us <= now) hf__release(l, NULL);
        return;
    }
    if (!l->lost && !l->releasing) {
        if (now >= hf__session_over_at(l)) hf__mark_lost(l, HF_BY_TIME);
        if (l->expires_us && hf__lease_ends(l, now) <= now) hf__mark_lost(l, HF_BY_TIME);
        if (l->hold_until_us && now >= l->hold_until_us) hf__mark_lost(l, HF_BY_MAX_HOLD);
    }
    /* The loss of a lock that is being released isn't reported: when the callback runs, the memory
       may be another grant's. */
    if (l->lost && l->on_lost && !l->loss_reported && !l->releasing) {
        hf__run_on_lost(l);
        return;
    }
    /* After the ends by time: if the grant is over by time, that is the reason of the loss, and the
       store isn't asked. */
    if (!l->lost && !l->releasing && hf__asks_store(l) && l->ask_at_us <= now)
        look_into_store(h, l);
}

static void schedule_again(hf_lock *l, void *arg)
{
    (void)arg;
    if (l->watch.nth) hf__deadline_set(&l->h->watched, &l->watch, hf__watch_at(l, hf__local_us()));
}

/* Handles the locks that are due, the earliest first. Returns the local time of the next one;
   INT64_MAX: there is none. Called with the mutex, which may be released. */
static int64_t tend_locks(hf *h)
{
    uint64_t steps = hf__port_clock_jumps(&h->port);
    if (steps != h->clock_jumps)
        hf__each_lock(h, schedule_again, NULL); /* the store's clock was set: each end is at another
                                                local time now */
    h->clock_jumps = steps;
    for (struct hf_deadline *d; (d = h->watched.first);) {
        hf_lock *l = HF_DEADLINE_OF(d, hf_lock, watch);
        int64_t now = hf__local_us();
        if (d->at_us > now) return d->at_us;
        int64_t at = hf__watch_at(l, now); /* the lock may have been renewed meanwhile */
        if (at <= now) {
            /* tend_lock, or the thread that uses the lock then, schedules the next look. */
            hf__deadline_set(&h->watched, d, INT64_MAX);
            tend_lock(h, l, now);
        } else {
            hf__deadline_set(&h->watched, d, at);
        }
    }
    return INT64_MAX;
}

/* ---- the thread ---- */

enum { DEATH_LOOKS = 11 };

/* The death descriptor may become readable a little before `alive` says that the session is dead.
   So the monitor asks again, at these times after the notice. */
static const int64_t death_look_after_us[DEATH_LOOKS] = {
    0, 300, 1000, 3000, 10000, 30000, 100000, 300000, 1000000, 3000000, 10000000};

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
    hf__woken(h->monitor_fd);
}

void *hf__expiry_monitor(void *arg)
{
    hf *h = arg;
    struct pollfd fds[2] = {{h->monitor_fd, POLLIN, 0}, {-1, POLLIN, 0}};
    int64_t look_at = INT64_MAX, death_at = 0;
    const hf_liveness_ops *liveness = h->port.caps.liveness;
    int looks = 0;
    pthread_mutex_lock(&h->mu);
    while (h->closing < HF_CLOSING_THREADS) {
        if (h->port.caps.local && liveness && !h->deaths_reported && h->at_store) {
            /* From here on the store reports deaths. The check finds peers that died before. */
            int can = liveness->death_fd != NULL;
            fds[1].fd = can ? liveness->death_fd(h->port.st) : -1;
            h->deaths_reported = !can || fds[1].fd >= 0 ? 1 : -1;
            hf__check_all_waits(h);
        }
        if (fds[1].revents & POLLIN) {
            fds[1].revents = 0;
            if (liveness->death_read(h->port.st)) {
                death_at = look_at = hf__local_us();
                looks = 0;
            }
        }
        if (hf__local_us() >= look_at) {
            hf__check_after_death(h);
            look_at = ++looks < DEATH_LOOKS ? death_at + death_look_after_us[looks] : INT64_MAX;
        }
        h->monitor_todo = 0; /* a wakeup from here on asks for another round */
        h->monitor_until_us = INT64_MAX;
        int64_t until = hf__min64(look_at, tend_locks(h));
        until = hf__min64(until, hf__tend_waits(h));
        until = hf__min64(until, hf__tend_claims(h));
        if (h->closing == HF_CLOSING_THREADS || h->monitor_todo) continue;
        h->monitor_until_us = until;
        monitor_sleep(h, fds, until);
    }
    pthread_mutex_unlock(&h->mu);
    return NULL;
}
