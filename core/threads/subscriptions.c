/*
 * subscriptions.c - which keys a handle listens for, and which waits an event is for.
 *
 * Where the driver can (subscribe, unsubscribe), keys are told to it one by one: when the wait at
 * the head of a key's line has looked, when it gets in line at the store, and when it ends. Where
 * it can't, each listen names all of them anew, which costs a walk of all waits: this file is the
 * one place for that.
 *
 * An event (next_event) leads to the waits of its key by the table of keys. A driver without it
 * says of a key whether it rang; or nothing, and then all waits look.
 */
#include "subscriptions.h"

#include "handle.h"
#include "look_queue.h"
#include "os.h"
#include "wanted_keys.h"

#include <stdlib.h>
#include <string.h>

/* ---- events ---- */

static void notify(struct hf_wait *w)
{
    if (hf__wanted(w)) hf__notify(w);
}

static void notify_key(struct hf_entry *e)
{
    uint32_t left = e->n_at_store;
    for (struct hf_wait *w = e->first; w && left; w = w->next) {
        left -= (uint32_t)hf__at_store(w);
        notify(w);
    }
}

static void notify_event(hf *h, const hf_key_event *event)
{
    uint64_t mask = event->mask & (h->buckets - 1);
    for (struct hf_wait *w = event->mask ? NULL : h->at_store; w; w = w->list_next) notify(w);
    if (!event->mask) return;
    for (uint64_t i = event->hash & mask; i < h->buckets; i += mask + 1)
        for (struct hf_entry *e = h->table[i]; e; e = e->next)
            if (!((e->key.hash ^ event->hash) & event->mask)) notify_key(e);
}

/* Where the store can say so: did something come about its key? *ret is what it said. */
static int rang(const struct hf_wait *w, uint64_t *ret)
{
    const hf_driver *d = w->h->port.drv;
    if (!d->rang || !w->heard) return 1;
    *ret = d->rang(w->h->port.st, &w->e->key);
    return *ret != w->rang;
}

void hf__hear_from_now(struct hf_wait *w)
{
    if (!hf__tells_events(w->h)) (void)rang(w, &w->rang);
}

/* `rung`: something was heard. */
static void take_events(hf *h, int rung)
{
    const hf_local_ops *local = h->port.caps.local;
    int (*next)(hf_store *, uint8_t, hf_key_event *) =
        local ? local->next_event : h->port.drv->next_event;
    hf_key_event event;
    uint64_t number;
    while (next && next(h->port.st, HF_DISPATCHER_BELL, &event)) notify_event(h, &event);
    if (next || !rung) return;
    for (struct hf_wait *w = h->at_store; w; w = w->list_next)
        if (w->dispatched && rang(w, &number)) notify(w);
}

/* ---- nobody is told of anything ---- */

/* Who relied on being told looks by itself from here on. */
static void go_deaf(hf *h)
{
    int64_t soon = hf__local_us() + HF_POLL_MS * 1000;
    int bells = h->port.caps.local != 0;
    for (struct hf_wait *w = h->at_store; w; w = w->list_next) {
        if (!w->heard && !(bells && w->dispatched)) continue;
        w->heard = 0;
        if (!w->looking) hf__look_by(w, soon);
        hf__schedule(w);
    }
}

/* ---- keys that are told to the driver one by one ---- */

/* For which of the key's waits it is to be subscribed to: the last that has come to the store. */
static struct hf_wait *hearer(struct hf_entry *e)
{
    struct hf_wait *found = NULL;
    uint32_t left = e->n_at_store;
    for (struct hf_wait *w = e->first; w && left; w = w->next) {
        left -= (uint32_t)hf__at_store(w);
        if (hf__wanted(w)) found = w;
    }
    return found;
}

/* Tells the driver. What came for the wait between its last look and this nobody has told it of,
   unless its key was watched in the same way before: *ret_unheard. */
static void change(hf *h, struct hf_entry *e, int *ret_unheard)
{
    struct hf_wait *w = hearer(e);
    *ret_unheard = 0;
    e->hears = w;
    if (!w) {
        e->key.who = NULL;
        if (e->subscribed) h->port.drv->unsubscribe(h->port.st, &e->key);
        e->subscribed = 0;
        return;
    }
    /* Another id may be told of elsewhere. */
    uint8_t in_line = w->state == HF_WAIT_QUEUED;
    int alike = e->subscribed && e->key.in_line == in_line && !w->named && !e->listened_named;
    e->listened_named = w->named;
    e->key.in_line = in_line;
    e->key.who = w->party.id;
    e->subscribed = !h->port.drv->subscribe(h->port.st, &e->key);
    w->heard = (uint8_t)(e->subscribed && !h->deaf);
    *ret_unheard = e->subscribed && !alike;
}

/* Without next_event of a connection that was made anew, each of them would be lost. */
static void hear_again(hf *h)
{
    for (struct hf_wait *w = h->at_store; w; w = w->list_next)
        if (w->e->hears == w && w->e->subscribed) {
            w->heard = 1;
            hf__notify(w);
        }
}

static int flush_and_listen(hf *h, hf_ear *ear)
{
    struct hf_entry *unheard = NULL;
    int is_unheard;
    if (!h->changed_keys && !h->listens) return HF_UNAVAILABLE; /* nobody has had to wait yet */
    for (struct hf_entry *e; (e = h->changed_keys);) {
        h->changed_keys = e->changed_next;
        e->changed = 0;
        change(h, e, &is_unheard);
        if (is_unheard) {
            e->changed_next = unheard;
            unheard = e; /* whose reference stays */
        } else {
            hf__entry_unref(e);
        }
    }
    h->listens = 1;
    pthread_mutex_unlock(&h->mu);
    int rc = h->port.drv->listen(h->port.st, HF_DISPATCHER_BELL, NULL, 0, ear, NULL);
    pthread_mutex_lock(&h->mu);
    if (!rc && h->deaf) hear_again(h);
    for (struct hf_entry *e = unheard, *next; e; e = next) {
        next = e->changed_next;
        if (!rc) notify_key(e);
        hf__entry_unref(e);
    }
    return rc;
}

/* ---- keys that each listen names anew ---- */

/* The waits whose keys are listened for: *ret_n. 0, or HF_NOMEM. */
static int all_keys(hf *h, size_t *ret_n)
{
    size_t n = 0;
    if (h->n_dispatched > h->dispatcher_keys_cap) {
        size_t cap = h->n_dispatched * 2;
        const hf_rowkey **more = realloc(h->dispatcher_keys, cap * sizeof *more);
        if (!more) return HF_NOMEM;
        h->dispatcher_keys = more;
        h->dispatcher_keys_cap = cap;
    }
    for (struct hf_wait *w = h->at_store; w; w = w->list_next) {
        int heard_before = w->heard;
        w->heard = (uint8_t)hf__wanted(w);
        if (!w->heard) continue;
        /* Listened for in another way; or for another id, which may be told elsewhere. */
        int another_id = !heard_before && (w->named || w->e->listened_named);
        uint8_t in_line = w->state == HF_WAIT_QUEUED;
        if (w->e->key.in_line != in_line || another_id) w->e->listened = 0;
        w->e->listened_named = w->named;
        w->e->key.in_line = in_line;
        w->e->key.who = w->party.id;
        h->dispatcher_keys[n++] = &w->e->key;
    }
    *ret_n = n;
    return 0;
}

/* They are listened for from now on. What came between the last look and this nobody has told, so
   they look again; but for a key that was listened for already: of that `listen` knows. */
static void begin_to_hear(hf *h)
{
    uint32_t before = h->listens++;
    for (struct hf_wait *w = h->at_store; w; w = w->list_next) {
        if (!w->heard) continue;
        if (!w->e->listened || w->e->listened != before) hf__notify(w);
        w->e->listened = h->listens;
    }
}

static int listen_for_all(hf *h, hf_ear *ear)
{
    size_t n;
    int rc = all_keys(h, &n);
    if (rc || (!n && !h->listens)) return HF_UNAVAILABLE; /* nobody has had to wait yet */
    pthread_mutex_unlock(&h->mu);
    rc = h->port.drv->listen(h->port.st, HF_DISPATCHER_BELL, h->dispatcher_keys, n, ear, NULL);
    pthread_mutex_lock(&h->mu);
    if (rc)
        h->listens++; /* whatever was listened for isn't any more */
    else
        begin_to_hear(h);
    return rc;
}

/* ---- all stores ---- */

static int listen_for_bell(hf *h, hf_ear *ear)
{
    size_t n = h->n_dispatched;
    pthread_mutex_unlock(&h->mu);
    int rc = h->port.caps.local->wakeup_begin(h->port.st, HF_DISPATCHER_BELL, n, ear, NULL);
    pthread_mutex_lock(&h->mu);
    return rc;
}

void hf__listen(hf *h)
{
    hf_ear ear = h->ear;
    int rc = HF_UNAVAILABLE;
    if (h->port.caps.local)
        rc = listen_for_bell(h, &ear);
    else if (hf__watches(h) && hf__one_by_one(h))
        rc = flush_and_listen(h, &ear);
    else if (hf__watches(h))
        rc = listen_for_all(h, &ear);
    int was_deaf = h->deaf, rung = memcmp(&ear, &h->ear, sizeof ear) != 0;
    h->ear = ear;
    h->deaf = rc != 0;
    if (rc && (!was_deaf || !hf__one_by_one(h))) go_deaf(h);
    if (!rc) take_events(h, rung);
}
