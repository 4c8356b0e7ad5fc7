/*
 * renewer.c - the thread that renews what is due, ends sessions, and cancels requests late. What is
 * due is in renewals.h, session.h and deferred_cancel.h.
 */
#include "renewer.h"

#include "handle.h"
#include "os.h"
#include "renewals.h"
#include "session.h"
#include "withdraw.h"

void *hf__renewer(void *arg)
{
    hf *h = arg;
    pthread_mutex_lock(&h->mu);
    while (h->closing < HF_CLOSING_THREADS) {
        int64_t until_us = hf__sessions_tend(&h->sessions);
        if (h->closing < HF_CLOSING_THREADS)
            until_us = hf__min64(until_us, hf__deferred_cancels_tend(h));
        if (h->closing == HF_CLOSING_THREADS) break;
        /* At once: sessions were given up while this thread was awake. */
        if (h->sessions.ending) until_us = 0;
        h->renewer_until_us = hf__min64(hf__renewals_tend(h), until_us);
        hf__cond_until(&h->renewer_cond, &h->mu, h->renewer_until_us);
        h->renewer_until_us = 0;
    }
    pthread_mutex_unlock(&h->mu);
    return NULL;
}
