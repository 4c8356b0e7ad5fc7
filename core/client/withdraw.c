/*
 * withdraw.c - takes requests out of the row, at once or later. See withdraw.h.
 */
#include "withdraw.h"

#include "cas_loop.h"
#include "deadline_list.h"
#include "handle.h"
#include "kept_error.h"
#include "os.h"
#include "session.h"
#include "start_threads.h"
#include "wait_state.h"

#include <stdlib.h>
#include <string.h>

enum { AGAIN_US = 500000 };

/* Takes a request out of the row if it waits or hasn't claimed its grant; with maybe_done, also if
   it holds. `row` NULL: the row is read first. Without the mutex.
   Returns: 0, or the store's error. */
static int withdraw(hf *h, struct hf_entry *e, const uint8_t id[16], int maybe_done, hf_row *row,
                    int64_t until_us, hf_error *err)
{
    struct hf_event ev = {.kind = HF_EV_WITHDRAW, .maybe_done = maybe_done};
    struct hf_outcome out;
    hf_row read, *at = row ? row : &read;
    memcpy(ev.id, id, sizeof ev.id);
    hf_row_init(&read);
    int rc = hf__cas_loop(&h->port, &e->key, &ev, at, row != NULL, until_us, &out, err);
    if (!rc) hf__watch_claim(h, e, at);
    hf_row_clear(&read);
    return rc;
}

/* ---- the end of a wait ---- */

void hf__wait_error(struct hf_wait *w, int code, const char *why)
{
    w->code = hf_fail(&w->err, code, 0, "acquire '%s': %s", w->e->text, why);
}

/* If the withdrawal failed, the request may still be in the row. So the wait's result becomes
   UNKNOWN: TIMEOUT, CANCELED and BUSY would say that the request isn't there. But if the wait
   itself ended by the same error of the store, that error stays. */
void hf__withdrawn(struct hf_wait *w, int rc, const hf_error *why)
{
    int stands = rc == HF_UNKNOWN || rc == HF_UNAVAILABLE || (rc && rc != w->code);
    if (rc && why) hf__error_keep(&w->why, why);
    /* An `acquire` whose reply was lost isn't bound to a rev. So it may land later, when the row no
       longer names this request as the last that ended (last_id). */
    if (stands || (w->lost_acquire && !w->granted))
        w->code = hf_fail(&w->err, HF_UNKNOWN, 0,
                          "acquire '%s': given up, but the store has not confirmed it: the "
                          "request may still be granted, and that grant ends by itself%s%s",
                          w->e->text, w->why ? ": " : "", w->why ? w->why->text : "");
    if (rc) hf__defer_withdrawal(w);
}

void hf__withdraw_until(struct hf_wait *w, hf_row *row, int64_t until_us)
{
    hf *h = w->h;
    hf_error why = {0};
    hf__wait_moves_locking(w, HF_WAIT_WITHDRAWING);
    int rc = withdraw(h, w->e, w->party.id, w->granted || w->lost_reply, row, until_us, &why);
    hf__withdrawn(w, rc, &why);
}

void hf__withdraw_wait(struct hf_wait *w)
{
    hf__withdraw_until(w, NULL, hf__local_us() + w->h->port.io_timeout_ms * 1000);
}

/* ---- later ---- */

void hf__defer_withdrawal(struct hf_wait *w)
{
    if (!w->h->port.caps.sessions || w->named) return;
    pthread_mutex_lock(&w->h->mu);
    hf__defer_cancel(w->h, w->e, w->party.id);
    pthread_mutex_unlock(&w->h->mu);
}

void hf__defer_cancel(hf *h, struct hf_entry *e, const uint8_t id[16])
{
    struct hf_deferred_cancel *r = calloc(1, sizeof *r);
    if (!r) return;
    memcpy(r->id, id, 16);
    r->e = e;
    r->at_us = hf__local_us() + AGAIN_US;
    e->refs++;
    r->next = h->cancels;
    h->cancels = r;
    if (!hf__need_renewer(h, NULL)) hf__wake_renewer(h);
}

int64_t hf__deferred_cancels_tend(hf *h)
{
    struct hf_deferred_cancel *r = h->cancels, **at = &h->cancels;
    if (!r) return INT64_MAX;
    for (struct hf_deferred_cancel *other = r->next; other; other = other->next)
        if (other->at_us < r->at_us) r = other;
    if (r->at_us > hf__local_us()) return r->at_us;
    pthread_mutex_unlock(&h->mu);
    int rc = withdraw(h, r->e, r->id, 1, NULL, 0, NULL);
    pthread_mutex_lock(&h->mu);
    r->at_us = hf__local_us() + AGAIN_US;
    if (rc && rc != HF_CORRUPT) return 0;
    while (*at != r) at = &(*at)->next; /* only the renewer takes requests out of this list */
    *at = r->next;
    hf__entry_unref(r->e);
    free(r);
    return 0;
}

void hf__deferred_cancels_close(hf *h)
{
    for (struct hf_deferred_cancel *r; (r = h->cancels);) {
        h->cancels = r->next;
        free(r);
    }
}

/* ---- requests that a restored backup has brought back ---- */

/* Returns 1 if `p` is a request of this handle that belongs neither to the wait `w` nor to a lock.
   `w` is the first of the local queue, so no other wait there has a request at the store. If a
   later wait has the same request_id, `p` is an orphan all the same: that wait couldn't claim its
   grant. A claimed hold is no orphan, because another process may have repeated the request. Under
   the mutex. */
static int is_orphan(const struct hf_wait *w, const hf_party *p, int holds)
{
    if (!memcmp(p->id, w->party.id, sizeof p->id)) return 0;
    if (holds && !(p->flags & HF_PARTY_UNCLAIMED)) return 0;
    for (const hf_lock *l = w->e->locks; l; l = l->next)
        if (holds && l->token == p->token) return 0;
    return hf__session_kept(&w->h->sessions, p->session);
}

/* Finds an orphaned request, and copies its id. Returns 0 if there is none, or if the wait is an
   attempt beside others of this handle. */
static int find_orphan(const struct hf_wait *w, const hf_row *row, uint8_t ret_id[16])
{
    int found = 0;
    pthread_mutex_lock(&w->h->mu);
    uint32_t n = w->e->first == w ? row->n_holders + row->n_queue : 0;
    for (uint32_t i = 0; i < n && !found; i++) {
        found = is_orphan(w, &row->party[i], i < row->n_holders);
        if (found) memcpy(ret_id, row->party[i].id, 16);
    }
    pthread_mutex_unlock(&w->h->mu);
    return found;
}

int hf__withdraw_orphans(struct hf_wait *w, hf_row *row, int64_t until_us, hf_error *err)
{
    hf *h = w->h;
    struct hf_outcome out = {.changed = 1};
    /* as_seen: decides on this row only. In a later row the request may be claimed, by another
       process that has repeated it, and must stay. */
    struct hf_event ev = {.kind = HF_EV_WITHDRAW, .as_seen = 1};
    if (!h->port.caps.sessions) return 0;
    while (out.changed && find_orphan(w, row, ev.id)) {
        int rc = hf__cas_loop(&h->port, &w->e->key, &ev, row, 1, until_us, &out, err);
        /* Another client has written the row, or a session in it has died: the next read shows
           that. */
        if (rc) return rc == HF_CONFLICT || rc == HF_LOST ? 0 : rc;
        hf__watch_claim(h, w->e, row);
    }
    return 0;
}
