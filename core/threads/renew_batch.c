/*
 * renew_batch.c - many renewals by one call of the driver (replace_many). See threads.h.
 *
 * A renewal needs the row as it is stored. Mostly that is the row that this handle wrote last
 * (hf_lock.row), or that a notification has brought. Otherwise the batch reads it by a replace that
 * is always refused (NO_REV), because the refusal brings the row. One call makes one attempt for
 * each grant. A grant whose write was refused or not answered goes back to the queues, with the row
 * that is known by then. A write that wasn't answered is kept and sent again as it is (cas_loop.h
 * says why). Grants of one key are renewed by one write.
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

enum { AT_ONCE_LEAST = 8 }; /* an unanswered request makes at_once no smaller than this */
/* A renewal that is due within a twelfth of its lease is made together with those that are due
   now. */
enum { SOON_PART = 12 };
/* The repetition of an unanswered renewal shares its request with a quarter as many renewals. So a
   renewal that always hangs is soon alone, and one that hung by chance is still made with others.
 */
enum { AGAIN_PART = 4 };

/* No row has this rev: revs grow from the store's clock (microseconds), and stay below 2^53. */
static const uint64_t NO_REV = (UINT64_C(1) << 53) - 1;

/* The renewal of the grants of one key, by one write. */
struct renewal {
    hf_lock *first;   /* the grants that this write renews, linked by renewed_with */
    uint64_t seen;    /* the rev that the write replaces */
    hf_row row, next; /* the row as it is stored, so far as is known; the row to write */
    int reads;        /* 1: `row` isn't known: this attempt only reads it */
    int again;        /* 1: `next` has been sent before */
    int mine;         /* 1: `next` may have landed */
    int sent;         /* 1: in this call */
    uint32_t among;   /* how many renewals the call had */
    int late;         /* 1: the call took all the time that it had */
    int stuck;        /* 1: the first one of the call that wasn't answered: those behind it may only
                         have waited for it */
    int rc;
    hf_error err; /* why `rc` is negative; code 0: the driver didn't say */
};

/* When a call is made: by the local clock, and by the store's. */
struct moment {
    int64_t local_us;
    struct hf_time store;
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

/* Seizes the lock. If the renewal gives it an earlier end than the present one, that end counts
   from now on, because the renewal may land although its reply is lost. */
static void seize(hf_lock *l, int64_t lo_us)
{
    int64_t end_us = lo_us + lease_us(l);
    l->busy = 1;
    if (l->renewal.nth) hf__renew_at(l, l->renew_at_us); /* takes it out of its queue */
    l->before_us = l->expires_us;
    if (!l->expires_us || end_us < l->expires_us) l->expires_us = end_us;
    l->renewed_with = NULL;
}

/* Returns 1 if the lock's renewal is due; with `soon`, also if it will be due within SOON_PART of
   its lease. */
static int is_due(const hf_lock *l, int64_t now_us, int soon)
{
    int early = soon && !l->unanswered && !l->claims;
    return l->renew_at_us <= now_us + (early ? lease_us(l) / SOON_PART : 0);
}

/* Adds the other grants of the key whose renewals are due, too. */
static void add_others(struct renewal *r, const struct moment *now, int soon)
{
    hf_lock *last = r->first;
    for (hf_lock *l = r->first->e->locks; l; l = l->next) {
        if (!hf__renewable(l) || l->pending_release || !is_due(l, now->local_us, soon) ||
            !hf__perhaps_held(l))
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

/* Returns 1 if another thread is renewing a grant of the same key. That thread puts this lock back
   into the queue when it is done (end()). */
static int waits_for_key(hf_lock *l)
{
    struct hf_entry *e = l->e;
    if (!e->renewing) return 0;
    e->renewing = 2;
    return 1;
}

/* Takes the most urgent grant out of the queue. If the call has `taken` some already, grants that
   are due soon are taken, too: fewer calls mean fewer that can hang. Returns NULL if the call takes
   no more: no grant is due, the first is a pending release, or the first needs a call with fewer
   renewals (again_with). */
static hf_lock *next_grant(hf *h, enum hf_renewal_queue queue, size_t taken, int64_t now_us)
{
    struct hf_renewals *r = &h->renewals;
    const struct hf_deadlines *from = &r->due[queue];
    if (!from->first && queue == HF_RENEWALS_DUE && taken) from = &r->waiting;
    if (!from->first) return NULL;
    hf_lock *l = HF_DEADLINE_OF(from->first, hf_lock, renewal);
    if (l->pending_release) return NULL;
    if (l->unanswered && taken >= l->again_with) return NULL;
    if (from == &r->waiting && !is_due(l, now_us, 1)) return NULL;
    hf__renewal_drop(l);
    return l;
}

/* Returns how long the store may take for this renewal, in µs. The lock is seized. */
static int64_t patience(const hf_lock *l, enum hf_renewal_queue queue, const struct moment *now,
                        int64_t trip_us)
{
    int64_t left_us = l->expires_us ? l->expires_us - now->store.hi_us : lease_us(l);
    enum hf_renewal_try nth = queue == HF_RENEWALS_DUE ? HF_RENEWAL_FIRST : HF_RENEWAL_AGAIN;
    return hf__renewal_patience_us(nth, lease_us(l), left_us, trip_us);
}

/* Takes renewals for one call, which is made at *now. Returns how long the store may take for it,
   in µs. */
static int64_t collect(hf *h, struct hf_renew_batch *b, enum hf_renewal_queue queue, size_t most,
                       const struct moment *now)
{
    int64_t least = h->port.io_timeout_ms * 1000, trip_us = hf__port_round_trip_us(&h->port);
    hf_lock *l;
    b->n = 0;
    while (b->n < most && (l = next_grant(h, queue, b->n, now->local_us))) {
        struct renewal *r = &b->one[b->n];
        if (!hf__renewable(l) || waits_for_key(l)) continue;
        if (!hf__perhaps_held(l)) {
            hf__mark_expired(l);
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

/* Makes the row that is to be stored, by a step for each grant. Returns: 0; HF_LOST: no grant could
   be renewed, so there is nothing to write; HF_NOMEM. */
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

/* Judges the result of a renewal. Returns 0 if it is stored, and then `row` is the stored row;
   otherwise as hf__cas_judge. */
static int judge(struct renewal *r, int rc)
{
    if (r->reads) return rc ? rc : HF_UNKNOWN;
    rc = hf__cas_judge(rc, &r->row, &r->next, &r->mine);
    return rc ? rc : hf_row_copy(&r->row, &r->next);
}

/* Sets at_once, the number of renewals in a call: as many as the store answers in half of the time
   that it has, but no less than half of the last number and no more than twice that. If none was
   answered, the call may have hung, or it was too large (some stores answer all or none). */
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

/* Plans the next renewal of the lock for local at_us, and ends the seizure (hf__let_go). */
static void put_back(hf_lock *l, int64_t at_us)
{
    if (!l->lost && !l->releasing) hf__renew_at(l, at_us);
    hf__let_go(l);
}

/* Handles a conflict: another client has written the row, or the attempt only read it. `row` is the
   present one. If the grant is still in it, the renewal is tried again upon it; otherwise the lock
   is lost. */
static void row_moved(const struct renewal *r, hf_lock *l)
{
    l->expires_us = l->before_us;
    l->unanswered = 0;
    if (hf__find_grant(&r->row, l->token) < 0)
        hf__mark_lost(l, HF_BY_STORE);
    else
        hf__note_row(l, &r->row);
    l->corrupt_us = 0; /* the row was read */
    put_back(l, hf__local_us());
}

/* Handles a renewal that is stored. If the step found the grant over by the clock, the row doesn't
   have it any more: the lock is lost. */
static void renewed(const struct renewal *r, hf_lock *l)
{
    l->unanswered = 0;
    if (hf__find_token(&r->row, l->token) < 0)
        hf__mark_lost(l, HF_BY_TIME);
    else
        hf__renewed(l, &r->row);
    hf__let_go(l);
}

/* Plans another attempt after one that wasn't answered. The first lock keeps the row, so that the
   same write is sent again. Until then the holder relies on the lock only until the earlier of the
   two ends that may be in force. */
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

/* Puts back a renewal that wasn't sent, because others of the same call took all its time. */
static void not_sent(const struct renewal *r, hf_lock *l)
{
    l->expires_us = l->before_us;
    hf__note_unanswered(l, 1, r->among / AGAIN_PART);
    put_back(l, hf__local_us());
}

/* Applies the result of a request to one lock. */
static void conclude(const struct renewal *r, hf_lock *l)
{
    if (r->rc == HF_CORRUPT && r->sent)
        hf__renewal_corrupt(l, &r->err);
    else if (r->rc < 0 && r->sent)
        hf__error_keep(&l->why, &r->err);
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
    const struct moment now = {hf__local_us(), hf__port_now(&h->port)};
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
        if (r->sent) cut |= !b->item[item].clock_us; /* a part of the call wasn't answered */
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
