/*
 * dispatcher.c - the dispatcher of a handle (see handle.h): drives the waits that no thread of the
 * caller's drives, and calls their callbacks.
 */
#include "threads.h"

#include "acquire.h"
#include "handle.h"
#include "os.h"
#include "thread.h"
#include "wait.h"
#include "wait_advance.h"
#include "wait_schedule.h"

#include <unistd.h>

/* Between two readings of the notifications the dispatcher makes so many looks at most, all begun
   within a quarter of the shortest claim timeout. */
enum { LOOKS_AT_ONCE = 64, LOOKS_US = HF_CLAIM_MS * 1000 / 4 };
/* The average time of a look is over about LOOKS_AVERAGED looks. A look longer than LOOK_MOST_US
   counts as LOOK_MOST_US: the store was slow just then. */
enum { LOOK_MOST_US = 20000, LOOKS_AVERAGED = 16 };

/* Ends a wait that is over: wakes its caller's thread, or calls its callback. Called with the
   mutex, which is released during the callback. */
static void conclude(hf *h, struct hf_wait *w)
{
    w->e->key.who = NULL; /* it points into the wait, which may be freed */
    hf__wait_finish(w);
    if (!w->done) return; /* the waiting thread may free the wait as soon as the mutex is free */
    h->callers++;
    pthread_mutex_unlock(&h->mu);
    if (w->once && !w->code) {
        w->code = hf__once_mark(&w->lock, w->flags, &w->err);
        if (w->lock) *w->once = (hf_once){.lock = w->lock};
    }
    hf__begin_callback();
    w->done(w->arg, w->code, w->lock, w->code ? &w->err : NULL);
    hf__end_callback();
    pthread_mutex_lock(&h->mu);
    h->callers--;
    pthread_cond_broadcast(&w->changed);
    if (h->closing) pthread_cond_broadcast(&h->changed);
    /* The last access to the wait: pairs with is_done() of acquire.c, after which it may be freed.
     */
    __atomic_store_n(&w->callback_done, 1, __ATOMIC_RELEASE);
}

/* ---- one look ---- */

/* Makes one look of a wait, as hf__wait_advance, without the mutex. Where the store may block,
 *takes_us becomes the average time of a look. */
static int advance_timed(struct hf_wait *w, int64_t *takes_us)
{
    if (w->h->port.caps.local) return hf__wait_advance(w);
    int64_t began_us = hf__local_us();
    int over = hf__wait_advance(w);
    int64_t took_us = hf__min64(hf__local_us() - began_us, LOOK_MOST_US);
    *takes_us += (took_us - *takes_us) / LOOKS_AVERAGED;
    return over;
}

/* Makes one look of a wait, and ends the wait if it is over. */
static void advance_one(hf *h, struct hf_wait *w)
{
    int backed_off = hf__backs_off(w), local = h->port.caps.local != 0;
    int64_t takes_us = h->look_takes_us;
    w->notified = 0; /* an event during the look sets it, and makes the wait look again */
    w->looking = 1;
    w->pins++; /* keeps the wait in its lists */
    hf__schedule(w);
    pthread_mutex_unlock(&h->mu);
    int over = advance_timed(w, &takes_us);
    pthread_mutex_lock(&h->mu);
    h->look_takes_us = takes_us;
    w->pins--;
    w->looking = 0;
    if (!over) {
        if (!w->pins) pthread_cond_broadcast(&w->changed);
        if (local && h->disconnected) hf__look_by(w, h->looked_us + HF_POLL_MS * 1000);
        hf__schedule(w);
        /* If the wait has entered or left the store's queue, its subscription changes before the
           dispatcher sleeps. */
        int changes = hf__subscription_changes(w);
        if (changes) hf__subscribe_later(h, w->e);
        if (changes || (backed_off && !hf__backs_off(w))) h->dispatcher_todo = 1;
        return;
    }
    conclude(h, w);
}

/* Returns the wait that is to look first; NULL: none is due. */
static struct hf_wait *due(hf *h)
{
    int64_t at_us = hf__deadlines_next(&h->looks);
    if (at_us == INT64_MAX) return NULL;
    if (at_us > h->looked_us) h->looked_us = hf__local_us();
    return at_us > h->looked_us ? NULL : HF_DEADLINE_OF(h->looks.first, struct hf_wait, look);
}

/* Makes the looks of the waits that are due: LOOKS_AT_ONCE of them at most, which begin within
   LOOKS_US. Then the dispatcher takes the events that came meanwhile: waits that were granted a key
   have to claim it in time. */
static void advance_due(hf *h)
{
    size_t most = LOOKS_AT_ONCE;
    h->looked_us = hf__local_us();
    int64_t until_us = h->looked_us + LOOKS_US;
    for (struct hf_wait *w; (w = due(h));) {
        if (!most-- || hf__local_us() >= until_us) {
            h->dispatcher_todo = 1;
            return;
        }
        if (w->state == HF_WAIT_LOCAL) {
            hf__give_up_local(w);
            conclude(h, w);
        } else {
            advance_one(h, w);
        }
    }
}

/* ---- the dispatcher ---- */

/* Sleeps until a notification comes, or until until_us. Called with the mutex, which is released
   meanwhile. */
static void sleep_until(hf *h, int64_t until_us)
{
    hf_event_count seen = h->events;
    h->dispatcher_sleeps = 1;
    pthread_mutex_unlock(&h->mu);
    const hf_local_ops *local = h->port.caps.local;
    int asked = local ? local->sleep(h->port.st, HF_DISPATCHER_WAKEUP, &seen, until_us, NULL)
                      : h->port.caps.notify->sleep(h->port.st, &seen, until_us, NULL);
    if (asked < 0) hf__pause(HF_POLL_MS * 1000);
    hf__port_asked(&h->port, asked);
    pthread_mutex_lock(&h->mu);
    h->dispatcher_sleeps = 0;
}

void *hf__dispatcher(void *arg)
{
    hf *h = arg;
    pthread_mutex_lock(&h->mu);
    while (h->closing < HF_CLOSING_THREADS) {
        h->dispatcher_todo = 0;
        hf__take_events(h);
        advance_due(h);
        if (h->dispatcher_todo) continue; /* set also by hf_close, which waits for this thread */
        int64_t until = hf__deadlines_next(&h->looks);
        if (h->disconnected)
            hf__cond_until(&h->dispatcher_cond, &h->mu, until);
        else
            sleep_until(h, until);
    }
    pthread_mutex_unlock(&h->mu);
    return NULL;
}
