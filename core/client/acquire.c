/*
 * acquire.c - from asking for a key to holding it.
 *
 * 1. On local stores (`file:`, `mem:`) acquire_now makes one call, if the options are plain and no
 *    wait of this handle is for the key.
 * 2. Everything else is a wait (acquire_by_wait, wait.c). It enters the key's local queue; only the
 *    first of that queue asks the store.
 * 3. The caller's thread makes the first look (wait_advance.c): it asks the store for the key. The
 *    look begins with a write upon the row that this handle's last release has left, if the handle
 *    knows it; else with an `acquire` of the driver, on a server that has one; else with a read.
 * 4. On local stores the same thread makes the later looks, too. Elsewhere the dispatcher does
 *    (core/threads/dispatcher.c). It also drives, from the beginning, a wait that was started with
 *    a callback (hf_acquire_start).
 * 5. A wait that finds its grant, in the answer, in the row or in a notification, accepts it
 *    (accept.c), which makes the lock (lock.c).
 */
#include "acquire.h"

#include "handle.h"
#include "kept_error.h"
#include "lock.h"
#include "options.h"
#include "os.h"
#include "session.h"
#include "start_threads.h"
#include "thread.h"
#include "wait.h"
#include "wait_advance.h"
#include "wait_schedule.h"
#include "wait_state.h"

#include <stdlib.h>
#include <string.h>

/* ---- may the request be made? ---- */

/* The number of a thread, which no later thread gets (an address would be used again). */
static HF_THREAD_LOCAL uint64_t thread_number;

static uint64_t this_thread(void)
{
    static uint64_t last;
    if (!thread_number) thread_number = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
    return thread_number;
}

/* Returns 1 if this grant ends by itself, even if its holder never releases it: its lease isn't
   renewed, or only until max_hold_ms is over. The lock is neither lost nor being released. */
static int ends_by_lease(const hf_lock *l)
{
    return l->lease_ms && (l->renew_at_us == INT64_MAX || (l->hold_until_us && !l->session));
}

/*
 * Refuses a request that would wait for its own caller for ever. The caller is `thread` (0: no
 * thread waits), or the owner that the options name. Only grants of this handle count: whether
 * another process still runs isn't known here. `doing`: the call, for messages, here and below.
 * Returns: 0; HF_RECURSIVE, with *err. Under the mutex.
 */
static HF_COLD int waits_for_itself(const struct hf_entry *e, const hf_options *o, uint64_t thread,
                                    const char *doing, hf_error *err)
{
    /* A request with an ID may repeat one that was granted: it gets that grant at once. */
    if (o->wait_ms != HF_FOREVER || o->flags & HF_ALLOW_RECURSIVE || o->request_id) return 0;
    for (const hf_lock *l = e->locks; l; l = l->next) {
        /* The key of a lock that another thread is releasing may be another client's already. */
        if (l->lost || l->releasing || l->detached || ends_by_lease(l)) continue;
        if (o->mode != HF_EXCLUSIVE && o->mode == (enum hf_mode)l->mode) continue;
        if (thread && l->thread == thread)
            return hf_fail(err, HF_RECURSIVE, 0,
                           "%s '%s': this thread holds it, and would wait for itself for ever",
                           doing, e->text);
        if (o->owner && !strcmp(o->owner, l->owner))
            return hf_fail(err, HF_RECURSIVE, 0,
                           "%s '%s': the owner '%s' holds it, and would wait for itself for ever",
                           doing, e->text, o->owner);
    }
    return 0;
}

/* Finds the key's entry, with a reference for the caller, and checks that the request may be made.
   Under the mutex. */
static inline int entry_for(hf *h, struct hf_name name, const hf_options *o, uint64_t thread,
                            const char *doing, struct hf_entry **ret, hf_error *err)
{
    *ret = NULL;
    if (h->closing)
        return hf_fail(err, HF_CANCELED, 0, "%s '%.100s': the store is being closed", doing,
                       name.text);
    int rc = hf__entry(h, name, ret, err);
    if (!rc && (*ret)->locks) {
        rc = waits_for_itself(*ret, o, thread, doing, err);
        if (rc) hf__entry_unref(*ret);
    }
    return rc;
}

/* Makes one `acquire` of a local store with the handle's own party, which has HF_PARTY_AT_ONCE,
   because the call is made under the mutex. Afterwards only those fields of h->row are valid that a
   grant reports; the others may be left over from a conflict.
   Returns: 0, with *ret; positive: the key isn't free, or the request would wait for a disk;
   negative: an error, in *err. */
static int acquire_now(hf *h, struct hf_entry *e, hf_lock **ret, hf_error *err)
{
    hf_row *cur = &h->row;
    /* Memory for the lock comes first: once granted, the grant must become a lock. */
    int rc = h->free_locks ? 0 : hf__lock_more(h);
    if (rc) return hf_fail(err, rc, 0, "acquire '%s': out of memory", e->text);
    /* The driver is called directly: hf__port_acquire counts atomically, which isn't needed under
       the mutex. */
    h->stats.store_ops++;
    rc = h->port.drv->acquire(h->port.st, &e->key, &h->party, 0, cur, &h->no_clock_us, err);
    if (!rc) {
        /* The id of the next request is made now. Made just before its use it would cost time: the
           CPU stalls on reading what was just written. */
        hf__new_id(h, h->party.id);
        /* `acquire` doesn't report these; they are as requested. */
        cur->party->lease_ms = h->party.lease_ms;
        cur->party->mode = h->party.mode;
        *ret = hf__lock_new(h, e, cur->party, cur, NULL);
        (*ret)->thread = this_thread();
    }
    if (cur->party != cur->inl)
        hf_row_clear(cur); /* a conflict has brought a row with more parties than fit inline */
    return rc;
}

/* Makes an attempt (wait_ms 0) beside the local queue: one look at the store. Called with the
   mutex, which is released during the look. */
static void try_beside(hf *h, struct hf_wait *w)
{
    h->callers++;
    hf__wait_moves(w, HF_WAIT_FIRST_LOOK);
    pthread_mutex_unlock(&h->mu);
    for (int over = 0; !over;) over = hf__wait_advance(w); /* a try is over after one look */
    pthread_mutex_lock(&h->mu);
    hf__leave_call(h);
    hf__session_put(&h->sessions, w->session);
    hf__session_put(&h->sessions, w->queue_session);
    hf__error_clear(&w->why);
    if (w->code == HF_BUSY) h->stats.busy++;
    hf__entry_unref(w->e);
}

/* Initializes a wait, and starts the renewer if a grant of the request would be renewed. A grant
   without its renewer would be lost silently when its lease ends, so the request fails before the
   store is asked. Takes over the reference to the entry.
   Returns: 0, or the reason in *err: then nothing is left of the wait. Under the mutex. */
static int begin_wait(hf *h, struct hf_wait *w, struct hf_entry *e, const hf_options *o,
                      int64_t keep_us, hf_once *once, hf_error *err)
{
    hf__wait_init(h, w, e, o);
    w->once = once;
    w->keep_us = keep_us;
    int renews = w->party.lease_ms && !(w->flags & (HF_NO_RENEW | HF_DETACHED));
    if (!renews || !hf__need_renewer(h, NULL)) return 0;
    pthread_cond_destroy(&w->changed);
    hf__entry_unref(e);
    return hf__no_thread(e->text, err);
}

/* Acquires the key by a wait, and returns when the wait is over. Takes over the reference to the
   entry. Called with the mutex, which is released meanwhile. */
static HF_COLD int acquire_by_wait(hf *h, struct hf_entry *e, const hf_options *o, int64_t keep_us,
                                   hf_lock **ret, hf_once *once, hf_error *err)
{
    HF_NOT_CANCELED;
    struct hf_wait w;
    int rc = begin_wait(h, &w, e, o, keep_us, once, err);
    if (rc) return rc;
    /* A call from a callback is only an attempt: the dispatcher or the expiry monitor, which runs
       the callback, would wait for itself. Those of another handle may wait for each other. */
    if (hf__in_callback()) w.deadline_us = w.started_us;
    if (w.deadline_us == w.started_us && e->first)
        try_beside(h, &w); /* other waits of this handle: only the store knows if it is granted */
    else
        hf__wait_until_over(h, &w);
    pthread_cond_destroy(&w.changed);
    if (w.code) {
        if (err) *err = w.err;
        return w.code;
    }
    if (w.lock) {
        w.lock->thread = this_thread(); /* not the thread that has received the grant */
        *ret = w.lock;
    }
    return 0;
}

int hf_acquire(hf *h, const char *key, const hf_options *options, hf_lock **ret, hf_error *err)
{
    struct hf_entry *e;
    const hf_options *o = options ? options : &hf__default_options;
    int rc = hf__alive(h, "acquire", err);
    if (!rc && options) rc = hf__check_options(h, o, key, err);
    if (rc) return rc;
    const struct hf_name name = hf__name(key);
    pthread_mutex_lock(&h->mu);
    rc = entry_for(h, name, o, this_thread(), "acquire", &e, err);
    if (rc) {
        pthread_mutex_unlock(&h->mu);
        return rc;
    }
    int defaults = !options || (!o->lease_ms && !o->max_hold_ms && !o->at_least_ms && !o->flags &&
                                o->mode == HF_EXCLUSIVE && !o->owner && !o->note && !o->request_id);
    rc = HF_CONFLICT;
    if (defaults && !e->first && h->port.drv->acquire && h->port.caps.local)
        rc = acquire_now(h, e, ret, err);
    if (rc > 0) /* the key isn't free, or the request would wait for a disk */
        rc = acquire_by_wait(h, e, o, 0, ret, NULL, err);
    else if (rc)
        hf__entry_unref(e);
    pthread_mutex_unlock(&h->mu);
    return rc;
}

int hf__once_mark(hf_lock **lock, unsigned flags, hf_error *err)
{
    hf *h = *lock ? (*lock)->h : NULL;
    if (!h || !(flags & HF_AT_MOST_ONCE) || !h->port.drv->sync) return 0;
    int rc = hf__port_sync(&h->port, &(*lock)->e->key, err);
    if (rc) hf_release(*lock, NULL);
    if (rc) *lock = NULL;
    return rc;
}

int hf_once_begin(hf *h, const char *key, int64_t keep_ms, const hf_options *options, hf_once *ret,
                  hf_error *err)
{
    HF_NOT_CANCELED;
    struct hf_entry *e;
    const hf_options *o = options ? options : &hf__default_options;
    hf_once once = {0};
    hf_lock *lock = NULL;
    int64_t keep_us = 0;
    int rc = hf__alive(h, "once", err);
    if (!rc) rc = hf__check_options(h, o, key, err);
    if (!rc) rc = hf__check_keep(key, keep_ms, options, &keep_us, err);
    if (rc) return rc;
    const struct hf_name name = hf__name(key);
    pthread_mutex_lock(&h->mu);
    rc = entry_for(h, name, o, this_thread(), "once", &e, err);
    h->callers++;
    if (!rc) rc = acquire_by_wait(h, e, o, keep_us, &lock, &once, err);
    pthread_mutex_unlock(&h->mu);
    if (!rc) rc = hf__once_mark(&lock, o->flags, err);
    hf__end_call(h);
    if (rc) return rc;
    *ret = once;
    ret->lock = lock;
    return 0;
}

/* ---- without a thread of the caller: a callback reports the end ---- */

static int start(hf *h, const char *key, const hf_options *options, int64_t keep_us, hf_once *once,
                 hf_acquired_fn *done, void *arg, hf_wait **ret, hf_error *err)
{
    HF_NOT_CANCELED;
    struct hf_entry *e;
    const hf_options *o = options ? options : &hf__default_options;
    int rc = hf__alive(h, "acquire", err);
    if (!rc) rc = hf__check_options(h, o, key, err);
    if (rc) return rc;
    struct hf_wait *w = malloc(sizeof *w);
    if (!w) return hf_fail(err, HF_NOMEM, 0, "acquire '%.100s': out of memory", key);
    const struct hf_name name = hf__name(key);
    pthread_mutex_lock(&h->mu);
    rc = entry_for(h, name, o, 0, once ? "once" : "acquire", &e, err);
    if (!rc && hf__need_dispatcher(h)) {
        hf__entry_unref(e);
        rc = hf__no_thread(key, err);
    }
    if (!rc) rc = begin_wait(h, w, e, o, keep_us, once, err);
    if (rc) {
        pthread_mutex_unlock(&h->mu);
        free(w);
        return rc;
    }
    w->done = done;
    w->arg = arg;
    w->dispatched = 1;
    w->party.wakeup = HF_DISPATCHER_WAKEUP;
    hf__ref(h);
    hf__enter_local_queue(h, w);
    int is_behind_others = w->state == HF_WAIT_LOCAL;
    *ret = w;
    if (!is_behind_others || w->deadline_us != INT64_MAX) hf__kick_dispatcher(h);
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

/* Returns 1 if the callback has returned. From then on the handle may be closed at any moment. Its
   memory and its mutex last until hf_wait_free, because a thread that has just seen a 0 here still
   uses them. */
static int is_done(const hf_wait *w)
{
    return __atomic_load_n(&w->callback_done, __ATOMIC_ACQUIRE);
}

void hf_wait_cancel(hf_wait *w)
{
    HF_NOT_CANCELED;
    if (!w || w->forks != hf__forks || is_done(w)) return;
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
    HF_NOT_CANCELED;
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
