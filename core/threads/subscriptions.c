/*
 * subscriptions.c - subscribes to the keys of waits, and makes waits look when an event comes for
 * their key.
 *
 * A key is subscribed to for one of its waits (mostly the only one that is at the store): after
 * that wait's first look, again when it has entered the queue, and until it ends. An event names
 * its key by hash, and the handle's hash table leads to the waits: no walk over other keys.
 *
 * A local store has no subscriptions. There all waits that the dispatcher drives share one wakeup,
 * and its events name keys, too.
 */
#include "threads.h"

#include "handle.h"
#include "os.h"
#include "wait.h"
#include "wait_schedule.h"

/* ---- events ---- */

static void notify_key(struct hf_entry *e)
{
    uint32_t left = e->n_at_store;
    for (struct hf_wait *w = e->first; w && left; w = w->next) {
        left -= (uint32_t)hf__at_store(w);
        if (hf__needs_notifications(w)) hf__notify(w);
    }
}

/* Makes all waits look soon, after an event about every key. They stand behind the waits that are
   due already (a first look, a limit that has passed): if such events came faster than all waits
   can look, those would never have their turn. */
static void notify_all(hf *h)
{
    for (struct hf_wait *w = h->at_store; w; w = w->list_next)
        if (hf__needs_notifications(w)) hf__notify_in_turn(w);
}

static void notify_event(hf *h, const hf_key_event *event)
{
    uint64_t mask = event->mask & (h->buckets - 1);
    if (!event->mask) {
        notify_all(h);
        return;
    }
    for (uint64_t i = event->hash & mask; i < h->buckets; i += mask + 1)
        for (struct hf_entry *e = h->table[i]; e; e = e->next)
            if (!((e->key.hash ^ event->hash) & event->mask)) notify_key(e);
}

static int next_event(hf *h, hf_key_event *ret)
{
    const hf_local_ops *local = h->port.caps.local;
    return local ? local->next_event(h->port.st, HF_DISPATCHER_WAKEUP, ret)
                 : h->port.caps.notify->next_event(h->port.st, ret);
}

/* ---- a store that sends no notifications, at present or at all ---- */

/* Makes the waits that relied on notifications poll from here on. */
static void disconnected(hf *h)
{
    int64_t soon = hf__local_us() + HF_POLL_MS * 1000;
    int local = h->port.caps.local != 0;
    for (struct hf_wait *w = h->at_store; w; w = w->list_next) {
        if (!w->subscribed && !(local && w->dispatched)) continue;
        w->subscribed = 0;
        if (!w->looking) hf__look_by(w, soon);
        hf__schedule(w);
    }
}

/* Makes the subscribers rely on notifications again. All of them look, because notifications were
   lost meanwhile. */
static void connected(hf *h)
{
    for (struct hf_wait *w = h->at_store; w; w = w->list_next)
        if (w->e->subscriber == w && w->e->subscribed) {
            w->subscribed = 1;
            hf__notify(w);
        }
}

/* ---- subscriptions ---- */

/* Makes a wait poll from here on, because it isn't the subscriber of its key any more. */
static void unsubscribed(struct hf_wait *w)
{
    w->subscribed = 0;
    hf__look_by(w, hf__local_us() + HF_POLL_MS * 1000);
    if (!w->looking) hf__schedule(w);
}

/* Subscribes to the key as its waits need it, or ends the subscription.
   Returns: 1: the subscription is new or another one, so notifications between the wait's last look
   and the next flush are lost; 0: none are lost, or there is no subscription. */
static int change(hf *h, struct hf_entry *e)
{
    const hf_notify_ops *ops = h->port.caps.notify;
    struct hf_wait *w = hf__subscriber_of(e), *was = e->subscriber;
    if (was && was != w && hf__needs_notifications(was)) unsubscribed(was);
    e->subscriber = w;
    if (!w) {
        e->key.who = NULL;
        if (e->subscribed) ops->unsubscribe(h->port.st, &e->key);
        e->subscribed = 0;
        return 0;
    }
    uint8_t in_line = w->state == HF_WAIT_QUEUED;
    /* Some drivers notify a queued request on a channel of its own, by its id. Two requests with a
       request_id may have different ids, so these are never the same subscription. */
    int before = e->subscribed;
    int same = before && e->key.in_line == in_line && !w->named && !e->subscribed_named;
    e->subscribed_named = w->named;
    e->key.in_line = in_line;
    e->key.who = w->party.id;
    e->subscribed = !ops->subscribe(h->port.st, &e->key);
    w->subscribed = (uint8_t)(e->subscribed && !h->disconnected);
    /* What came by the former subscription may be out of date, so the wait looks at the row. */
    if (before && !same) hf__look_by(w, 0);
    if (!e->subscribed && !w->looking) {
        hf__look_by(w, hf__local_us() + HF_POLL_MS * 1000);
        hf__schedule(w);
    }
    return e->subscribed && !same;
}

static int flush(hf *h, hf_event_count *ret)
{
    struct hf_entry *changed = NULL;
    /* No subscription was ever needed. */
    if (!h->changed_keys && !h->subscribes) return HF_UNAVAILABLE;
    for (struct hf_entry *e; (e = h->changed_keys);) {
        h->changed_keys = e->changed_next;
        e->changed = 0;
        if (change(h, e)) {
            e->flushed_next = changed;
            changed = e; /* the reference of the list of changed keys stays until after the flush */
        } else {
            hf__entry_unref(e);
        }
    }
    h->subscribes = 1;
    pthread_mutex_unlock(&h->mu);
    int rc = h->port.caps.notify->flush(h->port.st, ret, NULL);
    pthread_mutex_lock(&h->mu);
    if (!rc && h->disconnected) connected(h);
    for (struct hf_entry *e = changed, *next; e; e = next) {
        next = e->flushed_next;
        if (!rc) notify_key(e);
        hf__entry_unref(e);
    }
    return rc;
}

static int begin_wakeup(hf *h, hf_event_count *ret)
{
    size_t n = h->n_dispatched;
    pthread_mutex_unlock(&h->mu);
    int rc = h->port.caps.local->wakeup_begin(h->port.st, HF_DISPATCHER_WAKEUP, n, ret, NULL);
    pthread_mutex_lock(&h->mu);
    return rc;
}

void hf__take_events(hf *h)
{
    hf_key_event event;
    int rc = HF_UNAVAILABLE, was_disconnected = h->disconnected;
    if (h->port.caps.local)
        rc = begin_wakeup(h, &h->events);
    else if (h->port.caps.notify)
        rc = flush(h, &h->events);
    h->disconnected = rc != 0;
    if (rc && (!was_disconnected || h->port.caps.local)) disconnected(h);
    while (!rc && next_event(h, &event)) notify_event(h, &event);
}
