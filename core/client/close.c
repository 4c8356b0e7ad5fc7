/*
 * close.c - closing a handle: waits are cancelled, locks released, threads ended, in this order.
 */
#include "handle.h"
#include "os.h"
#include "release_all.h"
#include "session.h"
#include "start_threads.h"
#include "wait_schedule.h"
#include "withdraw.h"

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
                if (h->port.caps.local) hf__interrupt(h, w->party.bell);
            }
}

static int anybody_waits(const hf *h) { return h->callers || h->stats.waiting; }

void hf_close(hf *h)
{
    if (!h) return;
    if (!hf__own(h)) return; /* the parent's; its threads and mutexes aren't here */
    pthread_mutex_lock(&h->mu);
    h->closing = HF_CLOSING_WAITS;
    /* Again now and then, for who isn't asleep yet isn't woken; but not whenever one has ended. */
    for (int64_t at_us = 0; anybody_waits(h);) {
        if (at_us <= hf__local_us()) {
            cancel_waits(h);
            hf__kick_dispatcher(h);
            at_us = hf__local_us() + CANCEL_AGAIN_US;
        }
        hf__cond_until(&h->changed, &h->mu, at_us);
    }
    /* From here on a failed release isn't tried again: the session ends anyway. */
    h->closing = HF_CLOSING_LOCKS;
    int away = hf__release_all(h);
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
