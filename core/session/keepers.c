/*
 * keepers.c - see keepers.h.
 */
#include "handle.h"
#include "os.h"

enum { NO_THREAD_US = 1000000 };

/* The session that is to be kept first; NULL: none. *ret_others: there are others. */
static struct hf_tenure *first(const hf *h, int *ret_others)
{
    struct hf_tenure *found = NULL;
    int n = 0;
    for (struct hf_tenure *t = h->tenures; t; t = t->next) {
        if (t->gone || t->busy || t->keep_at_us == INT64_MAX) continue;
        n++;
        if (!found || t->keep_at_us < found->keep_at_us) found = t;
    }
    *ret_others = n > 1;
    return found;
}

static void start(hf *h);

static void *keeper(void *arg)
{
    hf *h = arg;
    struct hf_keepers *k = &h->renewals.keepers;
    pthread_mutex_lock(&h->mu);
    while (h->closing < 3) {
        int others;
        struct hf_tenure *t = first(h, &others);
        if (t && t->keep_at_us <= hf__local_us()) {
            if (others && !k->idle) start(h);
            hf__tenure_tend(h, t);
            continue;
        }
        k->idle++;
        hf__cond_until(&k->work, &h->mu, t ? t->keep_at_us : INT64_MAX);
        k->idle--;
    }
    pthread_mutex_unlock(&h->mu);
    return NULL;
}

/* One more, if there is room for it. */
static void start(hf *h)
{
    struct hf_keepers *k = &h->renewals.keepers;
    int runs = 0;
    if (k->n == HF_KEEPERS || h->closing == 3 || hf__local_us() < k->try_at_us) return;
    if (hf__start_thread(h, &runs, &k->thread[k->n], keeper, NULL))
        k->try_at_us = hf__local_us() + NO_THREAD_US;
    else
        k->n++;
}

int hf__kick_keepers(hf *h)
{
    struct hf_keepers *k = &h->renewals.keepers;
    if (!k->n) start(h);
    pthread_cond_signal(&k->work);
    return k->n != 0;
}

void hf__keepers_open(struct hf_keepers *k) { hf__thread_condition(&k->work); }

void hf__keepers_close(hf *h)
{
    struct hf_keepers *k = &h->renewals.keepers;
    pthread_mutex_lock(&h->mu);
    pthread_cond_broadcast(&k->work);
    pthread_mutex_unlock(&h->mu);
    for (uint32_t i = 0; i < k->n; i++) pthread_join(k->thread[i], NULL);
}
