/*
 * local_line.c - the line of a handle's waits for one key, of which the first stands at the store.
 */
#include "local_line.h"

#include "handle.h"
#include "kept_error.h"
#include "look_queue.h"
#include "peers.h"
#include "session.h"
#include "start_threads.h"
#include "wait_state.h"
#include "wanted_keys.h"

#include <string.h>

static void at_store_add(hf *h, struct hf_wait *w)
{
    hf__wait_steps_up(w);
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

/* A request that holds, asked again: it is had at once, and mustn't stand behind those who wait for
   its end. */
static int holds_already(const struct hf_wait *w)
{
    for (const hf_lock *l = w->named ? w->e->locks : NULL; l; l = l->next)
        if (l->named && !l->lost && !l->releasing && !memcmp(l->id, w->party.id, sizeof l->id))
            return 1;
    return 0;
}

void hf__line_up(hf *h, struct hf_wait *w)
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

/* The wait is over: leaves the line, lets the next one step up. Called under the mutex; may drop it
   for as long as somebody else looks at the wait. */
void hf__wait_finish(struct hf_wait *w)
{
    hf *h = w->h;
    struct hf_entry *e = w->e;
    int listed = hf__at_store(w);
    hf__wait_ends(w);
    hf__deadline_drop(&h->looks, &w->look);
    while (w->pins) pthread_cond_wait(&w->changed, &h->mu);
    hf__deadline_drop(&h->notices, &w->notice);
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
        hf__change_subscription(h, e);
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
