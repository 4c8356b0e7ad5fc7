/*
 * close.c - closing a handle: waits are cancelled, locks released, threads ended, in this order.
 *
 * If the driver has `replace_many`, most locks are released in batches: by requests of up to
 * HF_RENEWALS_AT_ONCE writes. A lock can be in a batch if the handle knows its row and no thread
 * works on it. A write that isn't answered within a sixth of the io timeout is followed by another
 * one, upon the same row and on another connection: no more than one of the two can land. The other
 * locks are released one by one, by a few threads if the driver's calls may be made side by side.
 *
 * If the store doesn't answer within the io timeout, the locks that are left aren't released: they
 * end by their leases.
 */
#include "above.h"
#include "belief.h"
#include "deadline_list.h"
#include "handle.h"
#include "known_row.h"
#include "lock.h"
#include "lost.h"
#include "os.h"
#include "release.h"
#include "renewal_queue.h"
#include "session.h"
#include "start_threads.h"
#include "thread.h"
#include "wait_schedule.h"
#include "withdraw.h"

#include <stdlib.h>

enum { THREADS = 4, AGAIN_US = 100000, PART = 6 };

/* One release. */
struct release {
    hf_lock *lock;
    hf_row row, next; /* the row as it is stored, so far as is known; the row to write */
};

struct batch {
    size_t n;
    struct release one[HF_RENEWALS_AT_ONCE];
    hf_replace item[HF_RENEWALS_AT_ONCE];
};

/* What the releasing threads share, under the handle's mutex. */
struct hf_release_all {
    hf *h;
    int64_t until_us;
    uint32_t bucket; /* the buckets before this one have no locks any more */
    int away;        /* 1: the store doesn't answer */
};

/* ---- the locks, many at once ---- */

/* Copies the row that the handle knows of the lock's key. Returns 0 if it knows none, or if the
   lock can't be in a batch. */
static int has_row(hf_lock *l, hf_row *row)
{
    if (l->busy || l->in_callback || l->releasing || l->detached || l->session || l->at_least_ms)
        return 0;
    if (l->e->locks != l || l->next || !hf__perhaps_held(l)) return 0;
    return hf__known_row(l, row);
}

/* Prepares the write that releases the lock. Returns 0 if the lock can't be in a batch. */
static int plan(struct release *r, hf_lock *l)
{
    struct hf_event ev = {
        .kind = HF_EV_RELEASE, .token = l->token, .now = hf__port_now(&l->h->port)};
    hf_row_init(&r->row);
    hf_row_init(&r->next);
    if (has_row(l, &r->row) && !hf_row_copy(&r->next, &r->row) && hf__step(&r->next, &ev).changed) {
        r->lock = l;
        l->busy = l->releasing = 1;
        hf__renew_at(l, INT64_MAX);
        return 1;
    }
    hf_row_clear(&r->row);
    hf_row_clear(&r->next);
    return 0;
}

/* Fills a batch with locks, from *bucket on. Returns 1 if there was no room for a lock. */
static int collect(hf *h, struct batch *b, uint32_t *bucket)
{
    int more = 0;
    b->n = 0;
    for (; *bucket < h->buckets && b->n < HF_RENEWALS_AT_ONCE; ++*bucket)
        for (struct hf_entry *e = h->table[*bucket]; e; e = e->next)
            for (hf_lock *l = e->locks, *next; l; l = next) {
                next = l->next;
                if (b->n == HF_RENEWALS_AT_ONCE)
                    more = 1;
                else
                    b->n += (size_t)plan(&b->one[b->n], l);
            }
    return more;
}

/* Notes the result of one release. Returns 1 if it wasn't answered. Under the mutex. */
static int settle(struct release *r, const hf_replace *item)
{
    hf_lock *l = r->lock;
    int rc = item->result;
    int64_t at = rc == HF_CONFLICT ? hf__find_token(&r->row, l->token) : -1;
    int mute = rc == HF_UNKNOWN || rc == HF_UNAVAILABLE;
    l->busy = l->releasing = 0;
    if (!rc || (rc == HF_CONFLICT && at < 0)) { /* grant not in the row: an earlier write landed */
        l->h->stats.released++;
        hf__lock_free(l);
    } else if (!mute) {
        hf__forget_row(&l->row); /* release_rest releases this lock */
    }
    hf_row_clear(&r->row);
    hf_row_clear(&r->next);
    return mute;
}

/* Sends the writes of this batch. Without the mutex. */
static void ask(hf *h, struct batch *b, int64_t until_us)
{
    for (size_t i = 0; i < b->n; i++) {
        struct release *r = &b->one[i];
        b->item[i] = (hf_replace){
            .key = &r->lock->e->key, .seen = r->row.rev, .row = &r->next, .cur = &r->row};
    }
    hf__port_replace_many(&h->port, b->item, b->n, until_us);
    for (size_t i = 0; i < b->n; i++)
        if (!b->item[i].result) hf__watch_claim(h, b->one[i].lock->e, &b->one[i].next);
}

/* Tries once to release each lock that can be in a batch. Returns how many are to be tried again,
   because their write wasn't answered or there was no room. *ret_answered: how many were answered.
 */
static size_t pass(struct hf_release_all *c, struct batch *b, size_t *ret_answered)
{
    hf *h = c->h;
    uint32_t bucket = 0;
    size_t left = 0;
    *ret_answered = 0;
    while (bucket < h->buckets) {
        size_t mute = 0;
        left += (size_t)collect(h, b, &bucket);
        if (!b->n) continue;
        pthread_mutex_unlock(&h->mu);
        ask(h, b, hf__local_us() + h->port.io_timeout_ms * 1000 / PART);
        pthread_mutex_lock(&h->mu);
        for (size_t i = 0; i < b->n; i++) mute += (size_t)settle(&b->one[i], &b->item[i]);
        *ret_answered += b->n - mute;
        left += mute;
        if (mute == b->n && hf__local_us() >= c->until_us) break;
    }
    return left;
}

static int is_busy(hf *h)
{
    for (uint32_t i = 0; i < h->buckets; i++)
        for (struct hf_entry *e = h->table[i]; e; e = e->next)
            for (hf_lock *l = e->locks; l; l = l->next)
                if (l->busy) return 1;
    return 0;
}

/* Makes passes until no lock is left that a batch can release, or until the time is over and a pass
   got no answer: then c->away is set. Locks that are being renewed take part when their renewal is
   over. Called with the mutex, which is released during requests. */
static void release_batches(struct hf_release_all *c)
{
    hf *h = c->h;
    struct batch *b = NULL;
    size_t left, answered;
    int on_time;
    if (!h->port.drv->replace_many || h->port.caps.local || h->port.caps.sessions) return;
    if (h->stats.held > 1) b = malloc(sizeof *b);
    if (!b) return;
    do {
        left = pass(c, b, &answered);
        on_time = hf__local_us() < c->until_us;
        if (!left && on_time && is_busy(h)) {
            hf__cond_until(&h->changed, &h->mu, hf__local_us() + AGAIN_US);
            answered = left = 1;
        }
    } while (left && (answered || on_time));
    free(b);
    c->away = left > 0;
}

/* ---- the locks, one by one ---- */

/* Returns a lock that isn't in use; NULL: none. *ret_some: there are locks, though all may be in
   use. */
static hf_lock *any_lock(struct hf_release_all *c, int *ret_some)
{
    hf *h = c->h;
    *ret_some = 0;
    for (uint32_t i = c->bucket; i < h->buckets; i++) {
        for (struct hf_entry *e = h->table[i]; e; e = e->next)
            for (hf_lock *l = e->locks; l; l = l->next) {
                *ret_some = 1;
                if (!l->busy && !l->in_callback && (!l->releasing || l->pending_release)) return l;
            }
        if (!*ret_some) c->bucket = i + 1;
    }
    return NULL;
}

static void release_one(struct hf_release_all *c, hf_lock *l)
{
    if (l->detached) {
        if (l->session) l->session->left = 1;
        if (l->pending_session) l->pending_session->left = 1;
        hf__lock_free(l);
    } else if (c->away && hf__local_us() >= c->until_us) {
        hf__lock_free(l); /* the grant ends by its lease */
    } else {
        int mute = hf__unanswered(l), rc = hf__release(l, NULL);
        c->away = rc == HF_UNAVAILABLE || rc == HF_UNKNOWN || (rc == HF_LOST && mute);
    }
}

/* Releases the locks that are left, one by one. Called with the mutex, which is released during
   requests. */
static void release_rest(struct hf_release_all *c)
{
    hf *h = c->h;
    int some = 1;
    while (some) {
        hf_lock *l = any_lock(c, &some);
        if (l)
            release_one(c, l);
        else if (some)
            hf__cond_until(&h->changed, &h->mu, hf__local_us() + AGAIN_US);
    }
}

static void *helper(void *arg)
{
    hf *h = arg;
    pthread_mutex_lock(&h->mu);
    release_rest(h->release_all);
    pthread_mutex_unlock(&h->mu);
    return NULL;
}

/* Releases all locks. Returns 1 if the store doesn't answer. Called with the mutex, which is
   released during requests. */
static int release_all(hf *h)
{
    struct hf_release_all c = {.h = h, .until_us = hf__local_us() + h->port.io_timeout_ms * 1000};
    pthread_t thread[THREADS - 1];
    int started[THREADS - 1] = {0};
    h->release_all = &c;
    release_batches(&c);
    int side_by_side = h->port.caps.threads && !h->port.caps.local;
    for (int i = 0; side_by_side && i < THREADS - 1 && h->stats.held > (uint64_t)i + 1; i++)
        if (hf__start_thread(h, &started[i], &thread[i], helper, NULL)) break;
    release_rest(&c);
    pthread_mutex_unlock(&h->mu);
    for (int i = 0; i < THREADS - 1; i++)
        if (started[i]) pthread_join(thread[i], NULL);
    pthread_mutex_lock(&h->mu);
    return c.away;
}

/* ---- the handle ---- */

enum { CANCEL_AGAIN_US = 100000 };

static void cancel_waits(hf *h)
{
    for (uint32_t i = 0; i < h->buckets; i++)
        for (struct hf_entry *e = h->table[i]; e; e = e->next)
            for (struct hf_wait *w = e->first; w; w = w->next) {
                __atomic_store_n(&w->cancel, 1, __ATOMIC_RELAXED);
                hf__schedule(w);
                pthread_cond_signal(&w->changed);
                if (w->dispatched) continue;
                if (h->port.caps.local) hf__interrupt(h, w->party.wakeup);
            }
}

static int anybody_waits(const hf *h) { return h->callers || h->stats.waiting; }

/* Refuses new calls from here on, and limits the tries to mark an event (cas_loop.c). Under the
   mutex. */
static void begin_closing(hf *h)
{
    if (h->closing) return;
    h->closing = HF_CLOSING_WAITS;
    __atomic_store_n(&h->port.closing_us, hf__local_us(), __ATOMIC_RELAXED);
}

void hf_close_begin(hf *h)
{
    HF_NOT_CANCELED;
    if (!h || !hf__own(h)) return;
    pthread_mutex_lock(&h->mu);
    begin_closing(h);
    cancel_waits(h);
    hf__kick_dispatcher(h);
    pthread_mutex_unlock(&h->mu);
}

void hf_close(hf *h)
{
    HF_NOT_CANCELED;
    if (!h || !hf__own(h)) return; /* the parent's: its threads don't exist here */
    pthread_mutex_lock(&h->mu);
    begin_closing(h);
    /* Cancels again every 100 ms, because a wakeup may come before its thread sleeps. Not each time
       that a wait has ended: with many waits that would take quadratic time. */
    for (int64_t at_us = 0; anybody_waits(h);) {
        if (at_us <= hf__local_us()) {
            cancel_waits(h);
            hf__kick_dispatcher(h);
            at_us = hf__local_us() + CANCEL_AGAIN_US;
        }
        hf__cond_until(&h->changed, &h->mu, at_us);
    }
    /* From here on a failed release isn't tried again in the background. */
    h->closing = HF_CLOSING_LOCKS;
    int away = release_all(h);
    h->closing = HF_CLOSING_THREADS;
    h->sessions.closed = 1;
    hf__kick_dispatcher(h);
    hf__kick_monitor(h, 0);
    pthread_cond_broadcast(&h->renewer_cond);
    pthread_mutex_unlock(&h->mu);
    if (h->dispatcher_runs) pthread_join(h->dispatcher, NULL);
    if (h->monitor_runs) pthread_join(h->monitor, NULL);
    if (h->renewer_runs) pthread_join(h->renewer, NULL);
    h->above->stop(h);
    hf__deferred_cancels_close(h);
    hf__sessions_close(&h->sessions, away);
    hf__destroy(h);
}
