/*
 * lock_event.c - one event of a grant at the store, by one thread at a time. See lock_event.h.
 */
#include "lock_event.h"

#include "belief.h"
#include "deadline_list.h"
#include "handle.h"
#include "lost.h"
#include "os.h"
#include "session.h"
#include "start_threads.h"

void hf__seize(hf_lock *l)
{
    hf *h = l->h;
    while (l->busy || (l->telling && !pthread_equal(l->teller, pthread_self())))
        pthread_cond_wait(&h->changed, &h->mu);
    l->busy = 1;
}

void hf__let_go(hf_lock *l)
{
    l->busy = 0;
    hf__kick_renewer(l);                   /* which passed over it */
    if (l->watch.nth) hf__set_deadline(l); /* as did the expiry monitor */
    pthread_cond_broadcast(&l->h->changed);
}

int hf__over_already(const hf_lock *l)
{
    if (l->session && !l->session->adopted && hf__local_us() >= hf__session_until(l)) return 1;
    return l->lost && l->lost_by != HF_BY_MAX_HOLD;
}

int hf__lock_event(hf_lock *l, struct hf_event *ev, hf_row *row, int known, struct hf_outcome *out,
                   hf_error *err)
{
    hf *h = l->h;
    int64_t io_ms = h->port.io_timeout_ms;
    /* One that doesn't answer must not keep the others from being renewed. */
    if (ev->kind == HF_EV_RENEW && l->lease_ms && io_ms > l->lease_ms / 3) io_ms = l->lease_ms / 3;
    /* One that is over needn't be given back: asked once, as a courtesy to the next one. */
    if (ev->kind == HF_EV_RELEASE && hf__over_already(l)) io_ms = 0;
    int64_t until = hf__local_us() + io_ms * 1000;
    ev->token = l->token;
    pthread_mutex_unlock(&h->mu);
    int rc = hf__cas_loop(&h->port, &l->e->key, ev, row, known, until, out, err);
    if (!rc) hf__watch_claim(h, l->e, row);
    pthread_mutex_lock(&h->mu);
    return rc;
}
