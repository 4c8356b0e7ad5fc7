/*
 * wait_schedule.c - when a wait looks at the store again. See wait_schedule.h.
 */
#include "wait_schedule.h"

#include "backoff.h"
#include "handle.h"
#include "os.h"
#include "peers.h"
#include "start_threads.h"
#include "wait_state.h"

/* ---- after a look: when is the next one? ---- */

/* Each of the first STAGGERED waiters acts so much later than the one ahead of it; those behind act
   as late as the last of these. */
static const int64_t STAGGER_US = 500000;
enum { STAGGERED = 4 };
static const int64_t SOONEST_US = 2000; /* between two looks */
/* A waiter that the store notifies of changes polls, too: a notification may be lost (the server
   drops it, a broken connection takes it), and no store says so in every case. So a lost one costs
   about 5 s at most, and a poll costs a read per wait and 5 s. The polls of all waits of a handle
   take a tenth of the dispatcher's time at most, so that many waits don't keep it from its other
   work; but each waiter polls within some minutes. */
enum { NOTIFIED_POLL_MS = 5000, NOTIFIED_POLL_MOST_MS = 300000, NOTIFIED_SHARE = 10 };
/* Polls that are due within this time are made together, so that the dispatcher wakes up less
   often. */
static const int64_t NOTIFIED_TICK_US = 100000;
/* An overtaken wait tries again so often without a pause, then with this pause. */
enum { CALM_TIMES = 2, PAUSE_OVERTAKEN_MS = 1 };

/* Returns a random time between three quarters and five quarters of `ms`. */
static int64_t about_us(uint32_t ms)
{
    uint32_t r;
    hf__random(&r, sizeof r);
    return (int64_t)ms * 750 + (int64_t)((uint64_t)ms * 500 * r >> 32);
}

int64_t hf__poll_us(const hf *h) { return about_us(hf__port_poll_ms(&h->port)); }

/* Returns how long a wait with a subscription sleeps at most. Under the mutex. */
static int64_t notified_poll_us(const hf *h)
{
    int64_t ms = h->n_at_store * h->look_takes_us * NOTIFIED_SHARE / 1000;
    if (ms < NOTIFIED_POLL_MS) ms = NOTIFIED_POLL_MS;
    return about_us((uint32_t)hf__min64(ms, NOTIFIED_POLL_MOST_MS));
}

uint32_t hf__room_for(const struct hf_wait *w)
{
    uint32_t cap = w->h->port.caps.queue_cap;
    return w->h->port.caps.local ? cap : hf__backoff_room(cap, w->full);
}

static void count(uint8_t *n)
{
    if (*n < UINT8_MAX) ++*n;
}

void hf__plan_after_conflict(struct hf_wait *w, const hf_row *row, int64_t sent_us)
{
    uint32_t dice;
    hf__look_at(w, 0);
    if (hf__find_id(row, w->party.id) >= 0) return; /* in the row: it isn't a newcomer */
    int64_t now = hf__local_us();
    /* No wait is queued: one handle acquires the key again and again. The next attempt is an
       acquire of the driver, which needs no row. It is made soon, because that handle yields only
       now and then (hf__yields_first). */
    if (!row->n_queue) {
        count(&w->overtaken);
        if (w->overtaken > CALM_TIMES) hf__look_at(w, now + about_us(PAUSE_OVERTAKEN_MS));
        return;
    }
    w->overtaken = 0;
    count(&w->refused);
    hf__random(&dice, sizeof dice);
    hf__look_at(w, now + hf__backoff_conflict_us(w->refused, (now - sent_us) / 2, dice));
}

void hf__plan_outside(struct hf_wait *w, enum hf_answer answer)
{
    const hf *h = w->h;
    int64_t after_us = hf__poll_us(h);
    if (answer == HF_ANS_NO_ROOM && !h->port.caps.local) {
        uint32_t dice;
        hf__random(&dice, sizeof dice);
        count(&w->full);
        after_us = hf__backoff_full_us(w->full, after_us, dice);
    }
    w->refused = w->overtaken = 0;
    hf__look_at(w, hf__local_us() + after_us);
}

int64_t hf__holders_end(hf *h, const hf_row *row)
{
    int64_t first = INT64_MAX;
    for (uint32_t i = 0; i < row->n_holders; i++)
        if (row->party[i].expires_us) first = hf__min64(first, row->party[i].expires_us);
    if (first == INT64_MAX) return INT64_MAX;
    return hf__local_us() + (first - hf__port_now(&h->port).lo_us) + 1;
}

int64_t hf__stagger_us(const struct hf_wait *w, uint32_t place)
{
    int alone = __atomic_load_n(&w->alone, __ATOMIC_RELAXED);
    return alone ? 0 : (place < STAGGERED ? place : STAGGERED) * STAGGER_US;
}

void hf__plan_next_look(struct hf_wait *w, const hf_row *row, uint32_t place)
{
    hf *h = w->h;
    int64_t end = hf__holders_end(h, row), soonest = hf__local_us() + SOONEST_US;
    if (end != INT64_MAX) end += hf__stagger_us(w, place);
    if (end < soonest) end = soonest; /* the row was read just now */
    pthread_mutex_lock(&h->mu);
    hf__wait_moves(w, HF_WAIT_QUEUED);
    w->refused = w->overtaken = w->full = 0;
    w->seen_rev = row->rev;
    if (h->port.caps.local) {
        /* Whatever was missed, the wait looks again after this time. */
        end = hf__min64(end, hf__local_us() + (place + 1) * HF_LOOK_MOST_US);
        hf__look_at(w, INT64_MAX); /* a wakeup, or the expiry monitor */
        /* The expiry monitor may have been woken for this wait meanwhile: it looks at once. */
        if (w->check_missed) end = 0;
        w->check_missed = 0;
        hf__note_peers(w, row, row->n_holders + place);
        if (!w->check.nth || end < w->check.at_us) hf__check_at(w, end);
        int rc = hf__need_monitor(h);
        if (rc) hf__look_at(w, hf__min64(end, hf__local_us() + hf__poll_us(h)));
        if (!rc) hf__kick_monitor(h, w->check.at_us);
    } else {
        /* Such a store doesn't notify of the death of a process. */
        int notified = w->subscribed && !h->port.caps.liveness;
        int64_t look = hf__local_us() + (notified ? notified_poll_us(h) : hf__poll_us(h));
        w->poll_at_us = notified ? look - look % NOTIFIED_TICK_US : look;
        hf__look_at(w, hf__min64(end, w->poll_at_us));
    }
    pthread_mutex_unlock(&h->mu);
}

/* Returns 1 if the party is known to be dead. On a local store the expiry monitor sees deaths, and
   notifies the waits that depend on them. */
static int is_dead(struct hf_wait *w, const hf_party *p)
{
    if (w->h->port.caps.local) return (p->flags & HF_PARTY_DEAD) != 0;
    return hf__port_dead(&w->h->port, p);
}

/* Returns 1 if all holders are dead, and the first waiter, too. A waiter behind it may not be
   notified of that. */
static int is_stuck(struct hf_wait *w, const hf_row *row)
{
    for (uint32_t i = 0; i < row->n_holders; i++)
        if (!is_dead(w, &row->party[i])) return 0;
    return is_dead(w, &row->party[row->n_holders]);
}

int hf__leave_to_others(struct hf_wait *w, const hf_row *row)
{
    int64_t at = hf__find_id(row, w->party.id);
    if (w->state != HF_WAIT_QUEUED || at < (int64_t)row->n_holders + 1) return 0;
    uint32_t place = (uint32_t)at - row->n_holders;
    int64_t end = hf__holders_end(w->h, row);
    if (end != INT64_MAX && hf__local_us() >= end + hf__stagger_us(w, place)) {
        /* Without this, the wait would let the waits ahead act first each time, even if they are
           dead. */
        __atomic_store_n(&w->alone, 1, __ATOMIC_RELAXED);
        return 0;
    }
    if (is_dead(w, &row->party[at - 1]) || is_stuck(w, row)) return 0; /* this wait acts */
    hf__plan_next_look(w, row, place);
    return 1;
}

/* ---- a pause before the first look, so that others get in ---- */

/*
 * A handle that knows the row writes sooner than a newcomer that has to read it first. So a handle
 * that acquires and releases a key in a loop would keep it for ever: the newcomer reads a row that
 * has been written again before its own write arrives. A newcomer leaves no trace, so the handle
 * pauses without being asked. Every YIELD_EVERY_US it leaves the row alone for some time, mostly a
 * short one, now and then a longer one for clients that are far away. That costs less than a
 * fiftieth of such a loop, and nothing where the row isn't written anyway. Where waiters don't
 * queue, the longest pause lasts until all of them have looked.
 */
enum { YIELD_EVERY_US = 400000, YIELD_US = 2000, YIELDS_LONGER = 4, YIELD_LEVELS = 4, LOOKS = 2 };

static int64_t pause_us(const struct hf_port *port, uint32_t yields)
{
    int64_t us = YIELD_US;
    uint32_t nth = yields + 1;
    int level = 1;
    for (; level < YIELD_LEVELS && nth % YIELDS_LONGER == 0; level++) {
        us *= YIELDS_LONGER;
        nth /= YIELDS_LONGER;
    }
    if (level < YIELD_LEVELS || port->caps.queues) return us;
    return LOOKS * 1000 * (int64_t)hf__port_poll_ms(port);
}

int hf__note_yield(const struct hf_port *port, struct hf_entry *e, int64_t now_us)
{
    if (e->wrote_us && now_us - e->wrote_us < pause_us(port, e->yields)) return 0;
    if (!e->wrote_us || now_us > e->yield_at_us) {
        e->yield_at_us = now_us + YIELD_EVERY_US;
        e->yields++;
        /* the row was left alone for long enough anyway: the next pause isn't needed */
    } else if (now_us > e->yield_at_us - YIELD_EVERY_US) {
        e->yield_at_us += YIELD_EVERY_US;
        e->yields++;
    }
    return 1;
}

int hf__yields_first(struct hf_wait *w)
{
    const struct hf_port *port = &w->h->port;
    struct hf_entry *e = w->e;
    if (port->caps.local || w->deadline_us <= w->started_us) return 0;
    pthread_mutex_lock(&w->h->mu);
    int64_t now = hf__local_us();
    int waits = !hf__note_yield(port, e, now) && now >= e->yield_at_us;
    int64_t until = e->wrote_us + pause_us(port, e->yields);
    waits &= until < w->deadline_us;
    if (waits) hf__look_at(w, until);
    pthread_mutex_unlock(&w->h->mu);
    return waits;
}

/* ---- the dispatcher's queue of looks ---- */

enum { AT_ONCE = -1 }; /* sorts before every wait that looks at a set time */
enum { OF_ITS_KEY = 1, OF_ALL_KEYS };

void hf__look_at(struct hf_wait *w, int64_t at_us) { w->look_at_us = at_us; }

void hf__look_by(struct hf_wait *w, int64_t at_us)
{
    if (at_us < w->look_at_us) w->look_at_us = at_us;
}

void hf__schedule(struct hf_wait *w)
{
    hf *h = w->h;
    int64_t at_us = INT64_MAX;
    int driven = w->state == HF_WAIT_LOCAL ? w->done != NULL : w->dispatched;
    if (w->state == HF_WAIT_ENDED || !driven) return;
    if (w->state == HF_WAIT_LOCAL) {
        at_us = w->cancel ? AT_ONCE : w->deadline_us;
    } else if (!w->looking) {
        int64_t timed_us = w->notified ? 0 : hf__min64(w->look_at_us, w->deadline_us);
        at_us = w->cancel || w->notified == OF_ITS_KEY ? AT_ONCE : timed_us;
        /* It looks at once, but after the waits that were due before it, so that each has its turn.
         */
        int64_t least_us = w->state == HF_WAIT_FIRST_LOOK ? w->started_us : h->looked_us;
        if (at_us >= 0 && at_us < least_us) at_us = least_us;
    }
    if (at_us == INT64_MAX)
        hf__deadline_drop(&h->looks, &w->look);
    else
        hf__deadline_set(&h->looks, &w->look, at_us);
}

void hf__notify(struct hf_wait *w)
{
    w->notified = OF_ITS_KEY;
    hf__schedule(w);
}

void hf__notify_in_turn(struct hf_wait *w)
{
    if (w->notified) return; /* it keeps its place */
    w->notified = OF_ALL_KEYS;
    hf__schedule(w);
}
