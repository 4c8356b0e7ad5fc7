/*
 * wait.c - a wait from its beginning to its end. Every request is a wait, except those that
 * acquire_now (acquire.c) grants by one call on a local store. Each look at the store is made by
 * wait_advance.c.
 */
#include "wait.h"

#include "handle.h"
#include "kept_error.h"
#include "os.h"
#include "peers.h"
#include "session.h"
#include "shown.h"
#include "start_threads.h"
#include "wait_advance.h"
#include "wait_schedule.h"
#include "wait_state.h"
#include "withdraw.h"

#include <stddef.h>
#include <string.h>

/* ---- the beginning ---- */

/* Fills in the party of a request with these options. */
static void fill_party(hf *h, const hf_options *o, hf_party *p)
{
    hf_party_copy(p, &h->party);
    p->flags = 0; /* not HF_PARTY_AT_ONCE, which the handle's own party has */
    hf__new_id(h, p->id);
    if (o->request_id) memcpy(p->id, o->request_id, 16);
    if (o->owner) {
        p->owner_len = (uint8_t)strlen(o->owner);
        memcpy(p->owner, o->owner, (size_t)p->owner_len + 1);
    }
    if (o->note) {
        p->note_len = (uint8_t)strlen(o->note);
        memcpy(p->note, o->note, (size_t)p->note_len + 1);
        hf__clean_utf8(p->note);
    }
    if (o->lease_ms) p->lease_ms = (uint32_t)o->lease_ms;
    /* On other stores every hold ends by time anyway, so the row needn't say it. */
    if (o->flags & HF_DETACHED && (h->port.caps.liveness || h->port.caps.sessions))
        p->flags = HF_PARTY_DETACHED;
    p->mode = (uint8_t)o->mode;
    p->limit = o->mode == HF_LIMITED ? o->limit : 0;
}

enum { BEHIND_ERR = offsetof(struct hf_wait, err) + sizeof(hf_error) };

void hf__wait_init(hf *h, struct hf_wait *w, struct hf_entry *e, const hf_options *o)
{
    /* The error isn't cleared, because it is large: with many waits, touching that memory would
       take most of the time. */
    memset(w, 0, offsetof(struct hf_wait, err));
    memset((char *)w + BEHIND_ERR, 0, sizeof *w - BEHIND_ERR);
    w->h = h;
    w->forks = hf__forks;
    w->e = e;
    fill_party(h, o, &w->party);
    w->named = o->request_id != NULL;
    w->flags = o->flags;
    if (!h->port.caps.queues) w->flags |= HF_UNQUEUED;
    w->started_us = hf__local_us();
    w->deadline_us = o->wait_ms == HF_FOREVER ? INT64_MAX : w->started_us + o->wait_ms * 1000;
    w->max_hold_ms = o->max_hold_ms;
    w->at_least_ms = o->at_least_ms;
    hf__thread_condition(&w->changed);
}

/* ---- the subscription of the key ---- */

int hf__needs_notifications(const struct hf_wait *w)
{
    return hf__at_store(w) && w->state != HF_WAIT_FIRST_LOOK && w->dispatched && !hf__backs_off(w);
}

struct hf_wait *hf__subscriber_of(const struct hf_entry *e)
{
    struct hf_wait *found = NULL;
    uint32_t left = e->n_at_store;
    for (struct hf_wait *w = e->first; w && left; w = w->next) {
        left -= (uint32_t)hf__at_store(w);
        if (hf__needs_notifications(w)) found = w;
    }
    return found;
}

int hf__subscription_changes(const struct hf_wait *w)
{
    const struct hf_entry *e = w->e;
    if (!w->h->port.caps.notify) return 0;
    const struct hf_wait *to = hf__subscriber_of(e);
    return to != e->subscriber || (to && (to->state == HF_WAIT_QUEUED) != e->key.in_line);
}

void hf__subscribe_later(hf *h, struct hf_entry *e)
{
    if (e->changed || !h->port.caps.notify) return;
    e->changed = 1;
    e->refs++;
    e->changed_next = h->changed_keys;
    h->changed_keys = e;
}

/* ---- the local queue ---- */

static void at_store_add(hf *h, struct hf_wait *w)
{
    hf__wait_moves(w, HF_WAIT_FIRST_LOOK);
    hf__look_at(w, 0);
    w->e->n_at_store++;
    h->n_at_store++;
    h->n_dispatched += w->dispatched;
    w->list_next = h->at_store;
    w->list_prev = &h->at_store;
    if (w->list_next) w->list_next->list_prev = &w->list_next;
    h->at_store = w;
    hf__schedule(w);
}

/* Returns 1 if the request repeats one that holds the key (request_id). It is granted at once, so
   it mustn't wait in the local queue behind waits that wait for its own release. */
static int holds_already(const struct hf_wait *w)
{
    for (const hf_lock *l = w->named ? w->e->locks : NULL; l; l = l->next)
        if (l->named && !l->lost && !l->releasing && !memcmp(l->id, w->party.id, sizeof l->id))
            return 1;
    return 0;
}

void hf__enter_local_queue(hf *h, struct hf_wait *w)
{
    struct hf_entry *e = w->e;
    w->prev = e->last;
    w->next = NULL;
    if (e->last)
        e->last->next = w;
    else
        e->first = w;
    e->last = w;
    h->stats.waiting++;
    if (e->first == w || holds_already(w))
        at_store_add(h, w);
    else
        hf__schedule(w);
}

void hf__give_up_local(struct hf_wait *w)
{
    int limit = w->deadline_us <= w->started_us ? HF_BUSY : HF_TIMEOUT;
    int code = w->cancel ? HF_CANCELED : limit;
    hf__wait_error(w, code, hf_code_text(code));
}

void hf__wait_finish(struct hf_wait *w)
{
    hf *h = w->h;
    struct hf_entry *e = w->e;
    int listed = hf__at_store(w);
    hf__wait_moves(w, HF_WAIT_ENDED);
    hf__deadline_drop(&h->looks, &w->look);
    while (w->pins) pthread_cond_wait(&w->changed, &h->mu);
    hf__deadline_drop(&h->checks, &w->check);
    hf__forget_peers(w);
    if (listed) {
        *w->list_prev = w->list_next;
        if (w->list_next) w->list_next->list_prev = w->list_prev;
        e->n_at_store--;
        h->n_at_store--;
        h->n_dispatched -= w->dispatched;
    }
    if (e->subscriber == w) {
        e->subscriber = NULL;
        hf__subscribe_later(h, e);
    }
    hf__session_put(&h->sessions, w->session);
    hf__session_put(&h->sessions, w->queue_session);
    w->session = w->queue_session = NULL;
    hf__error_clear(&w->why);
    int was_first = e->first == w;
    if (w->prev)
        w->prev->next = w->next;
    else
        e->first = w->next;
    if (w->next)
        w->next->prev = w->prev;
    else
        e->last = w->prev;
    h->stats.waiting--;
    if (w->code == HF_TIMEOUT) h->stats.timeouts++;
    if (w->code == HF_CANCELED) h->stats.canceled++;
    if (w->code == HF_BUSY) h->stats.busy++;
    if (w->code == HF_UNKNOWN) h->stats.unknown++;
    if (was_first && e->first && e->first->state == HF_WAIT_LOCAL) {
        at_store_add(h, e->first);
        if (e->first->dispatched)
            hf__kick_dispatcher(h);
        else
            pthread_cond_signal(&e->first->changed);
    }
    hf__entry_unref(e);
    if (h->closing) pthread_cond_broadcast(&h->changed);
    pthread_cond_broadcast(&w->changed);
}

/* ---- the thread of the caller ---- */

/* Drives a wait by its caller's thread, which sleeps on a wakeup of the store. Called with the
   mutex, which is released meanwhile. */
static void drive_by_wakeup(hf *h, struct hf_wait *w)
{
    const hf_local_ops *local = h->port.caps.local;
    uint8_t wakeup = w->party.wakeup;
    pthread_mutex_unlock(&h->mu);
    for (int over = 0; !over;) {
        hf_event_count events;
        int fails = local->wakeup_begin(h->port.st, wakeup, 0, &events, NULL);
        over = hf__wait_advance(w);
        if (!over && fails) hf__pause(hf__poll_us(h));
        if (!over && !fails)
            local->sleep(h->port.st, wakeup, &events, hf__min64(w->deadline_us, w->look_at_us),
                         NULL);
    }
    pthread_mutex_lock(&h->mu);
}

void hf__wait_until_over(hf *h, struct hf_wait *w)
{
    int local = h->port.caps.local != NULL, over = 0;
    w->party.wakeup = local ? (uint8_t)(1 + h->next_wakeup++ % (HF_WAKEUPS - 1)) : 0;
    h->callers++;
    hf__enter_local_queue(h, w);
    while (!over && w->state == HF_WAIT_LOCAL) {
        over = w->cancel || hf__local_us() >= w->deadline_us;
        if (over)
            hf__give_up_local(w);
        else
            hf__cond_until(&w->changed, &h->mu, w->deadline_us);
    }
    if (!over && local) {
        drive_by_wakeup(h, w);
        over = 1;
    } else if (!over) {
        /* The calling thread makes the first look: if the key is free, no other thread is needed.
         */
        do {
            /* Doesn't wait (look_at_us is 0), unless a pause comes first (hf__yields_first). */
            hf__cond_until(&w->changed, &h->mu, w->look_at_us);
            pthread_mutex_unlock(&h->mu);
            over = hf__wait_advance(w);
            pthread_mutex_lock(&h->mu);
        } while (!over && w->state == HF_WAIT_FIRST_LOOK);
        if (!over && hf__need_dispatcher(h)) {
            w->code = hf__no_thread(w->e->text, &w->err);
            pthread_mutex_unlock(&h->mu);
            hf__withdraw_wait(w); /* UNKNOWN if the store may still have the request */
            pthread_mutex_lock(&h->mu);
            over = 1;
        }
        w->dispatched = !over;
        h->n_dispatched += w->dispatched;
        hf__schedule(w);
        if (!over && hf__subscription_changes(w)) hf__subscribe_later(h, w->e);
        if (!over) hf__kick_dispatcher(h);
    }
    if (over) hf__wait_finish(w);
    while (w->state != HF_WAIT_ENDED || w->pins) pthread_cond_wait(&w->changed, &h->mu);
    hf__leave_call(h);
}
