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
/* A waiter that the store notifies of changes polls, too, about every 5 s: a notification may be
   lost (the server drops it, a broken connection takes it), and no store reports each loss. With
   many waits the polls are rarer: all polls of a handle take a tenth of the dispatcher's time at
   most, but each waiter polls at least every 5 minutes. */
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

/* Returns the time between two polls of a wait with a subscription. Under the mutex. */
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
    if (hf__find_id(row, w->party.id) >= 0) return; /* no newcomer: the request is in the row */
    int64_t now = hf__local_us();
    /* No request is queued: another handle acquires and releases the key in a loop. The next
       attempt is an `acquire` of the driver, which succeeds whatever the rev is. It is made soon,
       because that handle pauses only now and then (hf__yields_first). */
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
        /* The expiry monitor looks after this time even if nothing happens, in case that something
           was missed. */
        end = hf__min64(end, hf__local_us() + (place + 1) * HF_LOOK_MOST_US);
        hf__look_at(w, INT64_MAX); /* a wakeup or the expiry monitor makes the wait look */
        /* The monitor's deadline for this wait passed before the wait was queued: it looks now. */
        if (w->check_missed) end = 0;
        w->check_missed = 0;
        hf__note_peers(w, row, row->n_holders + place);
        if (!w->check.nth || end < w->check.at_us) hf__check_at(w, end);
        int rc = hf__need_monitor(h);
        if (rc) hf__look_at(w, hf__min64(end, hf__local_us() + hf__poll_us(h)));
        if (!rc) hf__kick_monitor(h, w->check.at_us);
    } else {
        /* A store with hf_liveness_ops doesn't notify of the death of a process, so the wait polls
           often. */
        int notified = w->subscribed && !h->port.caps.liveness;
        int64_t look = hf__local_us() + (notified ? notified_poll_us(h) : hf__poll_us(h));
        w->poll_at_us = notified ? look - look % NOTIFIED_TICK_US : look;
        hf__look_at(w, hf__min64(end, w->poll_at_us));
    }
    pthread_mutex_unlock(&h->mu);
}

/* Returns 1 if the party is known to be dead. On a local store the driver isn't asked, because the
   expiry monitor sees deaths, and wakes the waits that depend on the dead. */
static int is_dead(struct hf_wait *w, const hf_party *p)
{
    if (w->h->port.caps.local) return (p->flags & HF_PARTY_DEAD) != 0;
    return hf__port_dead(&w->h->port, p);
}

/* Returns 1 if all holders and the first waiter are dead. The waiters behind may not be notified of
   that, so any of them acts. */
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
        /* From here on this wait doesn't stagger: the waits ahead had their time, and may be dead.
         */
        __atomic_store_n(&w->alone, 1, __ATOMIC_RELAXED);
        return 0;
    }
    if (is_dead(w, &row->party[at - 1]) || is_stuck(w, row)) return 0; /* this wait acts */
    hf__plan_next_look(w, row, place);
    return 1;
}

/* ---- a pause before the first look, so that others get in ---- */

/*
 * A handle that acquires and releases a key in a loop knows the row, and writes sooner than a
 * newcomer, which has to read the row first: until the newcomer's write arrives, the row has been
 * written again. So the handle would keep the key for ever. It can't see the newcomer, so it pauses
 * without being asked: every YIELD_EVERY_US it doesn't write the row for YIELD_US; each 4th, 16th
 * and 64th time for 4, 16 and 64 times as long, for clients that are far away. That costs less than
 * a fiftieth of such a loop. It costs nothing if the handle doesn't write the row anyway. Where
 * waiters don't queue, the longest pause lasts until each of them has polled.
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
        /* the handle hasn't written the row for long enough anyway: that counts as the pause */
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

enum { AT_ONCE = -1 };                /* sorts before every wait that looks at a set time */
enum { OF_ITS_KEY = 1, OF_ALL_KEYS }; /* values of hf_wait.notified: what the event was about */

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
        /* A time that has passed becomes the present: the wait stands behind those that were due
           before, so that each has its turn. */
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
    if (w->notified) return; /* the wait keeps its place in the queue */
    w->notified = OF_ALL_KEYS;
    hf__schedule(w);
}
