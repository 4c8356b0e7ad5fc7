/*
 * threads.c - the tender and the renewer of a handle (see handle.h).
 */
#include "handle.h"

#include "os.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { BREAK_LOOK_US = 250000, ADOPTED_US = 1000000, BLIND_HEAD_US = 10000, MOURN_LOOKS = 11 };

/* A death may be told a little before the store knows it: when to ask again after being told. */
static const int64_t mourn_after_us[MOURN_LOOKS] = {
    0, 300, 1000, 3000, 10000, 30000, 100000, 300000, 1000000, 3000000, 10000000};

/* Whatever was missed: each waiter is looked at now and then. */
static const int64_t NET_US = 30000000;

/* ---- the tender ---- */

void hf__kick_tender(hf *h, int64_t at_us)
{
    uint64_t one = 1;
    /* It has to begin to mourn with the first wait. */
    int settled = h->mourning || !(h->port.can & HF_CAN_BELLS);
    if (!h->tender_runs || (at_us >= h->tender_until_us && settled)) return;
    h->tender_todo = 1;
    if (!h->tender_sleeps) return;
    h->tender_until_us = at_us;
    /* Full means that it is awake already. */
    if (write(h->tender_fd, &one, sizeof one) < 0) return;
}

/* Has somebody ended a grant that lasts as long as its session? Or is the store gone, in which case
   others may be granted the key by another one? Under the mutex, dropped. */
static void look_for_break(hf *h, hf_lock *l)
{
    hf_row row;
    l->busy = 1;
    pthread_mutex_unlock(&h->mu);
    hf_row_init(&row);
    hf_error err = {0};
    int rc = hf__port_get(&h->port, &l->e->key, &row, &err);
    int64_t at = rc ? -1 : hf__find_grant(&row, l->token);
    int there = rc ? rc != HF_CORRUPT : at >= 0;
    pthread_mutex_lock(&h->mu);
    /* Who knows the token may have given it another lease, which counts. */
    if (at >= 0) l->expires_us = row.party[at].expires_us;
    hf_row_clear(&row);
    l->busy = 0;
    l->look_at_us = hf__local_us() + BREAK_LOOK_US;
    if (!there) {
        hf__reason_keep(&l->why, &err);
        hf__lock_lose(l, HF_BY_STORE);
    }
    hf__kick_renewer(l); /* which passed over it */
    pthread_cond_broadcast(&h->changed);
}

/* One that its holder has given up, but the store didn't take back yet. */
static int tend_leftover(hf_lock *l, int64_t now, int64_t *until)
{
    if (l->busy) return 0;
    if (l->look_at_us > now) {
        *until = hf__min64(*until, l->look_at_us);
        return 0;
    }
    hf__release(l, NULL);
    return 1;
}

/* One lock: loses it in time, tells, says in *until when to look again. 1: the list may have
   changed. */
static int tend_lock(hf *h, hf_lock *l, int64_t now, int64_t *until)
{
    int instant = h->port.can & HF_CAN_INSTANT;
    if (l->leftover) return instant ? tend_leftover(l, now, until) : 0;
    if (!l->lost && !l->releasing) {
        /* While an adopted hold is being renewed, the store's answer decides. */
        if (l->tenure && !(l->tenure->adopted && l->busy)) {
            int64_t end = hf__tenure_until(l) + (l->tenure->adopted ? ADOPTED_US : 0);
            if (now >= end)
                hf__lock_lose(l, HF_BY_TIME);
            else
                *until = hf__min64(*until, end);
        }
        if (l->expires_us) {
            int64_t end = hf__lease_ends(l, now);
            if (end <= now)
                hf__lock_lose(l, HF_BY_TIME);
            else
                *until = hf__min64(*until, end);
        }
        if (l->hold_until_us) {
            if (now >= l->hold_until_us)
                hf__lock_lose(l, HF_BY_CAP);
            else
                *until = hf__min64(*until, l->hold_until_us);
        }
    }
    /* Not while it is being given back: its memory may be another grant's by then. */
    if (l->lost && l->on_lost && !l->told && !l->releasing) {
        hf__tell_lost(l);
        return 1;
    }
    int asks = (l->lost_fd >= 0 || l->on_lost) && instant;
    if (l->lost || l->releasing || l->busy || !asks) return 0;
    if (l->look_at_us <= now) {
        look_for_break(h, l);
        return 1;
    }
    *until = hf__min64(*until, l->look_at_us);
    return 0;
}

/* Does the session of the one that is waited for live? Asked once a round, however many wait for
   it. What can't be said counts as alive, and is asked again. */
static int lives(hf *h, uint64_t session, int *ret_unsure)
{
    if (!session || session == h->port.session) return 1;
    struct hf_round *r = &h->round;
    for (uint32_t i = 0; i < r->n && i < HF_ROUND_CAP; i++)
        if (r->session[i] == session) return r->alive[i];
    int alive = h->port.drv->alive(h->port.st, session, NULL);
    if (alive < 0) *ret_unsure = 1;
    uint32_t at = r->n++ % HF_ROUND_CAP;
    r->session[at] = session;
    r->alive[at] = alive != 0;
    return alive != 0;
}

/* Is there something about the one ahead of the waiter at `at` that somebody has to act upon? In
 *next: when to look again. */
static int to_notice(const struct hf_wait *w, const hf_row *row, int64_t at, int64_t *next)
{
    hf *h = w->h;
    int64_t place = at - (int64_t)row->n_holders, lo = hf__port_now(&h->port).lo_us;
    int64_t now = hf__local_us();
    int unsure = 0, act = 0;
    *next = now + (place + 1) * NET_US;
    for (uint32_t i = 0; i < row->n_holders; i++) {
        const hf_party *p = &row->party[i];
        if (p->expires_us) {
            int64_t left = p->expires_us - lo;
            *next = hf__min64(*next,
                              now + (left > 0 ? left : 0) + 1 + hf__stagger_us(w, (uint32_t)place));
            act |= left <= 0;
        }
        if (!place && !lives(h, p->session, &unsure)) act = 1;
    }
    if (place && !lives(h, row->party[at - 1].session, &unsure)) act = 1;
    if (h->mourning < 0) /* no word of deaths: look */
        *next = hf__min64(*next, now + (place ? HF_POLL_MS * 1000 : BLIND_HEAD_US));
    if (unsure) *next = hf__min64(*next, now + HF_POLL_MS * 1000);
    return act || !row->n_holders;
}

/* What somebody should notice for this wait: the end of a holder, of a handed-over grant, of the
   one ahead. Under the mutex, dropped; the wait is pinned, which keeps it in the list. */
static void notice(hf *h, struct hf_wait *w)
{
    struct hf_event ev = {.kind = HF_EV_PROMOTE};
    struct hf_outcome out;
    hf_row row;
    int64_t at = -1, next = INT64_MAX;
    memcpy(ev.id, w->party.id, 16);
    w->pins++;
    w->notice_at_us = INT64_MAX;
    pthread_mutex_unlock(&h->mu);
    hf_row_init(&row);
    int rc = hf__port_get(&h->port, &w->e->key, &row, NULL);
    if (!rc) at = hf__find_id(&row, w->party.id);
    if (!rc && at >= (int64_t)row.n_holders && to_notice(w, &row, at, &next)) {
        rc = hf__turn(&h->port, &w->e->key, &ev, &row, 1, 0, &out, NULL);
        if (!rc) hf__promise(h, w->e, &row);
        at = rc ? -1 : hf__find_id(&row, w->party.id);
        if (!rc && at >= (int64_t)row.n_holders) to_notice(w, &row, at, &next);
    }
    if (rc) next = hf__local_us() + HF_POLL_MS * 1000;
    /* A store that is gone for good is told to who waits, too. */
    int gone = rc && rc != HF_UNAVAILABLE && rc != HF_UNKNOWN;
    if (gone || (!rc && at < (int64_t)row.n_holders))
        /* It has been granted, perhaps by one who died before it could ring. Or it was, and has
           lost that again in its sleep (broken, or the claim ran out): it has to ask anew. */
        h->port.drv->interrupt(h->port.st, w->party.bell);
    hf_row_clear(&row);
    pthread_mutex_lock(&h->mu);
    w->notice_at_us = hf__min64(w->notice_at_us, next);
    if (!--w->pins) pthread_cond_broadcast(&w->changed);
}

static void tend_waits(hf *h, int64_t *until)
{
    h->round.n = 0;
    for (struct hf_wait *w = h->at_store; w; w = w->list_next) {
        if (w->state != HF_W_AT_STORE || !w->queued) continue;
        if (w->notice_at_us <= hf__local_us()) notice(h, w);
        *until = hf__min64(*until, w->notice_at_us);
    }
}

/* Grants that were handed over from here: passed on when their claim has run out. */
void hf__promise(hf *h, struct hf_entry *e, const hf_row *row)
{
    int64_t first = INT64_MAX;
    if (!(h->port.can & HF_CAN_BELLS)) return; /* there the waiters look by themselves */
    for (uint32_t i = 0; i < row->n_holders; i++)
        if (row->party[i].flags & HF_PARTY_UNCLAIMED && row->party[i].session != h->port.session)
            first = hf__min64(first, row->party[i].expires_us);
    if (first == INT64_MAX) return;
    int64_t at = hf__local_us() + first - hf__port_now(&h->port).lo_us + 1000;
    pthread_mutex_lock(&h->mu);
    if (!e->promise_at_us) {
        e->refs++;
        h->promises++;
    }
    e->promise_at_us = at;
    if (at < h->promise_at_us) h->promise_at_us = at;
    if (!hf__need_tender(h, NULL)) hf__kick_tender(h, at);
    pthread_mutex_unlock(&h->mu);
}

static void keep_promise(hf *h, struct hf_entry *e)
{
    struct hf_event ev = {.kind = HF_EV_PROMOTE};
    struct hf_outcome out;
    hf_row row;
    hf_row_init(&row);
    pthread_mutex_unlock(&h->mu);
    int rc = hf__turn(&h->port, &e->key, &ev, &row, 0, 0, &out, NULL);
    if (!rc) hf__promise(h, e, &row);
    hf_row_clear(&row);
    pthread_mutex_lock(&h->mu);
    hf__entry_put(e);
}

/* When to look again. Under the mutex, dropped. */
static int64_t tend_promises(hf *h)
{
    if (!h->promises) return INT64_MAX;
    if (h->promise_at_us > hf__local_us()) return h->promise_at_us;
again:
    h->promise_at_us = INT64_MAX;
    for (uint32_t i = 0; i < h->buckets; i++)
        for (struct hf_entry *e = h->table[i]; e; e = e->next) {
            if (!e->promise_at_us) continue;
            if (e->promise_at_us > hf__local_us()) {
                h->promise_at_us = hf__min64(h->promise_at_us, e->promise_at_us);
                continue;
            }
            e->promise_at_us = 0;
            h->promises--;
            keep_promise(h, e);
            goto again; /* the table may have changed meanwhile */
        }
    return h->promise_at_us;
}

static void mourn_all(hf *h)
{
    for (struct hf_wait *w = h->at_store; w; w = w->list_next) w->notice_at_us = 0;
}

static int64_t tend_locks(hf *h)
{
    int64_t until;
again:
    until = INT64_MAX;
    for (hf_lock *l = h->cared; l; l = l->care_next)
        if (tend_lock(h, l, hf__local_us(), &until)) goto again;
    return until;
}

static void tender_sleep(hf *h, struct pollfd *fds, int64_t until)
{
    int64_t left = until == INT64_MAX ? -1 : until - hf__local_us();
    if (until != INT64_MAX && left < 0) left = 0;
    struct timespec t = {left / 1000000, left % 1000000 * 1000};
    h->tender_sleeps = 1;
    pthread_mutex_unlock(&h->mu);
    ppoll(fds, 2, left < 0 ? NULL : &t, NULL);
    pthread_mutex_lock(&h->mu);
    h->tender_sleeps = 0;
    uint64_t n;
    if (read(h->tender_fd, &n, sizeof n) < 0) return; /* nobody had kicked */
}

static void *tender(void *arg)
{
    hf *h = arg;
    struct pollfd fds[2] = {{h->tender_fd, POLLIN, 0}, {-1, POLLIN, 0}};
    int64_t mourn_at = 0, told_at = 0;
    int looks = 0, bells = (h->port.can & HF_CAN_BELLS) != 0;
    pthread_mutex_lock(&h->mu);
    while (h->closing < 3) {
        if (bells && !h->mourning && h->at_store) {
            /* From here on deaths are told; who died before is found by looking once. */
            int can = h->port.drv->mourn_fd != NULL;
            fds[1].fd = can ? h->port.drv->mourn_fd(h->port.st) : -1;
            h->mourning = !can || fds[1].fd >= 0 ? 1 : -1;
            mourn_all(h);
        }
        if (fds[1].revents & POLLIN) {
            fds[1].revents = 0;
            if (h->port.drv->mourn_read(h->port.st)) {
                told_at = mourn_at = hf__local_us();
                looks = 0;
            }
        }
        if (looks < MOURN_LOOKS && told_at && hf__local_us() >= mourn_at) {
            mourn_all(h);
            mourn_at = ++looks < MOURN_LOOKS ? told_at + mourn_after_us[looks] : INT64_MAX;
        }
        h->tender_todo = 0; /* who kicks from here on wants another round */
        h->tender_until_us = INT64_MAX;
        int64_t until = looks < MOURN_LOOKS && told_at ? mourn_at : INT64_MAX, waits = INT64_MAX;
        until = hf__min64(until, tend_locks(h));
        if (bells) tend_waits(h, &waits);
        until = hf__min64(until, hf__min64(waits, tend_promises(h)));
        if (h->closing == 3 || h->tender_todo) continue;
        h->tender_until_us = until;
        tender_sleep(h, fds, until);
    }
    pthread_mutex_unlock(&h->mu);
    return NULL;
}

int hf__own_thread(const hf *h)
{
    return (h->pump_runs && pthread_equal(pthread_self(), h->pump)) ||
           (h->tender_runs && pthread_equal(pthread_self(), h->tender));
}

int hf__need_tender(hf *h, hf_error *err)
{
    if (h->tender_runs) return 0;
    if (h->tender_fd < 0) h->tender_fd = hf__fd_above(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (h->tender_fd < 0)
        return hf_fail(err, HF_UNAVAILABLE, errno, "start a thread: %s", strerror(errno));
    return hf__start_thread(h, &h->tender_runs, &h->tender, tender, err);
}

/* ---- the renewer ---- */

/* Whoever acquires and releases in a hurry must not wake a thread each time. */
void hf__kick_renewer(hf_lock *l)
{
    hf *h = l->h;
    if (l->renew_at_us < h->renewer_until_us) pthread_cond_signal(&h->renewer_cond);
}

/* A failed renewal is tried again soon, but not in a hot loop; a refused one has lost the lock. */
static void renew_one(hf *h, hf_lock *l)
{
    if (l->leftover) {
        hf__release(l, NULL);
        return;
    }
    l->busy = 1;
    int rc = hf__renew(l, l->lease_ms, 0, NULL);
    int64_t third = (int64_t)l->lease_ms * 1000 / 3;
    if (rc && !l->lost && !l->releasing)
        l->renew_at_us = hf__local_us() + hf__min64(third / 4, 500000);
    l->busy = 0;
    pthread_cond_broadcast(&h->changed);
}

static void *renewer(void *arg)
{
    hf *h = arg;
    pthread_mutex_lock(&h->mu);
    while (h->closing < 3) {
        int64_t next = INT64_MAX, tenures = hf__tenures_tend(h);
        hf_lock *first = NULL;
        if (h->closing == 3) break;
        for (hf_lock *l = h->cared; l; l = l->care_next)
            if (!l->busy && (l->leftover || (!l->lost && !l->releasing)) && l->renew_at_us < next) {
                first = l;
                next = l->renew_at_us;
            }
        if (first && next <= hf__local_us()) {
            renew_one(h, first);
            continue;
        }
        h->renewer_until_us = hf__min64(next, tenures);
        hf__cond_until(&h->renewer_cond, &h->mu, h->renewer_until_us);
        h->renewer_until_us = 0;
    }
    pthread_mutex_unlock(&h->mu);
    return NULL;
}

int hf__need_renewer(hf *h, hf_error *err)
{
    return hf__start_thread(h, &h->renewer_runs, &h->renewer, renewer, err);
}
