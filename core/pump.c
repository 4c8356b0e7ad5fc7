/*
 * pump.c - the pump of a handle (see handle.h): drives the waits that no thread of the caller's
 * drives, and calls their callbacks.
 *
 * A thread of the caller's that waits alone does the pump's work for itself: it leads. What comes
 * then wakes whom it is for, without another thread in between.
 */
#include "handle.h"

#include "os.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How long the pump sleeps on when nobody leads any more: who takes turns with others leads again
   by then, without it. Less than a claim that is to be made may wait. It sleeps by a timer, which
   costs the one who sets it a system call: to signal a thread whose processor sleeps takes ten
   times as long. */
enum { AT_ONCE_US = 1, NAP_US = 10000 };

void hf__kick_pump(hf *h)
{
    h->pump_todo = 1;
    if (!h->pump_runs) return;
    if (h->pump_naps && !h->leader)
        hf__timer_set(h->nap_fd, AT_ONCE_US);
    else
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
    if (h->untold_renew_us < h->renewer_until_us) {
        pthread_mutex_unlock(&h->mu);
        pthread_cond_signal(&h->renewer_cond);
        pthread_mutex_lock(&h->mu);
    }
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
        /* It has got in line only now, or left it: it is to be listened for, in another way than
           before, before anybody sleeps. */
        if ((was_outside && !outside(w)) || (w->heard && w->queued != w->e->key.in_line))
            h->pump_todo = 1;
        return w->list_next;
    }
    /* Those before have been told. */
    h->untold_ends_us = h->new_hold_ends_us;
    h->new_hold_ends_us = 0;
    if (h->untold_ends_us && w->lock) h->untold_renew_us = w->lock->renew_at_us;
    if (w->done) tell_keepers(h); /* its callback may take longer than a claim lasts */
    conclude(h, w);
    if (h->untold_ends_us) h->tell_at_us = hf__local_us() + TELL_AFTER_US;
    return h->at_store;
}

/* A look, if it is due. The next one in the list, as advance_one. */
static struct hf_wait *look(hf *h, struct hf_wait *w, int rung)
{
    int is_due = due(h, w, hf__local_us(), rung);
    w->rung = h->ring_round; /* what comes meanwhile rings again */
    return is_due ? advance_one(h, w) : w->list_next;
}

static void advance_due(hf *h, int rung)
{
    if (rung) h->ring_round++;
    for (struct hf_wait *w = h->at_store; w;) w = look(h, w, rung);
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
        int heard_before = w->heard;
        w->heard = w->pumped && w->looked && !outside(w) && n < cap;
        if (!w->heard) continue;
        /* Listened for in another way; or for another id, which may be told elsewhere. */
        int another_id = !heard_before && (w->named || w->e->listened_named);
        if (w->e->key.in_line != w->queued || another_id) w->e->listened = 0;
        w->e->listened_named = w->named;
        w->e->key.in_line = w->queued;
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

static int listen_for_keys(hf *h)
{
    tell_keepers(h); /* the store may take its time */
    hf_ear ear = h->ear;
    size_t n = pumped_keys(h, h->pump_keys, WATCH_CAP);
    if (!n && !h->listens) return HF_UNAVAILABLE; /* nobody has had to wait yet */
    pthread_mutex_unlock(&h->mu);
    int rc = h->port.drv->listen(h->port.st, HF_PUMP_BELL, h->pump_keys, n, &ear, NULL);
    pthread_mutex_lock(&h->mu);
    h->ear = ear;
    if (rc)
        h->listens++; /* whatever was listened for isn't any more */
    else
        begin_to_hear(h);
    return rc;
}

/* Listens for those who wait: what is heard from here on is news to h->ear; or nobody is told of
   anything, and h->deaf. 1: something was heard since the last time. Under the mutex, dropped where
   the store may block. */
static int listen(hf *h)
{
    hf_ear before = h->ear;
    int rc = HF_UNAVAILABLE;
    if (h->port.can & HF_CAN_BELLS)
        rc = h->port.drv->listen(h->port.st, HF_PUMP_BELL, NULL, 0, &h->ear, NULL);
    else if (h->pump_keys)
        rc = listen_for_keys(h);
    h->deaf = rc != 0;
    if (h->deaf) go_deaf(h);
    return !h->deaf && memcmp(&before, &h->ear, sizeof before) != 0;
}

/* Until something is heard, or it is time. Under the mutex, dropped. */
static void hear_until(hf *h, int64_t until_us)
{
    hf_ear ear = h->ear;
    pthread_mutex_unlock(&h->mu);
    int asked = h->port.drv->watch(h->port.st, HF_PUMP_BELL, &ear, until_us, NULL);
    if (asked < 0) hf__pause(HF_POLL_MS * 1000);
    hf__port_asked(&h->port, asked);
    pthread_mutex_lock(&h->mu);
}

/* The wait of the one thread that may lead: of the caller's, with nobody else to look for. */
static struct hf_wait *alone(const hf *h)
{
    struct hf_wait *one = NULL;
    if (h->nap_fd < 0 || h->deaf || h->pump_deadline_us != INT64_MAX) return NULL;
    for (struct hf_wait *w = h->at_store; w; w = w->list_next) {
        if (!w->pumped) continue; /* its own thread looks first */
        if (one || w->done) return NULL;
        one = w;
    }
    return one;
}

int hf__leads(hf *h, struct hf_wait *w)
{
    if (h->leader || !h->pump_naps || alone(h) != w) return h->leader == w;
    hf__timer_set(h->nap_fd, 0);
    h->leader = w;
    h->pump_todo = 1; /* nobody listens for it yet */
    return 1;
}

void hf__lead(hf *h, struct hf_wait *w)
{
    while (alone(h) == w) {
        if (!h->pump_todo) hear_until(h, pump_sleeps_until(h));
        if (h->tell_at_us <= hf__local_us()) tell_keepers(h);
        /* Others are the pump's to look for: what they hear now would be lost on them. */
        if (alone(h) != w) break;
        h->pump_todo = 0;
        int rung = listen(h);
        if (rung) h->ring_round++;
        look(h, w, rung);
    }
    h->leader = NULL;
    int needed = w->state != HF_W_DONE || h->pump_todo;
    hf__timer_set(h->nap_fd, needed ? AT_ONCE_US : NAP_US);
}

/* Until nobody leads. Under the mutex, dropped. */
static void sleep_behind(hf *h)
{
    h->pump_naps = 1;
    do {
        pthread_mutex_unlock(&h->mu);
        hf__timer_sleep(h->nap_fd);
        pthread_mutex_lock(&h->mu);
    } while (h->leader);
    h->pump_naps = 0;
}

static void *pump(void *arg)
{
    hf *h = arg;
    int watches = h->port.drv->watch && !(h->port.can & HF_CAN_NOT_WATCH);
    pthread_mutex_lock(&h->mu);
    if (watches && !(h->port.can & HF_CAN_BELLS)) {
        h->pump_keys = calloc(WATCH_CAP, sizeof *h->pump_keys);
        h->nap_fd = hf__timer_open();
    }
    while (h->closing < 3) {
        h->pump_todo = 0;
        if (h->tell_at_us <= hf__local_us()) tell_keepers(h);
        if (!(h->port.can & HF_CAN_BELLS)) look_first(h);
        advance_due(h, listen(h));
        end_lined_up(h);
        if (h->pump_todo) continue; /* who closes wants that, too */
        int64_t until = pump_sleeps_until(h);
        if (h->deaf) {
            hf__cond_until(&h->pump_cond, &h->mu, until);
            continue;
        }
        h->leader = alone(h);
        if (!h->leader) {
            hear_until(h, until);
            continue;
        }
        pthread_cond_signal(&h->leader->changed);
        sleep_behind(h);
    }
    pthread_mutex_unlock(&h->mu);
    free(h->pump_keys);
    if (h->nap_fd >= 0) close(h->nap_fd);
    return NULL;
}

int hf__need_pump(hf *h, hf_error *err)
{
    return hf__start_thread(h, &h->pump_runs, &h->pump, pump, err);
}
