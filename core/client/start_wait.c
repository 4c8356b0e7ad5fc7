/*
 * start_wait.c - a request without a thread of the caller's: it is started, and a callback is told
 * of its end.
 */
#include "acquire.h"

#include "handle.h"
#include "local_line.h"
#include "look_queue.h"
#include "options.h"
#include "start_threads.h"
#include "wait.h"
#include "wait_state.h"

#include <stdlib.h>

static int start(hf *h, const char *key, const hf_options *options, int64_t keep_us, hf_once *once,
                 hf_acquired_fn *done, void *arg, hf_wait **ret, hf_error *err)
{
    struct hf_entry *e;
    const hf_options *o = options ? options : &hf__default_options;
    int rc = hf__alive(h, "acquire", err);
    if (!rc) rc = hf__check_options(h, o, key, err);
    if (rc) return rc;
    struct hf_wait *w = malloc(sizeof *w);
    if (!w) return hf_fail(err, HF_NOMEM, 0, "acquire '%.100s': out of memory", key);
    const struct hf_name name = hf__name(key);
    pthread_mutex_lock(&h->mu);
    if (h->closing)
        rc = hf_fail(err, HF_CANCELED, 0, "acquire '%.100s': the store is being closed", key);
    if (!rc) rc = hf__need_dispatcher(h, err);
    if (!rc) rc = hf__entry(h, name, &e, err);
    if (!rc && (rc = hf__waits_for_itself(e, o, 0, once ? "once" : "acquire", err)))
        hf__entry_unref(e);
    if (rc) {
        pthread_mutex_unlock(&h->mu);
        free(w);
        return rc;
    }
    hf__wait_init(h, w, e, o);
    rc = hf__ready_to_renew(h, w, err);
    if (rc) {
        hf__entry_unref(e);
        pthread_mutex_unlock(&h->mu);
        pthread_cond_destroy(&w->changed);
        free(w);
        return rc;
    }
    if (o->wait_ms == 0) w->deadline_us = w->started_us;
    w->once = once != NULL;
    w->ret_once = once;
    w->keep_us = keep_us;
    w->done = done;
    w->arg = arg;
    w->dispatched = 1;
    w->party.bell = HF_DISPATCHER_BELL;
    hf__ref(h);
    hf__line_up(h, w);
    int lined = w->state == HF_WAIT_LOCAL;
    *ret = w;
    if (!lined || w->deadline_us != INT64_MAX) hf__kick_dispatcher(h);
    pthread_mutex_unlock(&h->mu);
    return 0;
}

int hf_acquire_start(hf *h, const char *key, const hf_options *options, hf_acquired_fn *done,
                     void *arg, hf_wait **ret, hf_error *err)
{
    return start(h, key, options, 0, NULL, done, arg, ret, err);
}

int hf_once_start(hf *h, const char *key, int64_t keep_ms, const hf_options *options, hf_once *ret,
                  hf_acquired_fn *done, void *arg, hf_wait **wait, hf_error *err)
{
    int64_t keep_us = 0;
    int rc = hf__check_keep(key, keep_ms, options, &keep_us, err);
    return rc ? rc : start(h, key, options, keep_us, ret, done, arg, wait, err);
}

/* Has the callback returned? The handle may be closed at any moment then; but its memory and its
   mutex last until hf_wait_free: a thread that saw the result missing may still come to them. */
static int is_done(const hf_wait *w)
{
    return __atomic_load_n(&w->callback_done, __ATOMIC_ACQUIRE);
}

void hf_wait_cancel(hf_wait *w)
{
    if (w->forks != hf__forks || is_done(w)) return;
    pthread_mutex_lock(&w->h->mu);
    if (w->state != HF_WAIT_ENDED) {
        __atomic_store_n(&w->cancel, 1, __ATOMIC_RELAXED);
        hf__schedule(w);
        hf__kick_dispatcher(w->h);
    }
    pthread_mutex_unlock(&w->h->mu);
}

void hf_wait_free(hf_wait *w)
{
    if (!w || w->forks != hf__forks) return; /* the parent's stays as it is */
    hf *h = w->h;
    if (!is_done(w)) {
        hf_wait_cancel(w);
        pthread_mutex_lock(&h->mu);
        h->callers++;
        while (!is_done(w)) pthread_cond_wait(&w->changed, &h->mu);
        hf__leave_call(h);
        pthread_mutex_unlock(&h->mu);
    }
    pthread_cond_destroy(&w->changed);
    free(w);
    hf__unref(h);
}
