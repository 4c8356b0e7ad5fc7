/*
 * renew_batch.c - many renewals by one call of the driver (replace_many). See threads.h.
 *
 * A renewal needs the row as it is stored. Mostly it is the one that this handle wrote last
 * (hf_lock.row), or that a notification has brought; else it is asked for by a replace that every
 * row refuses. One call makes one attempt for each grant: what was refused or isn't answered goes
 * back to the queues, with what is known of it by then. A write that wasn't answered is kept and
 * sent again as it is (cas_loop.h says why). Grants of one key are renewed by one write.
 */
#include "belief.h"
#include "cas_loop.h"
#include "deadline_list.h"
#include "handle.h"
#include "kept_error.h"
#include "known_row.h"
#include "lock.h"
#include "lost.h"
#include "os.h"
#include "renew.h"
#include "renewal.h"
#include "renewal_queue.h"
#include "start_threads.h"
#include "threads.h"

#include <stdlib.h>

enum { AT_ONCE_LEAST = 8 }; /* where nothing was answered */
/* A renewal that is due within this part of its lease is made together with those that are due now.
 */
enum { SOON_PART = 12 };
/* A renewal that wasn't answered is asked for again with a quarter as many others: what always
   hangs is alone soon, and what hung by chance is still made with others. */
enum { AGAIN_PART = 4 };

/* No row has this rev: revs grow from the store's clock (microseconds), and stay below 2^53. */
static const uint64_t NO_REV = (UINT64_C(1) << 53) - 1;

/* One key. */
struct renewal {
    hf_lock *first; /* the grants that this write renews, linked by renewed_with */
    uint64_t seen;
    hf_row row, next; /* the row as it is stored, so far as is known; the row to write */
    int reads;        /* `row` isn't known: this request asks for it */
    int again;        /* `next` has been sent before */
    int mine;         /* it may have landed */
    int sent;         /* in this call */
    uint32_t among;   /* how many renewals the request had */
    int late;         /* the request took all the time that it had */
    int stuck;        /* the first one that wasn't answered: those behind it may only have waited
                         for it */
    int rc;
    hf_error err; /* code 0: nothing was said */
};

struct hf_renew_batch {
    size_t n, n_sent;
    struct renewal one[HF_RENEWALS_AT_ONCE];
    hf_replace item[HF_RENEWALS_AT_ONCE];
};

struct hf_renew_batch *hf__renew_batch_new(void) { return malloc(sizeof(struct hf_renew_batch)); }
void hf__renew_batch_free(struct hf_renew_batch *batch) { free(batch); }

static int64_t lease_us(const hf_lock *l) { return (int64_t)l->lease_ms * 1000; }

/* ---- before: under the mutex ---- */

/* Reserves the lock for this thread. A lease shorter than the one in force counts from now on,
   because it may come into force although its reply is lost. */
static void seize(hf_lock *l, int64_t lo_us)
{
    int64_t end_us = lo_us + lease_us(l);
    l->busy = 1;
    if (l->renewal.nth) hf__renew_at(l, l->renew_at_us); /* takes it out of its queue */
    l->before_us = l->expires_us;
    if (!l->expires_us || end_us < l->expires_us) l->expires_us = end_us;
    l->renewed_with = NULL;
}

/* Returns 1 if the lock is due; with `soon`, also if it will be due so soon that it is renewed
   together with others. */
static int is_due(const hf_lock *l, int64_t now_us, int soon)
{
    int early = soon && !l->unanswered && !l->claims;
    return l->renew_at_us <= now_us + (early ? lease_us(l) / SOON_PART : 0);
}

/* Adds the other grants of the key that are due. */
static void add_others(struct renewal *r, const struct hf_moment *now, int soon)
{
    hf_lock *last = r->first;
    for (hf_lock *l = r->first->e->locks; l; l = l->next) {
        if (!hf__renewable(l) || l->pending_release || !is_due(l, now->local_us, soon) ||
            !hf__perhaps_held_at(l, now))
            continue;
        seize(l, now->store.lo_us);
        last = last->renewed_with = l;
    }
}

static void begin(struct renewal *r, hf_lock *l, int64_t lo_us)
{
    hf_row_init(&r->row);
    hf_row_init(&r->next);
    r->first = l;
    r->mine = r->again = l->sent && !hf__show_row(l->sent, &r->next);
    r->seen = l->sent_seen;
    r->reads = !r->again && !hf__known_row(l, &r->row);
    hf__forget_row(&l->sent);
    seize(l, lo_us);
}

/* Returns 1 if another thread renews a grant of the same key. At its end that thread puts this lock
   back into the queue. */
static int waits_for_key(hf_lock *l)
{
    struct hf_entry *e = l->e;
    if (!e->renewing) return 0;
    e->renewing = 2;
    return 1;
}

/* Takes the most urgent grant out of the queue. Once the request has one (`taken`), it also takes
   grants that are due soon: fewer requests mean fewer that can hang. Returns NULL if the request
   takes no more: none is due, the first is a release, or its repetition needs a smaller request. */
static hf_lock *next_grant(hf *h, enum hf_renewal_queue queue, size_t taken, int64_t now_us)
{
    struct hf_renewals *r = &h->renewals;
    const struct hf_deadlines *from = &r->due[queue];
    if (!from->first && queue == HF_RENEWALS_DUE && taken) from = &r->waiting;
    if (!from->first) return NULL;
    hf_lock *l = HF_DEADLINE_OF(from->first, hf_lock, renewal);
    if (l->pending_release) return NULL; /* that is a release */
    /* its repetition has to share a request with fewer renewals */
    if (l->unanswered && taken >= l->again_with) return NULL;
    if (from == &r->waiting && !is_due(l, now_us, 1)) return NULL;
    hf__renewal_drop(l);
    return l;
}

/* Returns how long the store may take for this renewal. The lock is reserved. */
static int64_t patience(const hf_lock *l, enum hf_renewal_queue queue, const struct hf_moment *now,
                        int64_t trip_us)
{
    int64_t left_us = l->expires_us ? l->expires_us - now->store.hi_us : lease_us(l);
    enum hf_renewal_try nth = queue == HF_RENEWALS_DUE ? HF_RENEWAL_FIRST : HF_RENEWAL_AGAIN;
    return hf__renewal_patience_us(nth, lease_us(l), left_us, trip_us);
}

/* Takes renewals for one call, which is made at *now. Returns how long the store may take for them.
 */
static int64_t collect(hf *h, struct hf_renew_batch *b, enum hf_renewal_queue queue, size_t most,
                       const struct hf_moment *now)
{
    int64_t least = h->port.io_timeout_ms * 1000, trip_us = hf__port_round_trip_us(&h->port);
    hf_lock *l;
    b->n = 0;
    while (b->n < most && (l = next_grant(h, queue, b->n, now->local_us))) {
        struct renewal *r = &b->one[b->n];
        if (!hf__renewable(l) || waits_for_key(l)) continue;
        if (!hf__perhaps_held_at(l, now)) {
            hf__mark_expired(l); /* which tells its holder */
            continue;
        }
        l->e->renewing = 1;
        begin(r, l, now->store.lo_us);
        if (l->e->locks->next) add_others(r, now, queue == HF_RENEWALS_DUE);
        b->n++;
        least = hf__min64(least, patience(l, queue, now, trip_us));
    }
    return least;
}

/* ---- the writes: without the mutex ---- */

/* Makes the row that is to be stored, by the step. Returns 0 if there is something to write. */
static int plan(struct renewal *r, struct hf_time now)
{
    struct hf_event ev = {.kind = HF_EV_RENEW, .now = now};
    int changed = 0;
    int rc = hf_row_copy(&r->next, &r->row);
    if (rc) return rc;
    for (hf_lock *l = r->first; l; l = l->renewed_with) {
        ev.token = l->token;
        ev.lease_ms = l->lease_ms;
        changed |= hf__step(&r->next, &ev).changed;
    }
    r->seen = r->row.rev;
    return changed ? 0 : HF_LOST;
}

static void put(struct hf_renew_batch *b, struct renewal *r, struct hf_time now)
{
    r->sent = 0;
    r->rc = 0;
    if (r->reads)
        r->seen = NO_REV;
    else if (!r->again)
        r->rc = plan(r, now);
    if (r->rc) return;
    r->sent = 1;
    r->err.code = 0;
    b->item[b->n_sent++] = (hf_replace){
        .key = &r->first->e->key, .seen = r->seen, .row = &r->next, .cur = &r->row, .err = &r->err};
}

/* Judges the result of a renewal. Returns 0 if it is stored; then `row` is the stored row. */
static int judge(struct renewal *r, int rc)
{
    if (r->reads) return rc ? rc : HF_UNKNOWN;
    rc = hf__cas_judge(rc, &r->row, &r->next, &r->mine);
    return rc ? rc : hf_row_copy(&r->row, &r->next);
}

/* Sets how many renewals are sent at once: as many as the store answers in half of its time, but
   between half and twice as many as the last time. If none is answered, the request may have hung,
   or was too large: some stores answer all or none. */
static void learn(struct hf_renewals *r, const struct hf_renew_batch *b, int64_t took_us,
                  int64_t patience_us)
{
    uint32_t answered = 0, half = r->at_once / 2;
    for (size_t i = 0; i < b->n_sent; i++) answered += b->item[i].clock_us != 0;
    if (b->n_sent >= r->at_once && took_us < patience_us / 5 && answered == b->n_sent)
        r->at_once = r->at_once * 2 < HF_RENEWALS_AT_ONCE ? r->at_once * 2 : HF_RENEWALS_AT_ONCE;
    if (!b->n_sent || took_us <= patience_us / 2 || (!answered && half < AT_ONCE_LEAST)) return;
    uint32_t best = (uint32_t)(answered * (patience_us / 2) / took_us);
    if (best < half) best = half;
    if (best < r->at_once) r->at_once = best ? best : 1;
}

/* ---- after: under the mutex ---- */

/* Puts the lock back into the queue, to be renewed at at_us. */
static void put_back(hf_lock *l, int64_t at_us)
{
    if (!l->lost && !l->releasing) hf__renew_at(l, at_us);
    hf__let_go(l);
}

/* Another client has written the row, which is `row` now. A grant that is still in it is renewed
   upon that row; one that isn't is lost. */
static void row_moved(const struct renewal *r, hf_lock *l)
{
    l->expires_us = l->before_us;
    l->unanswered = 0;
    if (hf__find_grant(&r->row, l->token) < 0)
        hf__mark_lost(l, HF_BY_STORE);
    else
        hf__note_row(l, &r->row);
    put_back(l, hf__local_us());
}

/* The row is stored. A grant that was over by the clock was left out of it by the step: it is
   lost. */
static void renewed(const struct renewal *r, hf_lock *l)
{
    l->unanswered = 0;
    if (hf__find_token(&r->row, l->token) < 0)
        hf__mark_lost(l, HF_BY_TIME);
    else
        hf__renewed(l, &r->row);
    hf__let_go(l);
}

/* Plans the same write again after one that wasn't answered, by the lock that was asked for first.
   The holder believes in the shorter of the two leases that may be in force. */
static void unanswered(const struct renewal *r, hf_lock *l)
{
    hf__note_unanswered(l, r->stuck ? 2 : 1, r->among / AGAIN_PART);
    if (l == r->first && !r->reads) {
        hf__keep_row(&l->sent, &r->next, HF_KEPT_BY_LOCK);
        l->sent_seen = r->seen;
    }
    if (r->reads) l->expires_us = l->before_us;
    put_back(l, hf__local_us());
}

/* Puts back a renewal that wasn't sent, because earlier ones of the same call took too long. */
static void not_sent(const struct renewal *r, hf_lock *l)
{
    l->expires_us = l->before_us;
    hf__note_unanswered(l, 1, r->among / AGAIN_PART);
    put_back(l, hf__local_us());
}

/* Applies the result of a request to one lock. */
static void conclude(const struct renewal *r, hf_lock *l)
{
    if (r->rc < 0 && r->sent) hf__error_keep(&l->why, &r->err);
    if (r->rc == 0) {
        renewed(r, l);
    } else if (r->rc == HF_CONFLICT) {
        row_moved(r, l);
    } else if (r->rc == HF_UNKNOWN) {
        unanswered(r, l);
    } else if (r->rc == HF_UNAVAILABLE && r->late) {
        not_sent(r, l);
    } else {
        l->expires_us = l->before_us;
        if (r->rc == HF_LOST && !r->sent) /* `plan` found no grant that could be renewed */
            hf__mark_expired(l);
        else
            hf__renewal_failed(l, r->rc, r->among);
        hf__let_go(l);
    }
}

static void end(struct renewal *r)
{
    struct hf_entry *e = r->first->e;
    int others = e->renewing > 1;
    e->renewing = 0;
    for (hf_lock *l = r->first, *next; l; l = next) {
        next = l->renewed_with;
        conclude(r, l);
    }
    for (hf_lock *l = e->locks; l && others; l = l->next) hf__kick_renewer(l);
    hf_row_clear(&r->row);
    hf_row_clear(&r->next);
}

int hf__renew_batch(hf *h, struct hf_renew_batch *b, enum hf_renewal_queue queue, size_t most)
{
    /* One reading of the clocks for all of them. */
    struct hf_moment now = hf__moment(h);
    int64_t patience_us = collect(h, b, queue, most, &now), sent_us = now.local_us;
    if (!b->n) return 0;
    pthread_mutex_unlock(&h->mu);
    b->n_sent = 0;
    for (size_t i = 0; i < b->n; i++) put(b, &b->one[i], now.store);
    int cut = b->n_sent &&
              hf__port_replace_many(&h->port, b->item, b->n_sent, sent_us + patience_us) != 0;
    int64_t took_us = hf__local_us() - sent_us;
    int stuck = 0;
    for (size_t i = 0, item = 0; i < b->n; i++) {
        struct renewal *r = &b->one[i];
        if (r->sent) cut |= !b->item[item].clock_us; /* not all of it was answered */
        if (r->sent) r->rc = judge(r, b->item[item++].result);
        r->stuck = r->rc == HF_UNKNOWN && !stuck++;
        r->late = took_us >= patience_us;
        r->among = (uint32_t)b->n;
        if (!r->rc) hf__watch_claim(h, r->first->e, &r->row);
    }
    pthread_mutex_lock(&h->mu);
    if (queue == HF_RENEWALS_DUE) learn(&h->renewals, b, took_us, patience_us);
    for (size_t i = 0; i < b->n; i++) end(&b->one[i]);
    return stuck || cut ? 2 : 1;
}
