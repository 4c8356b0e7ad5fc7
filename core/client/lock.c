/*
 * lock.c - makes, seizes and frees locks; hf_left_ms and the like. See lock.h. A lock ends by
 * release.c or lost.c, and is renewed by renew.c.
 */
#include "lock.h"

#include "belief.h"
#include "cas_loop.h"
#include "deadline_list.h"
#include "handle.h"
#include "kept_error.h"
#include "known_row.h"
#include "lost.h"
#include "os.h"
#include "renewal_queue.h"
#include "session.h"
#include "start_threads.h"
#include "thread.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    CLAIM_PART = 8,
    MARK_MS = 60000 /* for how long at most a FINISH is tried, however long the lease */
};

/* Frees what most locks without a lease lack: deadlines, kept rows, sessions, the descriptor. A
   lock that the expiry monitor watches may have any of these; on servers each lock is watched. */
static HF_COLD void untangle(hf_lock *l)
{
    HF_NOT_CANCELED;
    hf__deadline_drop(&l->h->watched, &l->watch);
    hf__renew_at(l, INT64_MAX);
    hf__forget_row(&l->row);
    hf__forget_row(&l->sent);
    l->unanswered = 0;
    if (l->freed) *l->freed = 1;
    hf__session_put(&l->h->sessions, l->session);
    hf__session_put(&l->h->sessions, l->pending_session);
    if (l->lost_fd >= 0) close(l->lost_fd);
    hf__error_clear(&l->why);
    if (l->h->closing) pthread_cond_broadcast(&l->h->changed);
}

void hf__lock_free(hf_lock *l)
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

/* ---- the grant ---- */

/* Returns 1 if the row has this grant and nothing else, so that a release may replace it without a
   read. The token of a later grant counts as something else, because the write must not lower it.
   Rev 0: the rest of the row isn't known. */
static uint8_t is_sole(const hf_row *row, uint64_t token)
{
    return row->rev && row->n_holders == 1 && !row->n_queue && !row->done_us && row->token == token;
}

/* Sets the lock's fields one by one; the caller sets the others. A memset of this size takes half
   as long as an acquisition. */
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
    l->lost = l->loss_reported = l->releasing = l->in_callback = 0;
    l->detached = l->adopted = l->pending_release = 0;
    l->lost_by = l->busy = l->named = 0;
    l->corrupt_us = 0;
    l->sole = is_sole(row, l->token);
    l->mode = p->mode;
}

HF_COLD int hf__lock_more(hf *h)
{
    hf_lock *l = calloc(1, sizeof *l);
    if (!l) return HF_NOMEM;
    h->free_locks = l;
    return 0;
}

/* Keeps a copy of the stored row, so that the next renewal needs no read. Not on local stores,
   where reads are cheap, nor on stores with sessions, where a read also shows which parties are
   dead. */
static void keep_row(hf_lock *l, const hf_row *row)
{
    if (l->h->port.caps.local || l->h->port.caps.sessions) return;
    hf__keep_row(&l->row, row, HF_KEPT_BY_LOCK);
}

/* Sets the fields of a grant that ends by time, or that was waited for. */
static HF_COLD hf_lock *set_up_more(hf_lock *l, const hf_party *p, const hf_row *row,
                                    const struct hf_wait *w)
{
    hf *h = l->h;
    if (w) l->owner = memcpy(l->own_owner, p->owner, (size_t)p->owner_len + 1);
    if (w && w->session) { /* the lock takes over the wait's reference */
        l->session = w->session;
        l->granted_at_us = hf__local_us();
    }
    int renews = p->lease_ms && !(w && w->flags & (HF_NO_RENEW | HF_DETACHED));
    if (renews) hf__plan_renewal(l);
    if (renews) keep_row(l, row);
    if (w && w->max_hold_ms) l->hold_until_us = hf__local_us() + w->max_hold_ms * 1000;
    if (w) l->at_least_ms = (uint32_t)w->at_least_ms;
    if (w) l->detached = (w->flags & HF_DETACHED) != 0;
    if (w) l->named = w->named;
    /* The claim is written after an eighth of the claim timeout: if the lock is released before
       that, the write is saved. */
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

void hf__note_row(hf_lock *l, const hf_row *row)
{
    int64_t at = hf__find_token(row, l->token);
    if (at < 0) return;
    l->expires_us = row->party[at].expires_us;
    l->rev = row->rev;
    l->sole = is_sole(row, l->token);
    if (l->renew_at_us != INT64_MAX) keep_row(l, row);
}

/* ---- one event of a grant at the store, by one thread at a time ---- */

void hf__seize(hf_lock *l)
{
    hf *h = l->h;
    while (l->busy || (l->in_callback && !pthread_equal(l->callback_thread, pthread_self())))
        pthread_cond_wait(&h->changed, &h->mu);
    l->busy = 1;
}

void hf__let_go(hf_lock *l)
{
    l->busy = 0;
    hf__kick_renewer(l);                   /* the renewer passes over seized locks, */
    if (l->watch.nth) hf__set_deadline(l); /* and so does the expiry monitor */
    pthread_cond_broadcast(&l->h->changed);
}

int hf__over_already(const hf_lock *l)
{
    if (l->session && !l->session->adopted && hf__local_us() >= hf__session_until(l)) return 1;
    return l->lost && l->lost_by != HF_BY_MAX_HOLD;
}

/* Returns for how long a FINISH is tried: as long as the hold lasts, but no less than io_timeout_ms
   and no more than MARK_MS. Without the marker the event's work, which is done, would be done
   again. */
static int64_t mark_ms(const hf_lock *l)
{
    int64_t left_us = INT64_MAX, io_ms = l->h->port.io_timeout_ms;
    if (l->expires_us) left_us = l->expires_us - hf__port_now(&l->h->port).hi_us;
    if (l->session) left_us = hf__min64(left_us, hf__session_until(l) - hf__local_us());
    if (l->hold_until_us) left_us = hf__min64(left_us, l->hold_until_us - hf__local_us());
    if (left_us == INT64_MAX || left_us / 1000 < io_ms) return io_ms;
    return io_ms > MARK_MS ? io_ms : hf__min64(left_us / 1000, MARK_MS);
}

int hf__lock_event(hf_lock *l, struct hf_event *ev, hf_row *row, int known, struct hf_outcome *out,
                   hf_error *err)
{
    hf *h = l->h;
    int64_t io_ms = h->port.io_timeout_ms;
    /* A renewal that isn't answered must not delay the others for long. */
    if (ev->kind == HF_EV_RENEW && l->lease_ms && io_ms > l->lease_ms / 3) io_ms = l->lease_ms / 3;
    /* A grant that is over needs no release. One is sent, but not repeated, so that the next waiter
       gets the key sooner. */
    if (ev->kind == HF_EV_RELEASE && hf__over_already(l)) io_ms = 0;
    if (ev->kind == HF_EV_FINISH) io_ms = mark_ms(l);
    int64_t until = hf__local_us() + io_ms * 1000;
    ev->token = l->token;
    pthread_mutex_unlock(&h->mu);
    int rc = hf__cas_loop(&h->port, &l->e->key, ev, row, known, until, out, err);
    if (!rc) hf__watch_claim(h, l->e, row);
    pthread_mutex_lock(&h->mu);
    return rc;
}

/* ---- belief ---- */

int64_t hf_left_ms(const hf_lock *lock)
{
    HF_NOT_CANCELED;
    hf *h = lock->h;
    if (hf__held_here(lock, "left", NULL)) return 0;
    pthread_mutex_lock(&h->mu);
    int64_t left = INT64_MAX, cap = INT64_MAX, now = hf__local_us();
    if (lock->expires_us) left = (lock->expires_us - hf__port_now(&h->port).hi_us) / 1000;
    if (lock->session) left = hf__min64(left, (hf__session_until(lock) - now) / 1000);
    if (lock->hold_until_us) cap = (lock->hold_until_us - now) / 1000;
    if (lock->lost) left = 0;
    /* Once hf_left_ms has returned 0 the lock stays lost, even if a renewal is answered the next
       moment. (The lock is const to the caller only.) */
    if ((left <= 0 || cap <= 0) && !(lock->session && lock->session->adopted))
        hf__mark_lost((hf_lock *)(uintptr_t)lock, left > 0 ? HF_BY_MAX_HOLD : HF_BY_TIME);
    left = hf__min64(left, cap);
    pthread_mutex_unlock(&h->mu);
    return left < 0 ? 0 : left;
}

uint64_t hf_token(const hf_lock *l) { return l->token; }
const char *hf_key(const hf_lock *l) { return l->e->text; }
const char *hf_owner(const hf_lock *l) { return l->owner; }
