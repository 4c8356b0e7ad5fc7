/*
 * renewer.c - the renewer (see threads.h), and the workers that it starts if the store may block. A
 * worker takes locks from the queues of renewal_queue.h, and renews them by renew_batch.c (many by
 * one call of the driver) or by renew.c (one by one).
 */
#include "belief.h"
#include "deadline_list.h"
#include "handle.h"
#include "lock.h"
#include "lost.h"
#include "os.h"
#include "release.h"
#include "renew.h"
#include "renewal_queue.h"
#include "session.h"
#include "thread.h"
#include "threads.h"
#include "withdraw.h"

/* One more worker is started for a renewal that is late by a 24th of its lease. If it can't be
   started, the next try is made after NO_THREAD_US. */
enum { LATE_PART = 24, NO_THREAD_US = 1000000 };
/* connect_again waits for a new connection for CONNECT_TRIPS round trips, CONNECT_US at least, and
   pauses after a failure. */
enum { CONNECT_US = 500000, CONNECT_TRIPS = 20, CONNECT_PAUSE_US = 50000 };

/* ---- the queues ---- */

static enum hf_renewal_queue queue_of(const hf_lock *l)
{
    if (l->pending_release || l->unanswered >= HF_UNANSWERED_MOST) return HF_RENEWALS_LATE;
    return l->unanswered ? HF_RENEWALS_DOUBTFUL : HF_RENEWALS_DUE;
}

/* Returns the local time at which the lock's grant ends, by which due renewals are ordered. A
   pending release comes before most, because waiters may wait for it. */
static int64_t ends(const hf_lock *l, int64_t now_us)
{
    int64_t end = INT64_MAX;
    if (l->pending_release) return now_us;
    if (l->session) end = hf__session_until(l);
    return l->expires_us ? hf__min64(end, hf__lease_ends(l, now_us)) : end;
}

/* Moves locks whose renewal is due from `waiting` into the queues `due`. */
static void make_due(hf *h)
{
    struct hf_renewals *r = &h->renewals;
    int64_t now = hf__local_us();
    while (r->waiting.first && r->waiting.first->at_us <= now) {
        hf_lock *l = HF_DEADLINE_OF(r->waiting.first, hf_lock, renewal);
        enum hf_renewal_queue queue = queue_of(l);
        hf__renewal_drop(l);
        if (!hf__renewable(l)) continue; /* the thread that has seized it puts it back */
        l->renewal_due = (uint8_t)(queue + 1);
        hf__deadline_set(&r->due[queue], &l->renewal, ends(l, now));
    }
}

static int64_t lease_us(const hf_lock *l) { return (int64_t)l->lease_ms * 1000; }

/* ---- one at a time ---- */

/* Takes the first lock out of a queue; NULL: there is none. */
static hf_lock *next_of(hf *h, enum hf_renewal_queue queue)
{
    struct hf_deadlines *due = &h->renewals.due[queue];
    while (due->first) {
        hf_lock *l = HF_DEADLINE_OF(due->first, hf_lock, renewal);
        hf__renewal_drop(l);
        if (hf__renewable(l)) return l;
    }
    return NULL;
}

/* Renews one lock, or repeats its pending release. If the grant is over, or the store has it no
   more, the lock is marked as lost. Called with the mutex, which is released during the request. */
static void renew_one(hf_lock *l)
{
    if (l->pending_release) {
        hf__release(l, NULL);
        return;
    }
    if (!hf__perhaps_held(l)) {
        hf__mark_expired(l);
        return;
    }
    l->busy = 1;
    int rc = hf__renew(l, l->lease_ms, 0, NULL);
    if (rc)
        hf__renewal_failed(l, rc, 1);
    else
        l->unanswered = 0;
    hf__let_go(l);
}

/* Handles the locks that are due in a queue: many by one call of the driver if there is a `batch`,
   otherwise the first one. Called with the mutex, which is released during requests.
   Returns: 0: nothing was due; 1: one lock was handled; or what hf__renew_batch returns. */
static int work_at(hf *h, struct hf_renew_batch *batch, enum hf_renewal_queue queue)
{
    struct hf_deadlines *due = &h->renewals.due[queue];
    if (!due->first) return 0;
    const hf_lock *first = HF_DEADLINE_OF(due->first, hf_lock, renewal);
    if (batch && !first->pending_release) {
        uint32_t most = h->renewals.at_once;
        if (first->unanswered && first->again_with < most) most = first->again_with;
        return hf__renew_batch(h, batch, queue, most);
    }
    hf_lock *l = next_of(h, queue);
    if (l) renew_one(l);
    return l != NULL;
}

/* ---- the workers ---- */

/* From which queues each worker takes, in this order. The first worker leaves doubtful and late
   renewals, which may hang, to the others. */
static const enum hf_renewal_queue order[HF_RENEWAL_WORKERS][HF_RENEWAL_QUEUES] = {
    {HF_RENEWALS_DUE, HF_RENEWALS_DUE, HF_RENEWALS_DUE},
    {HF_RENEWALS_DUE, HF_RENEWALS_DOUBTFUL, HF_RENEWALS_LATE},
    {HF_RENEWALS_DOUBTFUL, HF_RENEWALS_LATE, HF_RENEWALS_DUE},
    {HF_RENEWALS_LATE, HF_RENEWALS_DOUBTFUL, HF_RENEWALS_DUE},
};

static uint32_t most_workers(const hf *h)
{
    if (h->port.caps.local) return 0;
    return h->port.caps.threads ? HF_RENEWAL_WORKERS : 1;
}

static void set_cut(hf *h, struct hf_renewal_worker *w, int cut)
{
    h->renewals.cut += (uint32_t)cut - (uint32_t)w->cut;
    w->cut = cut;
}

/* Makes a new connection for a worker whose last request hung, before it takes any renewal: making
   a connection may hang, too. Not if all workers are in that state: then each goes on with
   renewals. Returns 1 if it has tried. Called with the mutex, which is released meanwhile. */
static int connect_again(hf *h, struct hf_renewal_worker *w)
{
    struct hf_renewals *r = &h->renewals;
    if (!w->cut || r->cut == r->workers) return 0;
    pthread_mutex_unlock(&h->mu);
    int64_t us = CONNECT_TRIPS * hf__port_round_trip_us(&h->port);
    if (us < CONNECT_US) us = CONNECT_US;
    int rc = hf__port_replace_many(&h->port, NULL, 0, hf__local_us() + us);
    if (rc) hf__pause(CONNECT_PAUSE_US);
    pthread_mutex_lock(&h->mu);
    if (!rc) set_cut(h, w, 0);
    return 1;
}

/* Does one piece of work that this worker may do. Returns 0 if there is none. Called with the
   mutex, which is released during requests. */
static int work(hf *h, struct hf_renewal_worker *w)
{
    const struct hf_renewals *r = &h->renewals;
    uint32_t nth = (uint32_t)(w - r->worker);
    /* The only worker takes from all queues, if no other is going to be started. */
    int alone = r->workers == 1 && (most_workers(h) == 1 || r->try_at_us);
    for (int i = 0; i < HF_RENEWAL_QUEUES; i++) {
        int did = work_at(h, w->batch, order[alone ? 1 : nth][i]);
        if (did && w->batch) set_cut(h, w, did == 2);
        if (did) return 1;
    }
    return 0;
}

static void wait_for_work(hf *h, int is_first)
{
    struct hf_renewals *r = &h->renewals;
    r->idle++;
    r->first_idle += (uint32_t)is_first;
    pthread_cond_wait(&r->work, &h->mu);
    r->first_idle -= (uint32_t)is_first;
    r->idle--;
}

static void *worker(void *arg)
{
    hf *h = arg;
    pthread_mutex_lock(&h->mu);
    struct hf_renewal_worker *w = &h->renewals.worker[h->renewals.begun++];
    while (h->closing < HF_CLOSING_THREADS) {
        make_due(h);
        if (connect_again(h, w) || work(h, w)) continue;
        wait_for_work(h, w == h->renewals.worker);
    }
    pthread_mutex_unlock(&h->mu);
    return NULL;
}

/* Starts one more worker. Under the mutex. */
static void start_worker(hf *h)
{
    struct hf_renewals *r = &h->renewals;
    struct hf_renewal_worker *w = &r->worker[r->workers];
    int runs = 0;
    /* With sessions a renewal is mostly a read, which checks that the row has the grant: no batch.
     */
    int many = h->port.drv->replace_many && !h->port.caps.sessions;
    w->batch = many ? hf__renew_batch_new() : NULL;
    int rc = hf__start_thread(h, &runs, &w->thread, worker, NULL);
    if (rc) hf__renew_batch_free(w->batch);
    if (rc) w->batch = NULL;
    r->try_at_us = rc ? hf__local_us() + NO_THREAD_US : 0;
    r->workers += !rc;
}

/* Returns the local time from which one more worker is needed for the first lock of this queue; 0:
   at once; INT64_MAX: none is needed. */
static int64_t needs_worker(const hf *h, enum hf_renewal_queue queue)
{
    const struct hf_deadline *first = h->renewals.due[queue].first;
    if (!first) return INT64_MAX;
    const hf_lock *l = HF_DEADLINE_OF(first, hf_lock, renewal);
    if (h->renewals.workers < (queue == HF_RENEWALS_DUE ? 1 : 2)) return 0;
    return l->renew_at_us + lease_us(l) / LATE_PART;
}

/* Makes due locks be renewed: wakes idle workers, starts one more if none is idle, and renews by
   this thread if there is no worker. Called with the mutex. Returns the local time of the next
   call; 0 if the mutex was released. */
static int64_t renewals_tend(hf *h)
{
    struct hf_renewals *r = &h->renewals;
    int64_t now = hf__local_us(), next = INT64_MAX;
    make_due(h);
    for (int i = 0; i < HF_RENEWAL_QUEUES; i++) {
        enum hf_renewal_queue queue = (enum hf_renewal_queue)i;
        if (!r->due[i].first) continue;
        if (r->idle && queue == HF_RENEWALS_DUE)
            pthread_cond_signal(&r->work);
        else if (r->idle)
            pthread_cond_broadcast(&r->work);
        /* The first worker takes from one queue only, so it doesn't count as idle for the other
           queues. */
        uint32_t idle = r->idle - (queue == HF_RENEWALS_DUE ? 0 : r->first_idle);
        if (!idle && r->workers < most_workers(h)) {
            int64_t at = needs_worker(h, queue);
            if (at < r->try_at_us) at = r->try_at_us;
            if (at <= now) start_worker(h);
            next = hf__min64(next, at <= now ? now : at);
        }
        if (!r->workers && work_at(h, NULL, queue)) return 0;
    }
    return hf__min64(next, hf__deadlines_next(&r->waiting));
}

/* ---- the renewer ---- */

void *hf__renewer(void *arg)
{
    hf *h = arg;
    pthread_mutex_lock(&h->mu);
    while (h->closing < HF_CLOSING_THREADS) {
        int64_t until_us = hf__sessions_tend(&h->sessions);
        if (h->closing < HF_CLOSING_THREADS)
            until_us = hf__min64(until_us, hf__deferred_cancels_tend(h));
        if (h->closing == HF_CLOSING_THREADS) break;
        /* More sessions are to be ended: the next round follows at once. */
        if (h->sessions.ending) until_us = 0;
        h->renewer_until_us = hf__min64(renewals_tend(h), until_us);
        hf__cond_until(&h->renewer_cond, &h->mu, h->renewer_until_us);
        h->renewer_until_us = 0;
    }
    pthread_mutex_unlock(&h->mu);
    return NULL;
}

void hf__renewals_close(hf *h)
{
    struct hf_renewals *r = &h->renewals;
    hf__keepers_close(&h->sessions);
    pthread_mutex_lock(&h->mu);
    pthread_cond_broadcast(&r->work);
    pthread_mutex_unlock(&h->mu);
    for (uint32_t i = 0; i < r->workers; i++) {
        pthread_join(r->worker[i].thread, NULL);
        hf__renew_batch_free(r->worker[i].batch);
    }
}
