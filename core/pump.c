/*
 * pump.c - the pump of a handle (see handle.h): drives the waits that no thread of the caller's
 * drives, and calls their callbacks.
 */
#include "handle.h"

#include "os.h"

#include <stdlib.h>
#include <string.h>

void hf__kick_pump(hf *h)
{
    h->pump_todo = 1;
    if (!h->pump_runs) return;
    pthread_cond_signal(&h->pump_cond);
    if (h->port.drv->interrupt) h->port.drv->interrupt(h->port.st, HF_PUMP_BELL);
}

/* The wait is over: tells its caller. Under the mutex, dropped around a callback. */
static void conclude(hf *h, struct hf_wait *w)
{
    w->e->key.who = NULL; /* its id goes with it; there may be no more waits of the key */
    hf__wait_finish(w);
    if (!w->done) return; /* its thread may free it as soon as the mutex is free */
    hf_error err = w->err;
    h->callers++;
    pthread_mutex_unlock(&h->mu);
    if (w->once && !w->code) {
        w->code = hf__once_mark(&w->lock, w->flags, &err);
        if (w->lock) *w->ret_once = (hf_once){.lock = w->lock};
    }
    w->done(w->arg, w->code, w->lock, w->code ? &err : NULL);
    pthread_mutex_lock(&h->mu);
    h->callers--;
    pthread_cond_broadcast(&w->changed);
    if (h->closing) pthread_cond_broadcast(&h->changed);
    /* The last that is done with it: pairs with told() of acquire.c, which may free it. */
    __atomic_store_n(&w->told, 1, __ATOMIC_RELEASE);
}

/* One of a crowd that isn't in line yet looks when it has planned to: what wakes it wakes all of
   them. */
static int outside(const struct hf_wait *w) { return w->refused || w->full; }

/* Where the store can say so: did something come about its key? *ret is what it said. */
static int rang(const hf *h, const struct hf_wait *w, uint64_t *ret)
{
    const hf_driver *d = h->port.drv;
    if (!d->rang || !w->heard) return 1;
    *ret = d->rang(h->port.st, &w->e->key);
    return *ret != w->rang;
}

static int due(const hf *h, const struct hf_wait *w, int64_t now, int rung)
{
    uint64_t number;
    if (!w->pumped || w->state != HF_W_AT_STORE) return 0;
    return w->look_at_us <= now || w->deadline_us <= now || w->cancel ||
           (rung && w->rung != h->ring_round && !outside(w) && rang(h, w, &number));
}

/* Renewer and tender hear of new holds, when their holders have gone on: woken beside them they
   would take their processor, or the mutex. But before the pump does anything for others, which may
   take a while. Under the mutex, dropped. */
enum { TELL_AFTER_US = 1000 };

static void tell_keepers(hf *h)
{
    int64_t ends = h->untold_ends_us;
    if (!ends) return;
    h->untold_ends_us = 0;
    pthread_mutex_unlock(&h->mu);
    pthread_cond_signal(&h->renewer_cond);
    pthread_mutex_lock(&h->mu);
    if (!hf__need_tender(h, NULL)) hf__kick_tender(h, ends);
}

/* One look of a wait. The next one in the list; or the first, if that may have changed: who has
   been looked at isn't due again. */
static struct hf_wait *advance_one(hf *h, struct hf_wait *w)
{
    int was_outside = outside(w);
    (void)rang(h, w, &w->rang); /* what comes from here on is news */
    w->pins++;                  /* which keeps it in the list */
    tell_keepers(h);
    pthread_mutex_unlock(&h->mu);
    int over = hf__advance(w);
    pthread_mutex_lock(&h->mu);
    w->pins--;
    if (!over) {
        if (!w->pins) pthread_cond_broadcast(&w->changed);
        /* It has got in line only now: it is to be listened for before anybody sleeps. */
        if (was_outside && !outside(w)) h->pump_todo = 1;
        return w->list_next;
    }
    int64_t ends = h->new_hold_ends_us;
    h->new_hold_ends_us = 0;
    conclude(h, w);
    if (ends) h->tell_at_us = hf__local_us() + TELL_AFTER_US;
    h->untold_ends_us = ends; /* those before have been told */
    return h->at_store;
}

static void advance_due(hf *h, int rung)
{
    if (rung) h->ring_round++;
    for (struct hf_wait *w = h->at_store; w;) {
        if (!due(h, w, hf__local_us(), rung)) {
            w->rung = h->ring_round; /* what comes meanwhile rings again */
            w = w->list_next;
            continue;
        }
        w->rung = h->ring_round;
        w = advance_one(h, w);
    }
}

/* Those that stand in line behind others of this process and have run out of time. */
static void end_lined_up(hf *h)
{
    int64_t now = hf__local_us(), next = INT64_MAX;
    if (h->pump_deadline_us > now) return;
again:
    for (uint32_t i = 0; i < h->buckets; i++)
        for (struct hf_entry *e = h->table[i]; e; e = e->next)
            for (struct hf_wait *w = e->first; w; w = w->next) {
                if (!w->done || w->state != HF_W_LINED) continue;
                if (!w->cancel && w->deadline_us > now) {
                    next = hf__min64(next, w->deadline_us);
                    continue;
                }
                w->code = w->cancel                         ? HF_CANCELED
                          : w->deadline_us <= w->started_us ? HF_BUSY
                                                            : HF_TIMEOUT;
                hf_fail(&w->err, w->code, 0, "acquire '%s': %s", e->text, hf_code_text(w->code));
                conclude(h, w);
                next = INT64_MAX;
                goto again; /* the lists may have changed meanwhile */
            }
    h->pump_deadline_us = next;
}

static int64_t pump_sleeps_until(const hf *h)
{
    int64_t until = h->pump_deadline_us;
    if (h->untold_ends_us) until = hf__min64(until, h->tell_at_us);
    for (const struct hf_wait *w = h->at_store; w; w = w->list_next)
        if (w->pumped) until = hf__min64(until, hf__min64(w->look_at_us, w->deadline_us));
    return until;
}

/* The first look of those that the pump drives from the beginning: most needn't wait, and for them
   nobody has to listen. */
static void look_first(hf *h)
{
    for (struct hf_wait *w = h->at_store; w;)
        w = due(h, w, hf__local_us(), 0) && !w->looked ? advance_one(h, w) : w->list_next;
}

/* The keys of the waits that the pump drives, as many as it can listen for. */
static size_t pumped_keys(hf *h, const hf_rowkey **keys, size_t cap)
{
    size_t n = 0;
    for (struct hf_wait *w = h->at_store; w; w = w->list_next) {
        w->heard = w->pumped && w->looked && !outside(w) && n < cap;
        if (!w->heard) continue;
        w->e->key.who = w->party.id;
        keys[n++] = &w->e->key;
    }
    return n;
}

/* They are listened for from now on. What came between the last look and this nobody has told, so
   they look again; but for a key that was listened for already: of that `listen` knows. */
static void begin_to_hear(hf *h)
{
    uint32_t before = h->listens++;
    for (struct hf_wait *w = h->at_store; w; w = w->list_next) {
        if (!w->heard) continue;
        if (!w->e->listened || w->e->listened != before) w->look_at_us = 0;
        w->e->listened = h->listens;
    }
}

/* Who relied on being told looks by itself from here on. */
static void go_deaf(hf *h)
{
    int64_t soon = hf__local_us() + HF_POLL_MS * 1000;
    int bells = h->port.can & HF_CAN_BELLS;
    for (struct hf_wait *w = h->at_store; w; w = w->list_next) {
        if (w->heard || (bells && w->pumped)) w->look_at_us = hf__min64(w->look_at_us, soon);
        w->heard = 0;
    }
}

enum { WATCH_CAP = 16384 }; /* waits for more keys look by themselves, four times a second */

/* Listens for those who wait. 0: *ear; else nobody is told of anything. Under the mutex, dropped
   where the store may block. */
static int listen(hf *h, const hf_rowkey **keys, hf_ear *ear)
{
    const hf_driver *d = h->port.drv;
    if (h->port.can & HF_CAN_BELLS) return d->listen(h->port.st, HF_PUMP_BELL, NULL, 0, ear, NULL);
    size_t n = pumped_keys(h, keys, WATCH_CAP);
    if (!n && !h->listens) return HF_UNAVAILABLE; /* nobody has had to wait yet */
    pthread_mutex_unlock(&h->mu);
    int rc = d->listen(h->port.st, HF_PUMP_BELL, keys, n, ear, NULL);
    pthread_mutex_lock(&h->mu);
    if (rc)
        h->listens++; /* whatever was listened for isn't any more */
    else
        begin_to_hear(h);
    return rc;
}

static void *pump(void *arg)
{
    hf *h = arg;
    const hf_driver *d = h->port.drv;
    int bells = h->port.can & HF_CAN_BELLS, rung = 1;
    hf_ear before = {{0, 0}}, ear = before;
    int watches = d->watch && !(h->port.can & HF_CAN_NOT_WATCH);
    const hf_rowkey **keys = watches && !bells ? calloc(WATCH_CAP, sizeof *keys) : NULL;
    pthread_mutex_lock(&h->mu);
    while (h->closing < 3) {
        int deaf = 1;
        h->pump_todo = 0;
        if (h->tell_at_us <= hf__local_us()) tell_keepers(h);
        if (!bells) look_first(h);
        if (bells || keys) {
            deaf = listen(h, keys, &ear);
            if (deaf) go_deaf(h);
        }
        if (!deaf) rung = memcmp(&before, &ear, sizeof ear) != 0;
        before = ear;
        advance_due(h, rung && !deaf);
        end_lined_up(h);
        if (h->pump_todo) continue; /* who closes wants that, too */
        int64_t until = pump_sleeps_until(h);
        if (deaf) {
            hf__cond_until(&h->pump_cond, &h->mu, until);
            continue;
        }
        pthread_mutex_unlock(&h->mu);
        int asked = d->watch(h->port.st, HF_PUMP_BELL, &ear, until, NULL);
        if (asked < 0) hf__pause(HF_POLL_MS * 1000);
        hf__port_asked(&h->port, asked);
        pthread_mutex_lock(&h->mu);
    }
    pthread_mutex_unlock(&h->mu);
    free(keys);
    return NULL;
}

int hf__need_pump(hf *h, hf_error *err)
{
    return hf__start_thread(h, &h->pump_runs, &h->pump, pump, err);
}
