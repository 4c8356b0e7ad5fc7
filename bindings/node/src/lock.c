/*
 * lock.c - a lock from its grant to its end: renewal, questions about it, its loss, its release.
 */
#include "addon.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct lock *lock_new(struct store *s, hf_lock *l)
{
    struct lock *lock = calloc(1, sizeof *lock);
    if (!lock || !enroll(s->addon, &lock->object, KIND_LOCK)) {
        free(lock);
        hf_release(l, NULL);
        return NULL;
    }
    lock->l = l;
    lock->store = s;
    lock->prev = &s->locks;
    if ((lock->next = s->locks)) s->locks->prev = &lock->next;
    s->locks = lock;
    s->refs++;
    return lock;
}

/* Frees a lock whose grant is gone. Its loss isn't reported any more, but an event about it may be
   under way. */
static void lock_free(struct lock *lock)
{
    struct store *s = lock->store;
    strike(s->addon, &lock->object);
    if (lock->on_lost) napi_delete_reference(s->addon->env, lock->on_lost);
    if ((*lock->prev = lock->next)) lock->next->prev = lock->prev;
    lock->store = NULL;
    if (lock->lost_done || !__atomic_load_n(&lock->lost_posted, __ATOMIC_ACQUIRE)) free(lock);
    store_unref(s);
}

/* Takes all locks out of use, because the store is being closed, which releases them. */
void locks_closed(struct store *s)
{
    for (struct lock *lock = s->locks; lock; lock = lock->next) {
        strike(s->addon, &lock->object);
        /* A release that waits for other jobs isn't begun any more. */
        if (lock->release && lock->busy) lock->release->lost = hf_left_ms(lock->l) <= 0;
        lock->l = NULL;
    }
}

void locks_forget(struct store *s)
{
    s->refs++; /* a reference, so that the last of them doesn't free the store */
    while (s->locks) lock_free(s->locks);
    s->refs--;
}

/* Notes that a job which used the lock is done. A job that gives the lock back is the last. */
void lock_unbusy(struct job *job)
{
    struct lock *lock = job->lock;
    struct job *release = lock->release;
    if (job == release) {
        lock_free(lock);
    } else if (!--lock->busy && release) {
        if (lock->store->closing) job_closed(release);
        if (lock->store->closing)
            job_deliver(lock->store->addon, &release->event); /* closing the store has released the
                                                                 lock */
        else
            job_start(release);
    }
}

static struct lock *lock_of(struct addon *a, napi_value id, const char *doing)
{
    struct lock *lock = (struct lock *)named(a, id, KIND_LOCK);
    if (!lock) fail(a, HF_LOST, NULL, "%s: the lock was released", doing);
    return lock;
}

static struct job *lock_job(struct lock *lock, const char *doing, void (*work)(struct job *),
                            napi_value *promise)
{
    struct job *job = job_new(lock->store, work, promise);
    if (!job) return NULL;
    const char *key = hf_key(lock->l);
    memcpy(job->key, key, strlen(key) + 1);
    job->doing = doing;
    job->lock = lock;
    job->l = lock->l;
    return job;
}

/* ---- giving back ---- */

static void release_work(struct job *job) { job->code = hf_release(job->l, &job->err); }

static void finish_work(struct job *job)
{
    job->code = hf_once_finish(job->l, job->number ? job->text : NULL, job->ms, &job->err);
}

/* Takes the lock out of use. Its last job runs when no other job uses the lock. */
static void last_job(struct lock *lock, struct job *job)
{
    strike(lock->store->addon, &lock->object);
    lock->release = job;
    if (!lock->busy) job_start(job);
}

/* (lock) Releases the lock. Returns undefined, or a promise if that takes a request. */
static napi_value js_release(napi_env env, napi_callback_info info)
{
    napi_value argv[1], promise = NULL;
    struct addon *a = begin(env, info, 1, argv);
    struct lock *lock = (struct lock *)named(a, argv[0], KIND_LOCK);
    if (!lock) return NULL; /* the store was closed */
    if (!lock->store->instant || lock->busy) {
        struct job *job = lock_job(lock, "release", release_work, &promise);
        if (!job) return NULL;
        job->gives_back = true;
        last_job(lock, job);
        return promise;
    }
    hf_error err;
    int rc = hf_release(lock->l, &err);
    lock_free(lock);
    if (rc) fail_with(a, &err, NULL);
    return NULL;
}

/* (lock, result | undefined, keepMs) Marks the event as done, with the result if there is one,
   which also releases the lock. Returns a promise. */
static napi_value js_finish(napi_env env, napi_callback_info info)
{
    napi_value argv[3], promise = NULL;
    struct addon *a = begin(env, info, 3, argv);
    struct lock *lock = lock_of(a, argv[0], "finish");
    napi_valuetype type;
    double keep = 0;
    napi_typeof(env, argv[1], &type);
    take_number(env, argv[2], &keep);
    char result[sizeof((struct job *)0)->text];
    if (!lock ||
        (type != napi_undefined && take_text(env, argv[1], result, sizeof result, NULL, "result")))
        return NULL;
    struct job *job = lock_job(lock, "once", finish_work, &promise);
    if (!job) return NULL;
    job->ms = keep == HUGE_VAL ? HF_FOREVER : (int64_t)keep;
    job->number = type != napi_undefined;
    if (job->number) memcpy(job->text, result, sizeof result);
    last_job(lock, job);
    return promise;
}

/* ---- while it is held ---- */

static void renew_work(struct job *job) { job->code = hf_renew(job->l, job->ms, &job->err); }
static void confirm_work(struct job *job) { job->code = hf_confirm(job->l, &job->err); }

static void enter_work(struct job *job)
{
    job->code = hf_enter(job->l, job->number ? job->text : NULL, &job->err);
}

static napi_value use(napi_env env, napi_callback_info info, const char *doing,
                      void (*work)(struct job *))
{
    napi_value argv[2], promise = NULL;
    struct addon *a = begin(env, info, 2, argv);
    struct lock *lock = lock_of(a, argv[0], doing);
    double ms;
    char where[sizeof((struct job *)0)->text];
    napi_valuetype type;
    napi_typeof(env, argv[1], &type);
    bool named = work == enter_work && type != napi_undefined;
    if (!lock || (named && take_text(env, argv[1], where, sizeof where, NULL, "where")))
        return NULL;
    struct job *job = lock_job(lock, doing, work, &promise);
    if (!job) return NULL;
    if ((job->number = named)) memcpy(job->text, where, sizeof where);
    if (!take_number(env, argv[1], &ms)) job->ms = ms < 0x1p53 ? (int64_t)ms : INT64_MAX;
    lock->busy++;
    job_start(job);
    return promise;
}

/* (lock, leaseMs) Renews the lock. Returns a promise. */
static napi_value js_renew(napi_env env, napi_callback_info info)
{
    return use(env, info, "renew", renew_work);
}

/* (lock) */
static napi_value js_confirm(napi_env env, napi_callback_info info)
{
    return use(env, info, "confirm", confirm_work);
}

/* (lock, where | undefined) */
static napi_value js_enter(napi_env env, napi_callback_info info)
{
    return use(env, info, "enter", enter_work);
}

/* (lock) */
static napi_value js_token(napi_env env, napi_callback_info info)
{
    napi_value argv[1];
    struct addon *a = begin(env, info, 1, argv);
    struct lock *lock = lock_of(a, argv[0], "token");
    return lock ? number(env, (double)hf_token(lock->l)) : NULL;
}

static napi_value js_owner(napi_env env, napi_callback_info info)
{
    napi_value argv[1];
    struct addon *a = begin(env, info, 1, argv);
    struct lock *lock = lock_of(a, argv[0], "owner");
    return lock ? text(env, hf_owner(lock->l)) : NULL;
}

/* (lock) Returns for how many milliseconds the holder may believe that it holds; 0: lost, or
   released; Infinity: as long as this process lives. Asks the store first, if that takes no request
   to a server: a break by an operator may not have been noticed yet. */
static napi_value js_left(napi_env env, napi_callback_info info)
{
    napi_value argv[1];
    struct addon *a = begin(env, info, 1, argv);
    struct lock *lock = (struct lock *)named(a, argv[0], KIND_LOCK);
    int rc = lock && lock->store->instant ? hf_confirm(lock->l, NULL) : 0;
    bool over = !lock || rc == HF_LOST || rc == HF_CORRUPT;
    int64_t left = over ? 0 : hf_left_ms(lock->l);
    return number(env, left == INT64_MAX ? HUGE_VAL : (double)left);
}

/* ---- lost ---- */

/* Posts the loss of a lock. Runs on a thread of the library. */
static void post_lost(void *arg, hf_lock *l)
{
    struct lock *lock = arg;
    struct addon *a = lock->store->addon;
    (void)l;
    __atomic_store_n(&lock->lost_posted, true, __ATOMIC_RELEASE);
    post(a, &lock->lost);
}

static struct lock *of_event(struct event *e)
{
    return (struct lock *)(void *)((char *)e - offsetof(struct lock, lost));
}

static void lost_drop(struct event *e)
{
    struct lock *lock = of_event(e);
    if (!lock->store) free(lock);
}

static void lost_deliver(struct addon *a, struct event *e)
{
    struct lock *lock = of_event(e);
    napi_value callback, undefined, ignored, why;
    hf_error err;
    if (!lock->store) {
        free(lock);
        return;
    }
    lock->lost_done = true;
    napi_get_undefined(a->env, &undefined);
    /* Another thread that releases the lock may have freed the library's lock. */
    int rc = lock->l && !lock->release ? hf_lost_reason(lock->l, &err) : 0;
    why = rc ? failure(a, &err, HF_LOST, hf_key(lock->l)) : undefined;
    if (!napi_get_reference_value(a->env, lock->on_lost, &callback) && callback)
        napi_call_function(a->env, undefined, callback, 1, &why, &ignored);
}

/* (lock, callback) Calls the callback once, with the failure, if the lock is lost before it is
   released. */
static napi_value js_on_lost(napi_env env, napi_callback_info info)
{
    napi_value argv[2];
    struct addon *a = begin(env, info, 2, argv);
    struct lock *lock = (struct lock *)named(a, argv[0], KIND_LOCK);
    if (!lock || lock->on_lost || napi_create_reference(env, argv[1], 1, &lock->on_lost))
        return NULL;
    lock->lost.deliver = lost_deliver;
    lock->lost.drop = lost_drop;
    int rc = hf_on_lost(lock->l, post_lost, lock);
    if (rc) fail(a, rc, NULL, "onLost: its thread could not be started");
    return NULL;
}

void lock_exports(napi_env env, napi_value exports)
{
    static const struct method methods[] = {
        {"release", js_release}, {"finish", js_finish}, {"renew", js_renew},
        {"confirm", js_confirm}, {"enter", js_enter},   {"token", js_token},
        {"owner", js_owner},     {"leftMs", js_left},   {"onLost", js_on_lost}};
    ADD_METHODS(env, exports, methods);
}
