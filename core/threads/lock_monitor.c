/*
 * lock_monitor.c - the locks that are due: those whose lease ends, whose loss is to be reported, or
 * about which the store is to be asked. See lock_monitor.h; deadline_list.h says when each is due.
 */
#include "lock_monitor.h"

#include "belief.h"
#include "deadline_list.h"
#include "handle.h"
#include "kept_error.h"
#include "lock_event.h"
#include "lost.h"
#include "os.h"
#include "release.h"
#include "session.h"

/* How often the store is asked about a grant without a lease, if its holder listens for a loss. */
enum { ASK_US = 250000 };

/* Asks the store about a grant that lasts as long as its session: an operator may have ended it. If
   the store is gone the lock is lost as well: others may be granted the key by a new store. Under
   the mutex, dropped. */
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
    /* Another client that knows the token may have given the grant a lease, which counts. */
    if (at >= 0) l->expires_us = row.party[at].expires_us;
    hf_row_clear(&row);
    l->ask_at_us = hf__local_us() + ASK_US;
    if (!there) {
        hf__error_keep(&l->why, &err);
        hf__mark_lost(l, HF_BY_STORE);
    }
    hf__let_go(l);
}

/* One lock that is due: marks it lost, reports the loss, or asks the store. Under the mutex, which
   is dropped: other threads may then use the lock, and free it. */
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
    /* Not while it is being given back: its memory may be another grant's by then. */
    if (l->lost && l->on_lost && !l->loss_reported && !l->releasing) {
        hf__run_on_lost(l);
        return;
    }
    /* Behind the ends: of what is over by time the store isn't asked, nor is it blamed. */
    if (!l->lost && !l->releasing && hf__asks_store(l) && l->ask_at_us <= now)
        look_into_store(h, l);
}

static void schedule_again(hf_lock *l, void *arg)
{
    hf *h = arg;
    if (l->watch.nth) hf__deadline_set(&h->watched, &l->watch, hf__watch_at(l, hf__local_us()));
}

int64_t hf__tend_locks(hf *h)
{
    uint64_t steps = hf__port_clock_jumps(&h->port);
    if (steps != h->clock_jumps)
        hf__each_lock(h, schedule_again, h); /* the clock jumped: each end is another one */
    h->clock_jumps = steps;
    for (struct hf_deadline *d; (d = h->watched.first);) {
        hf_lock *l = HF_DEADLINE_OF(d, hf_lock, watch);
        int64_t now = hf__local_us();
        if (d->at_us > now) return d->at_us;
        int64_t at = hf__watch_at(l, now); /* it may have been renewed meanwhile */
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
