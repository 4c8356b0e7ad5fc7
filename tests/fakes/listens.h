/*
 * listens.h - subscriptions of a driver, as its tests make them: a set of keys at once, and a count
 * of the events that came about each.
 */
#ifndef HF_TESTS_LISTENS_H
#define HF_TESTS_LISTENS_H

#include "holdfast_driver.h"

#include <stdlib.h>
#include <string.h>

enum { LISTENS_KEYS = 1024 };

/* The events of a key that a store got; `wanted` at the last flush. */
static struct listens_key {
    const hf_store *st;
    char text[256];
    uint64_t hash, events;
    uint8_t wanted;
} listens_keys[LISTENS_KEYS];
static size_t listens_n;

static inline struct listens_key *listens_key_of(const hf_store *st, const hf_rowkey *key)
{
    for (size_t i = 0; i < listens_n; i++)
        if (listens_keys[i].st == st && !strcmp(listens_keys[i].text, key->text))
            return &listens_keys[i];
    if (listens_n == LISTENS_KEYS || key->len >= sizeof listens_keys[0].text) abort();
    struct listens_key *k = &listens_keys[listens_n++];
    *k = (struct listens_key){.st = st, .hash = key->hash};
    memcpy(k->text, key->text, (size_t)key->len + 1);
    return k;
}

/* A new store may be where another one was. */
static inline void listens_anew(const hf_store *st)
{
    for (size_t i = 0; i < listens_n;)
        if (listens_keys[i].st == st)
            listens_keys[i] = listens_keys[--listens_n];
        else
            i++;
}

/* Subscribes to these keys and to no others, and listens. */
static inline int listen_for(const hf_driver *d, hf_store *st, const hf_rowkey *const *keys,
                             size_t n, hf_event_count *ret, hf_error *err)
{
    for (size_t i = 0; i < n; i++) listens_key_of(st, keys[i])->wanted |= 2;
    for (size_t i = 0; i < listens_n; i++) {
        struct listens_key *k = &listens_keys[i];
        hf_rowkey key;
        if (k->st != st) continue;
        if (k->wanted == 1 && !hf_key_make(k->text, &key, NULL))
            d->caps.notify->unsubscribe(st, &key);
        k->wanted >>= 1;
    }
    for (size_t i = 0; i < n; i++)
        if (d->caps.notify->subscribe(st, keys[i])) return HF_NOMEM;
    return d->caps.notify->flush(st, ret, err);
}

/* How many events have come that concern the key: those that weren't asked for between them count
   as one. */
static inline uint64_t events_of(const hf_driver *d, hf_store *st, const hf_rowkey *key)
{
    hf_key_event event;
    struct listens_key *k = listens_key_of(st, key);
    while (d->caps.notify->next_event(st, &event))
        for (size_t i = 0; i < listens_n; i++)
            listens_keys[i].events +=
                listens_keys[i].st == st && !((listens_keys[i].hash ^ event.hash) & event.mask);
    return k->events;
}

#endif
