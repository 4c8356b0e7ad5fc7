/*
 * wait.c - a request that isn't granted at once, and the caller's thread that drives it. What a
 * look at the store does: wait_look.c.
 */
#include "wait.h"

#include "handle.h"
#include "key.h"
#include "local_line.h"
#include "look_queue.h"
#include "os.h"
#include "plan.h"
#include "session.h"
#include "start_threads.h"
#include "wait_look.h"
#include "wait_state.h"
#include "wanted_keys.h"
#include "withdraw.h"

#include <stddef.h>
#include <string.h>

/* The party of a request with these options. */
static void fill_party(hf *h, const hf_options *o, hf_party *p)
{
    hf_party_copy(p, &h->party);
    p->flags = 0; /* it may wait */
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
    /* Without sessions every hold ends by time: the row says nothing more of it. */
    if (o->flags & HF_DETACHED && (h->port.caps.liveness || h->port.caps.sessions))
        p->flags = HF_PARTY_DETACHED;
    p->mode = (uint8_t)o->mode;
    p->limit = o->mode == HF_LIMITED ? o->limit : 0;
}

enum { BEHIND_ERR = offsetof(struct hf_wait, err) + sizeof(hf_error) };

void hf__wait_init(hf *h, struct hf_wait *w, struct hf_entry *e, const hf_options *o)
{
    /* Not the error, which is large: many waits cost the time in which their memory is touched. */
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

/* The caller's thread drives its own wait on a bell. Under the mutex. */
static void drive_by_bell(hf *h, struct hf_wait *w)
{
    const hf_local_ops *local = h->port.caps.local;
    uint8_t bell = w->party.bell;
    pthread_mutex_unlock(&h->mu);
    for (int over = 0; !over;) {
        hf_event_count events;
        int fails = local->wakeup_begin(h->port.st, bell, 0, &events, NULL);
        over = hf__wait_look(w);
        if (!over && fails) hf__pause(hf__poll_us(h));
        if (!over && !fails)
            local->sleep(h->port.st, bell, &events, hf__min64(w->deadline_us, w->look_at_us), NULL);
    }
    pthread_mutex_lock(&h->mu);
}

/* Waits until it is over. Under the mutex. */
void hf__wait_sync(hf *h, struct hf_wait *w)
{
    int bells = h->port.caps.local != NULL, over = 0;
    w->party.bell = bells ? (uint8_t)(1 + h->next_bell++ % (HF_BELLS - 1)) : 0;
    h->callers++;
    hf__line_up(h, w);
    while (w->state == HF_WAIT_LOCAL) {
        int code = w->cancel ? HF_CANCELED : hf__local_us() >= w->deadline_us ? HF_TIMEOUT : 0;
        if (code) {
            hf__wait_error(w, code, hf_code_text(code));
            over = 1;
            break;
        }
        hf__cond_until(&w->changed, &h->mu, w->deadline_us);
    }
    if (!over && bells) {
        drive_by_bell(h, w);
        over = 1;
    } else if (!over) {
        /* The first look is ours: uncontended, no other thread is needed. */
        do {
            hf__cond_until(&w->changed, &h->mu, w->look_at_us);
            pthread_mutex_unlock(&h->mu);
            over = hf__wait_look(w);
            pthread_mutex_lock(&h->mu);
        } while (!over && w->state == HF_WAIT_FIRST_LOOK);
        if (!over && (w->code = hf__need_dispatcher(h, &w->err)) != 0) {
            pthread_mutex_unlock(&h->mu);
            hf__withdraw_wait(w); /* UNKNOWN if the store may still have the request */
            pthread_mutex_lock(&h->mu);
            over = 1;
        }
        w->dispatched = !over;
        h->n_dispatched += w->dispatched;
        hf__schedule(w);
        if (!over && hf__subscription_changes(w)) hf__change_subscription(h, w->e);
        if (!over) hf__kick_dispatcher(h);
    }
    if (over) hf__wait_finish(w);
    while (w->state != HF_WAIT_ENDED || w->pins) pthread_cond_wait(&w->changed, &h->mu);
    hf__leave_call(h);
}
