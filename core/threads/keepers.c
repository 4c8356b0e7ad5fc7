/*
 * keepers.c - the threads that keep the sessions of a handle alive (stores with hf_session_ops).
 *
 * Each keeper keeps one session at a time, so that a request that hangs delays no other session.
 * The first keeper is started with the first session. Another one is started, up to HF_KEEPERS,
 * when no keeper is idle and there are other sessions to keep. The handle's mutex protects all of
 * it.
 */
#include "os.h"
#include "session.h"
#include "thread.h"
#include "threads.h"

enum { NO_THREAD_US = 1000000 };

/* Returns the session that is to be kept first; NULL: none. *ret_others: there are others. */
static struct hf_session *first(const struct hf_sessions *s, int *ret_others)
{
    struct hf_session *found = NULL;
    int n = 0;
    for (struct hf_session *t = s->all; t; t = t->next) {
        if (t->gone || t->busy || t->keep_at_us == INT64_MAX) continue;
        n++;
        if (!found || t->keep_at_us < found->keep_at_us) found = t;
    }
    *ret_others = n > 1;
    return found;
}

static void start(struct hf_sessions *s);

static void *keeper(void *arg)
{
    struct hf_sessions *s = arg;
    struct hf_keepers *k = &s->keepers;
    pthread_mutex_lock(s->mu);
    while (!s->closed) {
        int others;
        struct hf_session *t = first(s, &others);
        if (t && t->keep_at_us <= hf__local_us()) {
            if (others && !k->idle) start(s);
            hf__session_tend(s, t);
            continue;
        }
        k->idle++;
        hf__cond_until(&k->work, s->mu, t ? t->keep_at_us : INT64_MAX);
        k->idle--;
    }
    pthread_mutex_unlock(s->mu);
    return NULL;
}

/* Starts one more keeper, if there are fewer than HF_KEEPERS. */
static void start(struct hf_sessions *s)
{
    struct hf_keepers *k = &s->keepers;
    int runs = 0;
    if (k->n == HF_KEEPERS || s->closed || hf__local_us() < k->try_at_us) return;
    if (hf__start_thread(s, &runs, &k->thread[k->n], keeper, NULL))
        k->try_at_us = hf__local_us() + NO_THREAD_US;
    else
        k->n++;
}

int hf__kick_keepers(struct hf_sessions *s)
{
    struct hf_keepers *k = &s->keepers;
    if (!k->n) start(s);
    pthread_cond_signal(&k->work);
    return k->n != 0;
}

void hf__keepers_close(struct hf_sessions *s)
{
    struct hf_keepers *k = &s->keepers;
    pthread_mutex_lock(s->mu);
    pthread_cond_broadcast(&k->work);
    pthread_mutex_unlock(s->mu);
    for (uint32_t i = 0; i < k->n; i++) pthread_join(k->thread[i], NULL);
}
