/*
 * acquire.c - acquires a lock: at once if that takes no request to a server, else by a wait of the
 * library, which takes no thread for each wait.
 */
#include "addon.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t DAY_MS = 86400000;

/* (store, key, options) Tries without waiting. Returns the lock's id; 0: the key has to be waited
   for. */
static napi_value js_try(napi_env env, napi_callback_info info)
{
    napi_value argv[3];
    struct addon *a = begin(env, info, 3, argv);
    struct store *s = store_of(a, argv[0]);
    char key[HF_KEY_CAP + 3];
    struct wanted want;
    if (!s) return NULL;
    if (!s->instant) return number(env, 0);
    if (take_key(a, argv[1], key) || take_wanted(a, argv[2], key, &want)) return NULL;
    bool once = want.o.wait_ms == 0;
    /* All JavaScript runs in one thread. To the library, a task that requests a key which another
       task holds looks like one caller that asks twice. Only lib/within.js, or an owner, can tell
       them apart. So such requests are made by js_start, which doesn't compare threads. It also
       reports a wait that is too long for the library. */
    if (want.o.owner || want.o.wait_ms > DAY_MS) return number(env, 0);
    hf_lock *l;
    hf_error err;
    want.o.wait_ms = 0;
    int rc = hf_acquire(s->h, key, &want.o, &l, &err);
    if (!rc) {
        struct lock *lock = lock_new(s, l);
        if (lock) return number(env, lock->object.id);
        fail(a, HF_NOMEM, NULL, "out of memory");
        return NULL;
    }
    if (rc == HF_BUSY && !once) s->looks++;
    if (rc == HF_RECURSIVE || (rc == HF_BUSY && !once)) return number(env, 0);
    fail_with(a, &err, key);
    return NULL;
}

/* ---- waiting ---- */

static void unlink_wait(struct wait *w)
{
    strike(w->store->addon, &w->object);
    if ((*w->prev = w->next)) w->next->prev = w->prev;
}

/* Posts the result of a wait. Runs on a thread of the library. */
static void done(void *arg, int code, hf_lock *l, const hf_error *err)
{
    struct wait *w = arg;
    struct store *s = w->store;
    w->code = code;
    if (code) w->err = *err;
    pthread_mutex_lock(&s->mu);
    w->got = l;
    bool back = l && w->detached && s->waits_closed;
    pthread_mutex_unlock(&s->mu);
    if (back) hf_release(l, NULL);
    post(s->addon, &w->event);
}

/* Ends the waits of a store that is being closed. hf_close doesn't touch detached requests. But
   their results will not be delivered any more, so a grant that they have got, or get later, is
   released. */
void waits_closed(struct store *s)
{
    size_t n = 0;
    for (struct wait *w = s->waits; w; w = w->next, n++)
        if (w->w) hf_wait_cancel(w->w);
    s->brought = calloc(n + 1, sizeof(hf_lock *));
    pthread_mutex_lock(&s->mu);
    s->waits_closed = true;
    for (struct wait *w = s->waits; w && s->brought; w = w->next)
        if (w->detached && w->got) s->brought[s->n_brought++] = w->got;
    pthread_mutex_unlock(&s->mu);
}

static void drop(struct event *e) { free((struct wait *)e); }

static void deliver(struct addon *a, struct event *e)
{
    struct wait *w = (struct wait *)e;
    struct store *s = w->store;
    napi_value value = NULL;
    hf_wait_free(w->w);
    unlink_wait(w);
    if (!w->code && s->closing && w->got) {
        /* Granted, but released by hf_close, or by waits_closed. */
        w->code = HF_CANCELED;
        snprintf(w->err.text, sizeof w->err.text, "%s '%.100s': the store is closed",
                 w->is_once ? "once" : "acquire", w->key);
    } else if (!w->code && w->got) {
        struct lock *lock = lock_new(s, w->got);
        if (lock)
            value = number(a->env, lock->object.id);
        else
            w->code = HF_NOMEM;
    } else if (!w->code) {
        value = once_value(a, &w->once);
    }
    settle(a, w->deferred, w->code, &w->err, w->key, value);
    unpend(a);
    free(w);
    store_unref(s);
}

/* (store, key, options, keepMs | undefined) Starts a wait; with keepMs, for an event. Returns a
   promise of the lock's id, or, for an event that is done already, of when and by whom. */
static napi_value js_start(napi_env env, napi_callback_info info)
{
    napi_value argv[4], promise = NULL;
    struct addon *a = begin(env, info, 4, argv);
    struct store *s = store_of(a, argv[0]);
    struct wanted want;
    struct wait *w;
    double keep;
    if (!s || !(w = calloc(1, sizeof *w))) return NULL;
    if (take_key(a, argv[1], w->key) || take_wanted(a, argv[2], w->key, &want)) {
        free(w);
        return NULL;
    }
    w->is_once = !take_number(env, argv[3], &keep);
    w->detached = want.o.flags & HF_DETACHED;
    w->event.deliver = deliver;
    w->event.drop = drop;
    w->store = s;
    if (!enroll(a, &w->object, KIND_WAIT) || napi_create_promise(env, &w->deferred, &promise)) {
        strike(a, &w->object);
        free(w);
        fail(a, HF_NOMEM, NULL, "out of memory");
        return NULL;
    }
    w->prev = &s->waits;
    if ((w->next = s->waits)) s->waits->prev = &w->next;
    s->waits = w;
    int rc;
    if (w->is_once)
        rc = hf_once_start(s->h, w->key, keep == HUGE_VAL ? HF_FOREVER : (int64_t)keep, &want.o,
                           &w->once, done, w, &w->w, &w->err);
    else
        rc = hf_acquire_start(s->h, w->key, &want.o, done, w, &w->w, &w->err);
    if (rc) {
        unlink_wait(w);
        settle(a, w->deferred, rc, &w->err, w->key, NULL);
        free(w);
        return promise;
    }
    s->refs++;
    pend(a);
    a->last_wait = w->object.id;
    return promise;
}

/* () Returns the id of the wait that was started last. */
static napi_value js_last_wait(napi_env env, napi_callback_info info)
{
    return number(env, begin(env, info, 0, NULL)->last_wait);
}

/* (wait) Cancels a wait. */
static napi_value js_cancel(napi_env env, napi_callback_info info)
{
    napi_value argv[1];
    struct addon *a = begin(env, info, 1, argv);
    struct wait *w = (struct wait *)named(a, argv[0], KIND_WAIT);
    static const size_t at = offsetof(struct wait, object);
    w = w ? (struct wait *)(void *)((char *)w - at) : NULL;
    if (w && w->w) hf_wait_cancel(w->w); /* NULL: the environment has ended */
    return NULL;
}

/* ---- a grant made elsewhere ---- */

static void adopt_work(struct job *job)
{
    job->code = hf_adopt(job->store->h, job->key, job->number, &job->got, &job->err);
}

static napi_value adopted(struct addon *a, struct job *job)
{
    struct lock *lock = job->store->closing ? NULL : lock_new(job->store, job->got);
    return lock ? number(a->env, lock->object.id) : NULL;
}

/* (store, key, token) Adopts a grant. Returns a promise of the lock's id. */
static napi_value js_adopt(napi_env env, napi_callback_info info)
{
    napi_value argv[3], promise = NULL;
    struct addon *a = begin(env, info, 3, argv);
    struct store *s = store_of(a, argv[0]);
    char key[HF_KEY_CAP + 3];
    double token = 0;
    if (!s || take_key(a, argv[1], key)) return NULL;
    take_number(env, argv[2], &token);
    struct job *job = job_new(s, adopt_work, &promise);
    if (!job) return NULL;
    memcpy(job->key, key, sizeof key);
    job->doing = "adopt";
    job->number = (uint64_t)token;
    job->result = adopted;
    job_start(job);
    return promise;
}

void acquire_exports(napi_env env, napi_value exports)
{
    static const struct method methods[] = {{"try", js_try},
                                            {"start", js_start},
                                            {"lastWait", js_last_wait},
                                            {"cancel", js_cancel},
                                            {"adopt", js_adopt}};
    ADD_METHODS(env, exports, methods);
}
