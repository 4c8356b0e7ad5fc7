/*
 * lock.c - the grant, and what its holder does with it: release, renew, ask, finish an event.
 */
#include "lock.h"

#include "belief.h"
#include "claim_timeout.h"
#include "deadline_list.h"
#include "handle.h"
#include "held_sessions.h"
#include "kept_error.h"
#include "key.h"
#include "last_row.h"
#include "lost.h"
#include "os.h"
#include "reason.h"
#include "renewal_queue.h"
#include "session.h"
#include "start_threads.h"
#include "yield.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RELEASE_AGAIN_US = 500000, CLAIM_PART = 8 };

/* Frees what few locks have: deadlines, kept rows, sessions, the descriptor. A lock that the expiry
   monitor watches may have any of it. */
static HF_COLD void untangle(hf_lock *l)
{
    hf__deadline_drop(&l->h->watched, &l->watch);
    hf__renew_at(l, INT64_MAX);
    hf__forget_row(&l->row);
    hf__forget_row(&l->sent);
    l->unanswered = 0;
    if (l->freed) *l->freed = 1;
    if (l->session) hf__session_put(&l->h->sessions, l->session);
    if (l->pending_session) hf__session_put(&l->h->sessions, l->pending_session);
    if (l->lost_fd >= 0) close(l->lost_fd);
    hf__error_clear(&l->why);
    if (l->h->closing) pthread_cond_broadcast(&l->h->changed);
}

static inline void forget(hf_lock *l)
{
    hf *h = l->h;
    *l->prev = l->next;
    if (l->next) l->next->prev = l->prev;
    hf__entry_unref(l->e);
    h->stats.held--;
    if (l->watch.nth || l->freed || l->session || l->pending_session || l->lost_fd >= 0 || l->why ||
        h->closing)
        untangle(l);
    l->next = h->free_locks;
    h->free_locks = l;
}

/* Forgets the lock; its key's entry stays. Under the mutex. */
void hf__lock_free(hf_lock *l) { forget(l); }

/* ---- the grant ---- */

/* Does the row hold this grant and nothing else? A later grant's token is something else: who
   writes the row without looking must not take it back. Rev 0: the rest of it isn't known. */
static uint8_t is_plain(const hf_row *row, uint64_t token)
{
    return row->rev && row->n_holders == 1 && !row->n_queue && !row->done_us && row->token == token;
}

/* Every field of its own (the others are the caller's to set) one by one: a memset of this size
   takes as long as half of an acquisition. */
static void set_up(hf_lock *l, const hf_party *p, const hf_row *row)
{
    l->forks = hf__forks;
    l->token = p->token;
    l->rev = row->rev;
    l->since_us = p->since_us;
    l->thread = 0;
    l->expires_us = p->expires_us;
    l->lease_ms = p->lease_ms;
    l->lost_fd = -1;
    l->renew_at_us = INT64_MAX;
    l->ask_at_us = INT64_MAX;
    l->hold_until_us = 0;
    l->granted_at_us = 0;
    l->session = NULL;
    l->pending_session = NULL;
    l->on_lost = NULL;
    l->on_lost_arg = NULL;
    l->freed = NULL;
    l->why = NULL;
    l->at_least_ms = 0;
    l->lost = l->loss_reported = l->releasing = l->telling = 0;
    l->detached = l->unrenewed = l->pending_release = l->lost_by = l->busy = l->named = 0;
    l->plain = is_plain(row, l->token);
    l->mode = p->mode;
}

/* Renewed when a third of the lease, or of what is left of it, is over. */
void hf__plan_renewal(hf_lock *l)
{
    int64_t third = (int64_t)l->lease_ms * 1000 / 3;
    int64_t left = (l->expires_us - hf__port_now(&l->h->port).hi_us) / 3;
    if (l->session && l->session->keep_at_us != INT64_MAX)
        left = third; /* it is kept; this is to look whether the grant is still there */
    else if (l->session)
        left = (hf__session_until(l) - hf__local_us()) / 3;
    if (left < 0) left = 0;
    l->claims = 0;
    hf__renew_at(l, hf__local_us() + (left < third ? left : third));
}

HF_COLD int hf__lock_more(hf *h)
{
    hf_lock *l = calloc(1, sizeof *l);
    if (!l) return HF_NOMEM;
    l->next = NULL;
    h->free_locks = l;
    return 0;
}

/* The row as it is now stored, for the next renewal, which then needs no read. Not where the store
   changes it in place, nor where a read says more than the row (who is dead). */
static void keep_row(hf_lock *l, const hf_row *row)
{
    if (l->h->port.caps.local || l->h->port.caps.sessions) return;
    hf__keep_row(&l->row, row);
}

/* What a grant has that ends by time, or that was waited for. */
static HF_COLD hf_lock *set_up_more(hf_lock *l, const hf_party *p, const hf_row *row,
                                    const struct hf_wait *w)
{
    hf *h = l->h;
    if (w) l->owner = memcpy(l->own_owner, p->owner, (size_t)p->owner_len + 1);
    if (w && w->session) { /* whose reference goes over to it */
        l->session = w->session;
        l->granted_at_us = hf__local_us();
    }
    int renews = p->lease_ms && !(w && w->flags & (HF_NO_RENEW | HF_DETACHED));
    if (renews) hf__plan_renewal(l);
    if (renews) keep_row(l, row);
    l->unrenewed = p->lease_ms && !renews;
    if (w && w->max_hold_ms) l->hold_until_us = hf__local_us() + w->max_hold_ms * 1000;
    if (w) l->at_least_ms = (uint32_t)w->at_least_ms;
    if (w) l->detached = (w->flags & HF_DETACHED) != 0;
    if (w) l->named = w->named;
    /* The claim is to be made soon. Not at once: who gives it back before spares the store it. */
    l->claims = w && w->unclaimed;
    if (l->claims) hf__renew_at(l, hf__local_us() + (int64_t)p->claim_ms * (1000 / CLAIM_PART));
    if (l->claims || p->lease_ms || l->hold_until_us) hf__set_deadline(l);
    if (renews && !hf__need_renewer(h, NULL)) hf__kick_renewer(l);
    return l;
}

static HF_COLD hf_lock *new_with_memory(hf *h, struct hf_entry *e, const hf_party *p,
                                        const hf_row *row, const struct hf_wait *w)
{
    return hf__lock_more(h) ? NULL : hf__lock_new(h, e, p, row, w);
}

/* A lock for the grant of `p` in `row` (which is the row as stored). The entry's reference of the
   caller goes over to it. NULL: out of memory. Called under the mutex. */
hf_lock *hf__lock_new(hf *h, struct hf_entry *e, const hf_party *p, const hf_row *row,
                      const struct hf_wait *w)
{
    hf_lock *l = h->free_locks;
    if (!l) return new_with_memory(h, e, p, row, w);
    h->free_locks = l->next;
    set_up(l, p, row);
    if (w || !h->port.caps.local) memcpy(l->id, p->id, sizeof l->id);
    l->h = h;
    l->e = e;
    l->owner = h->party.owner;
    l->next = e->locks;
    l->prev = &e->locks;
    if (l->next) l->next->prev = &l->next;
    e->locks = l;
    h->stats.acquired++;
    h->stats.held++;
    return w || p->lease_ms ? set_up_more(l, p, row, w) : l;
}

/* ---- belief ---- */

int64_t hf_left_ms(const hf_lock *lock)
{
    hf *h = lock->h;
    if (hf__held_here(lock, "left", NULL)) return 0;
    pthread_mutex_lock(&h->mu);
    int64_t left = INT64_MAX, cap = INT64_MAX, now = hf__local_us();
    if (lock->expires_us) left = (lock->expires_us - hf__port_now(&h->port).hi_us) / 1000;
    if (lock->session) left = hf__min64(left, (hf__session_until(lock) - now) / 1000);
    if (lock->hold_until_us) cap = (lock->hold_until_us - now) / 1000;
    if (lock->lost) left = 0;
    /* What has been said to be over stays over, although a reply that tells better may be here the
       next moment. (No lock is const, but for those who ask.) */
    if ((left <= 0 || cap <= 0) && !(lock->session && lock->session->adopted))
        hf__mark_lost((hf_lock *)(uintptr_t)lock, left > 0 ? HF_BY_MAX_HOLD : HF_BY_TIME);
    left = hf__min64(left, cap);
    pthread_mutex_unlock(&h->mu);
    return left < 0 ? 0 : left;
}

/* ---- events of one grant ---- */

/* Waits until nobody else works on the lock, and marks it as ours. Of one that is being given back
   (`releasing`) nobody begins to tell its holder any more. Under the mutex. */
static void seize(hf_lock *l)
{
    hf *h = l->h;
    while (l->busy || (l->telling && !pthread_equal(l->teller, pthread_self())))
        pthread_cond_wait(&h->changed, &h->mu);
    l->busy = 1;
}

void hf__let_go(hf_lock *l)
{
    l->busy = 0;
    hf__kick_renewer(l);                   /* which passed over it */
    if (l->watch.nth) hf__set_deadline(l); /* as did the expiry monitor */
    pthread_cond_broadcast(&l->h->changed);
}

/* Lost, and not by max_hold_ms, where the store still has it. */
static int over_already(const hf_lock *l)
{
    if (l->session && !l->session->adopted && hf__local_us() >= hf__session_until(l)) return 1;
    return l->lost && l->lost_by != HF_BY_MAX_HOLD;
}

/* One event for this grant at the store; the mutex is dropped meanwhile. The row as stored (or as
   last seen) is in `row`; if it is `known`, it is the current one already. */
static int carry(hf_lock *l, struct hf_event *ev, hf_row *row, int known, struct hf_outcome *out,
                 hf_error *err)
{
    hf *h = l->h;
    int64_t io_ms = h->port.io_timeout_ms;
    /* One that doesn't answer must not keep the others from being renewed. */
    if (ev->kind == HF_EV_RENEW && l->lease_ms && io_ms > l->lease_ms / 3) io_ms = l->lease_ms / 3;
    /* One that is over needn't be given back: asked once, as a courtesy to the next one. */
    if (ev->kind == HF_EV_RELEASE && over_already(l)) io_ms = 0;
    int64_t until = hf__local_us() + io_ms * 1000;
    ev->token = l->token;
    pthread_mutex_unlock(&h->mu);
    int rc = hf__turn(&h->port, &l->e->key, ev, row, known, until, out, err);
    if (!rc) hf__watch_claim(h, l->e, row);
    pthread_mutex_lock(&h->mu);
    return rc;
}

/* What a row says of the grant after it was written. */
void hf__note_row(hf_lock *l, const hf_row *row)
{
    int64_t at = hf__find_token(row, l->token);
    if (at < 0) return;
    l->expires_us = row->party[at].expires_us;
    l->rev = row->rev;
    l->plain = is_plain(row, l->token);
    if (l->renew_at_us != INT64_MAX) keep_row(l, row);
}

/* Of a grant that nobody else has anything to do with: the row that is left of it, at `rev`. */
static void leave_free(hf_row *row, const hf_lock *l, uint64_t rev)
{
    row->n_holders = row->n_queue = 0;
    row->done_us = row->keep_until_us = 0;
    row->rev = rev;
    row->token = l->token;
    memset(row->last_id, 0, sizeof row->last_id);
}

/* Such a grant released by one blind write, where that takes no time. HF_CONFLICT: it isn't. */
static int release_instantly(hf_lock *l)
{
    hf *h = l->h;
    const struct hf_port *port = &h->port;
    if (!l->plain || !port->caps.local || l->at_least_ms || l->expires_us || !hf__believed(l))
        return HF_CONFLICT;
    leave_free(&h->row, l, l->rev + 1);
    /* Not by hf__port_replace, whose count is atomic: under the mutex it needn't be. */
    h->stats.store_ops++;
    return port->drv->replace(port->st, &l->e->key, l->rev, &h->row, NULL, &h->no_clock_us, NULL);
}

/* The same where it may take time. HF_CONFLICT: if *ret_known, *cur is there. HF_UNKNOWN: it may
   have been done. */
static int release_plain(hf_lock *l, hf_row *cur, int *ret_known)
{
    hf *h = l->h;
    struct hf_port *port = &h->port;
    hf_row row;
    if (!l->plain || port->caps.local || l->at_least_ms || !hf__believed(l)) return HF_CONFLICT;
    /* Somebody has come to wait, as is known. */
    *ret_known = hf__last_row_notified(h, l->e, l->token, l->rev + 1, cur);
    if (*ret_known) return HF_CONFLICT;
    hf_row_init(&row);
    leave_free(&row, l, hf_rev_next(l->rev, hf__port_now(port).lo_us));
    memcpy(row.last_id, l->id, sizeof row.last_id); /* the take may have been sent twice */
    l->busy = l->releasing = 1;
    hf__yield_due(port, l->e, hf__local_us());
    pthread_mutex_unlock(&h->mu);
    int rc = hf__port_replace(port, &l->e->key, l->rev, &row, cur, NULL);
    if (!(*ret_known = rc == HF_CONFLICT)) hf_row_clear(cur);
    pthread_mutex_lock(&h->mu);
    l->e->free_rev = rc ? 0 : row.rev;
    l->e->free_token = row.token;
    l->e->wrote_us = rc ? 0 : hf__local_us();
    return rc;
}

static int release(hf_lock *l, int maybe_done, hf_row *row, int known, hf_error *err)
{
    struct hf_event ev = {.kind = HF_EV_RELEASE, .maybe_done = maybe_done};
    struct hf_outcome out;
    struct hf_session *keeper = NULL; /* for what at_least_ms still has to last */
    /* Whoever was told that nothing is left is told so here, too. */
    int lost = l->lost || !hf__perhaps_held(l), rc = 0;
    if (over_already(l) && hf__unanswered(l)) return hf__lost_error(l, "release", err);
    if (l->at_least_ms) ev.until_us = l->since_us + (int64_t)l->at_least_ms * 1000;
    if (l->at_least_ms && l->session && hf__believed(l)) rc = hf__session_for_rest(l, &keeper, err);
    if (rc) return rc;
    if (keeper) ev.session = keeper->id;
    if (!known && !maybe_done) known = hf__last_row_notified(l->h, l->e, l->token, l->rev, row);
    if (!l->h->port.caps.local) hf__yield_due(&l->h->port, l->e, hf__local_us());
    rc = carry(l, &ev, row, known, &out, err);
    /* Others who hold it or wait for it have got in. */
    l->e->wrote_us = rc || row->n_holders || row->n_queue ? 0 : hf__local_us();
    if (!rc) hf__last_row_keep(l->h, l->e, row);
    if (keeper) {
        keeper->left = rc == HF_UNKNOWN || (!rc && out.answer == HF_ANS_OK);
        hf__session_put(&l->h->sessions, keeper);
    }
    if ((rc == HF_UNAVAILABLE || rc == HF_UNKNOWN) && over_already(l))
        return hf__lost_error(l, "release", err);
    if (rc) return rc;
    return out.answer != HF_ANS_OK || lost ? hf__lost_error(l, "release", err) : 0;
}

/* Was it neither given back nor found gone? */
static int failed(int rc) { return rc && rc != HF_LOST && rc != HF_CORRUPT; }

/* Nobody would ever have it again if it lasts as long as this process and wasn't given back: it
   goes on being tried in the background. */
static void leave(hf_lock *l)
{
    l->pending_release = 1;
    l->busy = 0;
    l->on_lost = NULL;
    l->ask_at_us = hf__local_us() + RELEASE_AGAIN_US;
    /* The renewer's where the store may block, else the expiry monitor's. */
    if (!l->h->port.caps.local) hf__renew_at(l, l->ask_at_us);
    hf__set_deadline(l);
    if (!l->h->port.caps.local && !hf__need_renewer(l->h, NULL))
        pthread_cond_signal(&l->h->renewer_cond);
    hf__kick_monitor(l->h, 0);
    pthread_cond_broadcast(&l->h->changed);
}

/* Every release but the most frequent one. rc: what became of release_instantly. */
static HF_COLD int release_slowly(hf_lock *l, int rc, hf_error *err)
{
    hf_row row; /* as it is if somebody has changed it */
    int known = 0;
    hf_row_init(&row);
    if (rc == HF_CONFLICT) rc = release_plain(l, &row, &known);
    if (!rc) return 0;
    l->busy = l->releasing = 1;
    rc = release(l, rc == HF_UNKNOWN, &row, known, err);
    hf_row_clear(&row);
    return rc;
}

static inline int give_back(hf_lock *l, hf_error *err)
{
    hf *h = l->h;
    if (l->busy || l->telling || l->watch.nth) {
        l->releasing = 1;
        hf__renew_at(l, INT64_MAX);
        seize(l);
    }
    int rc = release_instantly(l);
    if (rc) rc = release_slowly(l, rc, err);
    h->stats.released += !l->pending_release;
    if (failed(rc)) hf__may_stay(l, "release", err);
    if (failed(rc) && !l->expires_us && h->closing < 2)
        leave(l);
    else
        forget(l);
    return rc;
}

/* Under the mutex, dropped: whoever has found the lock in a list has it in no other way. */
int hf__release(hf_lock *l, hf_error *err) { return give_back(l, err); }

int hf_release(hf_lock *l, hf_error *err)
{
    if (!l) return 0;
    hf *h = l->h;
    int rc = hf__held_here(l, "release", err);
    if (rc) return rc;
    pthread_mutex_lock(&h->mu);
    rc = give_back(l, err);
    pthread_mutex_unlock(&h->mu);
    return rc;
}

/* Under the mutex, seized. */
int hf__renew(hf_lock *l, uint32_t lease_ms, int by_hand, hf_error *err)
{
    hf *h = l->h;
    struct hf_event ev = {.kind = HF_EV_RENEW, .lease_ms = lease_ms};
    struct hf_outcome out;
    hf_row row;
    int64_t before_us = l->expires_us;
    int64_t end_us = hf__port_now(&h->port).lo_us + (int64_t)lease_ms * 1000;
    hf_error why = {0};
    hf_row_init(&row);
    int rc;
    if (!err) err = &why; /* the lock keeps it */
    if (l->session) {
        rc = hf__session_renew(l, lease_ms, by_hand, &row, err);
    } else {
        /* A shorter lease than before may be in force although its reply is lost. */
        if (lease_ms && (!before_us || end_us < before_us)) l->expires_us = end_us;
        int known = hf__last_row_notified(h, l->e, l->token, l->rev, &row) ||
                    (l->row && !hf__show_row(l->row, &row));
        hf__forget_row(
            &l->sent); /* this write goes by the row; that one may land before it, or not */
        rc = carry(l, &ev, &row, known, &out, err);
        if (rc && rc != HF_UNKNOWN) l->expires_us = before_us;
        if (rc == HF_UNKNOWN && l->expires_us != before_us) hf__set_deadline(l);
        if (!rc && out.answer != HF_ANS_OK) {
            hf__mark_lost(l, HF_BY_STORE);
            rc = hf__lost_error(l, "renew", err);
        }
    }
    if (rc && rc != HF_LOST) hf__error_keep(&l->why, err);
    if (!rc) hf__renewed(l, &row);
    hf_row_clear(&row);
    return rc;
}

void hf__renewed(hf_lock *l, const hf_row *row)
{
    hf *h = l->h;
    hf__note_row(l, row);
    hf__error_clear(&l->why);
    h->stats.renewals++;
    if (l->renew_at_us != INT64_MAX) hf__plan_renewal(l);
    hf__set_deadline(l); /* the deadline has moved */
    if (hf__port_clock_jumps(&h->port) != h->clock_jumps)
        hf__kick_monitor(h, 0); /* as have all the others' */
}

int hf_renew(hf_lock *l, int64_t lease_ms, hf_error *err)
{
    hf *h = l->h;
    int rc = hf__held_here(l, "renew", err);
    if (!rc && lease_ms && (lease_ms < 100 || lease_ms > 86400000))
        rc = hf_fail(err, HF_INVALID, 0, "renew '%s': lease_ms: must be 100 to 86,400,000",
                     l->e->text);
    if (rc) return rc;
    pthread_mutex_lock(&h->mu);
    seize(l);
    rc = hf__perhaps_held(l) ? hf__renew(l, lease_ms ? (uint32_t)lease_ms : l->lease_ms, 1, err)
                             : hf__lost_error(l, "renew", err);
    hf__let_go(l);
    pthread_mutex_unlock(&h->mu);
    return rc;
}

int hf_once_finish(hf_lock *l, const char *result, int64_t keep_ms, hf_error *err)
{
    hf *h = l->h;
    struct hf_outcome out;
    hf_row row;
    int rc = hf__held_here(l, "once", err);
    if (rc) return rc;
    struct hf_event ev = {.kind = HF_EV_FINISH, .result = result ? result : ""};
    ev.result_len = strlen(ev.result);
    /* Told what it can be told: an event that ran must not run again for its text. */
    char text[HF_RESULT_CAP];
    if (ev.result_len >= HF_RESULT_CAP) {
        ev.result_len = HF_RESULT_CAP - 1;
        while (ev.result_len && (ev.result[ev.result_len] & 0xc0) == 0x80) ev.result_len--;
    }
    memcpy(text, ev.result, ev.result_len);
    text[ev.result_len] = 0;
    hf__clean_utf8(text);
    ev.result = text;
    if (keep_ms != HF_FOREVER && keep_ms < 1) {
        rc = hf_fail(err, HF_INVALID, 0,
                     "once '%s': keep_ms: must be -1 or at least 1; the event is not marked as "
                     "done, and its lock is released",
                     l->e->text);
        hf_release(l, NULL);
        return rc;
    }
    ev.keep_us = keep_ms == HF_FOREVER || keep_ms > INT64_MAX / 2000 ? INT64_MAX : keep_ms * 1000;
    hf_row_init(&row);
    pthread_mutex_lock(&h->mu);
    l->releasing = 1;
    hf__renew_at(l, INT64_MAX);
    seize(l);
    int over = !hf__perhaps_held(l); /* as its holder has been told */
    rc = over ? hf__lost_error(l, "once", err) : carry(l, &ev, &row, 0, &out, err);
    if (!rc && out.answer != HF_ANS_OK) rc = hf__lost_error(l, "once", err);
    if (over || failed(rc)) {
        /* Not marked, as far as is known: then at least it isn't held either. */
        if (!over) hf__not_marked(l, err);
        hf__let_go(l);
        pthread_mutex_unlock(&h->mu);
        hf_row_clear(&row);
        hf_release(l, NULL);
        return rc;
    }
    if (!rc && h->port.drv->sync) {
        pthread_mutex_unlock(&h->mu);
        rc = hf__port_sync(&h->port, &l->e->key, err);
        pthread_mutex_lock(&h->mu);
    }
    h->stats.released++;
    hf__lock_free(l);
    pthread_mutex_unlock(&h->mu);
    hf_row_clear(&row);
    return rc;
}

uint64_t hf_token(const hf_lock *l) { return l->token; }
const char *hf_key(const hf_lock *l) { return l->e->text; }
const char *hf_owner(const hf_lock *l) { return l->owner; }
