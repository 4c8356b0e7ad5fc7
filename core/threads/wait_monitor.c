/*
 * wait_monitor.c - what the expiry monitor does for waits on local stores: it acts when a holder's
 * lease ends, a claim timeout ends, or a session dies on which a wait depends.
 */
#include "threads.h"

#include "cas_loop.h"
#include "deadline_list.h"
#include "handle.h"
#include "os.h"
#include "peers.h"
#include "start_threads.h"
#include "validity.h"
#include "wait_schedule.h"

#include <string.h>

enum { BLIND_HEAD_US = 10000, CHECKS_AT_ONCE = 64 };
enum { SWEEP_LEAST_US = 1000000, SWEEP_MOST_US = 4000000 };

/* Returns 1 if the session is alive. The store is asked once a round, however many waits depend on
   the session (more often if there are more than HF_ROUND_CAP sessions). If the store can't tell,
   the session counts as alive, and *ret_unsure is set: then the wait is checked again soon. */
static int lives(hf *h, uint64_t session, int *ret_unsure)
{
    if (!session || session == h->port.session) return 1;
    struct hf_round *r = &h->round;
    uint32_t at = 0;
    while (at < r->n && at < HF_ROUND_CAP && r->session[at] != session) at++;
    if (at == r->n || at == HF_ROUND_CAP) {
        at = r->n++ % HF_ROUND_CAP;
        r->session[at] = session;
        r->alive[at] = hf__port_alive(&h->port, session);
    }
    if (r->alive[at] < 0) *ret_unsure = 1;
    return r->alive[at] != 0;
}

/* Returns 1 if the row has to be stepped for the waiter at index `at`: a holder's lease is over; no
   party holds; the waiter just ahead has died; or, for the first waiter, a holder has died. *next:
   the local time of the next check. */
static int must_act(const struct hf_wait *w, const hf_row *row, int64_t at, int64_t *next)
{
    hf *h = w->h;
    int64_t place = at - (int64_t)row->n_holders;
    struct hf_time clock = hf__port_now(&h->port);
    int64_t now = hf__local_us();
    int unsure = 0, act = 0;
    *next = now + (place + 1) * HF_LOOK_MOST_US;
    for (uint32_t i = 0; i < row->n_holders; i++) {
        const hf_party *p = &row->party[i];
        if (p->expires_us) {
            int64_t left = p->expires_us - clock.lo_us;
            *next = hf__min64(*next,
                              now + (left > 0 ? left : 0) + 1 + hf__stagger_us(w, (uint32_t)place));
            act |= hf__validity_at(p->expires_us, clock) == HF_GRANT_OVER;
        }
        if (!place && !lives(h, p->session, &unsure)) act = 1;
    }
    if (place && !lives(h, row->party[at - 1].session, &unsure)) act = 1;
    if (h->deaths_reported < 0)
        *next = hf__min64(*next, now + (place ? HF_POLL_MS * 1000 : BLIND_HEAD_US));
    if (unsure) *next = hf__min64(*next, now + HF_POLL_MS * 1000);
    return act || !row->n_holders;
}

/* Reads the row for this wait, and steps it if must_act says so. Wakes the wait if its request has
   left the queue, or if the store is gone. Called under the mutex, which is released meanwhile; the
   wait is pinned then. */
static void check_wait(hf *h, struct hf_wait *w)
{
    struct hf_event ev = {.kind = HF_EV_PROMOTE};
    struct hf_outcome out;
    hf_row row;
    int64_t at = -1, next = INT64_MAX;
    memcpy(ev.id, w->party.id, 16);
    w->pins++;
    hf__deadline_drop(&h->checks, &w->check);
    pthread_mutex_unlock(&h->mu);
    hf_row_init(&row);
    int rc = hf__port_get(&h->port, &w->e->key, &row, NULL), stands = 0, wake = 0;
    if (!rc) at = hf__find_id(&row, w->party.id);
    if (!rc && at >= (int64_t)row.n_holders && must_act(w, &row, at, &next)) {
        rc = hf__cas_loop(&h->port, &w->e->key, &ev, &row, 1, 0, &out, NULL);
        if (!rc) hf__watch_claim(h, w->e, &row);
        at = rc ? -1 : hf__find_id(&row, w->party.id);
        if (!rc && at >= (int64_t)row.n_holders) must_act(w, &row, at, &next);
    }
    if (rc) next = hf__local_us() + HF_POLL_MS * 1000;
    /* An error other than "no answer" ends the wait, which has to look for that. */
    int gone = rc && rc != HF_UNAVAILABLE && rc != HF_UNKNOWN;
    stands = !rc && at >= (int64_t)row.n_holders;
    /* The request isn't in the queue. It was granted, perhaps by a client that died before it could
       wake the waiter. Or it was granted and has lost the grant since (broken, or its claim timeout
       ended), and has to ask anew. */
    wake = gone || (!rc && !stands);
    pthread_mutex_lock(&h->mu);
    if (stands) hf__note_peers(w, &row, (uint32_t)at);
    if (!w->check.nth || next < w->check.at_us) hf__check_at(w, next);
    if (wake && w->dispatched) {
        hf__notify(w);
        hf__kick_dispatcher(h);
    }
    uint8_t wakeup = w->party.wakeup;
    if (!--w->pins) pthread_cond_broadcast(&w->changed);
    hf_row_clear(&row);
    if (!wake || w->dispatched) return;
    pthread_mutex_unlock(&h->mu);
    hf__interrupt(h, wakeup);
    pthread_mutex_lock(&h->mu);
}

int64_t hf__tend_waits(hf *h)
{
    h->round.n = 0;
    for (int n = 0; n < CHECKS_AT_ONCE; n++) {
        int64_t at_us = hf__deadlines_next(&h->checks);
        if (at_us == INT64_MAX || at_us > hf__local_us()) return at_us;
        struct hf_wait *w = HF_DEADLINE_OF(h->checks.first, struct hf_wait, check);
        if (w->state == HF_WAIT_QUEUED) {
            check_wait(h, w);
            continue;
        }
        hf__deadline_drop(&h->checks, &w->check);
        w->check_missed = 1; /* made up for when the wait is queued (hf__plan_next_look) */
    }
    return 0; /* more are due: the monitor handles locks first, then calls again */
}

void hf__check_all_waits(hf *h)
{
    for (struct hf_wait *w = h->at_store; w; w = w->list_next) hf__check_at(w, 0);
}

/* Returns 1 if all waits may be checked after a death. Always if they are few. If they are many,
   the checks wait for 20 µs per wait (1 s at least, 4 s at most) after the last time, so that they
   take about a twentieth of a CPU's time. */
static int may_sweep(hf *h)
{
    int64_t now_us = hf__local_us(), pause_us = h->n_at_store * INT64_C(20);
    if (h->n_at_store <= HF_FEW_WAITS || !h->port.session) return 1;
    if (now_us < h->sweep_at_us) return 0;
    if (pause_us < SWEEP_LEAST_US) pause_us = SWEEP_LEAST_US;
    h->sweep_at_us = now_us + (pause_us < SWEEP_MOST_US ? pause_us : SWEEP_MOST_US);
    return 1;
}

/*
 * If the waits are few, makes all of them due. If they are many, makes those due that depend on a
 * dead session; all of them only now and then (may_sweep), because the dead process may have been
 * about to grant a key that it neither held nor waited for. If the store can't tell whether a
 * session lives, the waits that depend on it are due, too: they find out that the store is gone.
 */
void hf__check_after_death(hf *h)
{
    struct hf_peers *all = &h->peers;
    if (may_sweep(h)) {
        hf__check_all_waits(h);
        return;
    }
    for (uint32_t i = 0; i < all->buckets; i++)
        for (const struct hf_peer *p = all->table[i]; p; p = p->next) {
            if (hf__port_alive(&h->port, p->session) > 0) continue;
            for (struct hf_peer_link *l = p->links; l; l = l->next) hf__check_at(l->w, 0);
        }
    int whole = hf__port_alive(&h->port, h->port.session) > 0;
    for (struct hf_wait *w = h->at_store; w && (all->unknown || !whole); w = w->list_next)
        if (w->peers_unknown || !whole) hf__check_at(w, 0);
}

/* ---- claims ---- */

/* Grants the key to the next waiter, if the claim timeout of a handover has ended. Called with the
   mutex, which is released meanwhile. Gives up the deadline's reference to the entry. */
static void end_claim(hf *h, struct hf_entry *e)
{
    struct hf_event ev = {.kind = HF_EV_PROMOTE};
    struct hf_outcome out;
    hf_row row;
    hf_row_init(&row);
    pthread_mutex_unlock(&h->mu);
    int rc = hf__cas_loop(&h->port, &e->key, &ev, &row, 0, 0, &out, NULL);
    if (!rc) hf__watch_claim(h, e, &row);
    hf_row_clear(&row);
    pthread_mutex_lock(&h->mu);
    hf__entry_unref(e);
}

int64_t hf__tend_claims(hf *h)
{
    for (int n = 0; n < CHECKS_AT_ONCE; n++) {
        int64_t at_us = hf__deadlines_next(&h->claim_deadlines);
        if (at_us == INT64_MAX || at_us > hf__local_us()) return at_us;
        struct hf_entry *e =
            HF_DEADLINE_OF(h->claim_deadlines.first, struct hf_entry, claim_deadline);
        hf__deadline_drop(&h->claim_deadlines, &e->claim_deadline);
        end_claim(h, e);
    }
    return 0;
}
