/*
 * subscriber.h - the keys to which a handle has subscribed, the channels on which the server
 * notifies it, and the events that came. Compiled into each module that uses it.
 *
 * Keys and channels are found by hash, so an operation on one key costs the same however many there
 * are. Many keys can share a channel. A driver without channels gives no names of channels.
 *
 * After hf__sub_unwant a key is kept for a while: it is idle. If the handle waits for it again
 * soon, no request to the server is needed; and a holder is notified of the key meanwhile. There
 * are at most 64 more idle keys than wanted ones.
 *
 * Thread safety: hf__sub_unsubscribe and hf__sub_next_event take the mutex `mu`. If several threads
 * use the subscriber, they hold the mutex while they call the other functions, but for open and
 * free.
 */
#ifndef HF_KIT_SUBSCRIBER_H
#define HF_KIT_SUBSCRIBER_H

#include "holdfast_driver.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

struct hf__sub_channel {
    struct hf__sub_channel *chain, *changed_next;
    struct hf__sub_channel *spare_next, **spare_prev; /* NULL: it isn't spare */
    char *name;
    size_t len, users; /* users: how many keys use the channel */
    uint64_t hash;
    uint8_t subscribed; /* 1: the server was asked to subscribe the handle to it */
    uint8_t changed;    /* 1: it is in the list of channels to subscribe to, or to leave */
};

/* A key. A driver's own structure for a key may begin with this: hf__sub.key_size. */
struct hf__sub_key {
    struct hf__sub_key *chain, *event_next;
    struct hf__sub_key *idle_next, **idle_prev; /* NULL: it is wanted */
    struct hf__sub_channel *at;                 /* NULL: the key has no channel */
    char *text;
    uint32_t len;
    uint64_t hash;
    uint8_t has_event;      /* 1: it is in the list of keys with events */
    uint8_t pinned;         /* set by the driver; 1: the key must not be dropped now */
    uint8_t in_line;        /* 1: the request that waits is in the row's queue */
    uint8_t named, who[16]; /* if `named`: the id of the request that waits for the key, or did so
                               last */
    char *payload;          /* what the last notification said */
    size_t payload_len;     /* 0: there is none */
};

struct hf__sub {
    pthread_mutex_t mu;
    size_t key_size;
    void (*forget)(struct hf__sub_key *k);
    size_t spare_channels; /* set by the driver: to how many channels without keys the handle stays
                              subscribed */
    struct hf__sub_key **key;
    struct hf__sub_channel **channel;
    size_t key_buckets, channel_buckets, n_keys, n_idle, n_channels, n_spare;
    size_t n_apart;                       /* how many wanted keys have no channel */
    struct hf__sub_key *idle, **idle_end; /* the list of idle keys, the longest idle first */
    struct hf__sub_channel *spare, **spare_end;
    struct hf__sub_key *event, **event_end;
    struct hf__sub_channel *changed;
    int any_event; /* 1: the next event is about all keys */
};

/* Makes a subscriber without keys. key_size: the size of the driver's own structure of a key; 0: it
   has none. `forget` frees what that structure owns; may be NULL. */
void hf__sub_open(struct hf__sub *sub, size_t key_size, void (*forget)(struct hf__sub_key *k));
void hf__sub_free(struct hf__sub *sub);

/* Returns the key, wanted or idle; NULL: it isn't known. */
struct hf__sub_key *hf__sub_find(const struct hf__sub *sub, const char *text, size_t len,
                                 uint64_t hash);
/* Returns the first key of that hash, or the next one after `k`; NULL: there is none. */
struct hf__sub_key *hf__sub_of_hash(const struct hf__sub *sub, uint64_t hash,
                                    const struct hf__sub_key *k);
static inline int hf__sub_is_wanted(const struct hf__sub_key *k) { return !k->idle_prev; }
static inline size_t hf__sub_wanted(const struct hf__sub *sub) { return sub->n_keys - sub->n_idle; }
/* Calls `each` for all keys, in no particular order. Drops no key. */
void hf__sub_each(struct hf__sub *sub, void (*each)(struct hf__sub_key *k, void *arg), void *arg);

/*
 * Marks the key as wanted by the request key->who, with the channel of that name (NULL: the key has
 * none). *ret_same (may be NULL): 1 if the same request wanted it before. Returns the key; NULL:
 * there is no memory, and the key isn't wanted.
 */
struct hf__sub_key *hf__sub_want(struct hf__sub *sub, const hf_rowkey *key, const char *name,
                                 size_t len, int *ret_same);
/* Makes the key idle. Other keys that have been idle for long may be dropped. */
void hf__sub_unwant(struct hf__sub *sub, struct hf__sub_key *k);
/* Finds the key and makes it idle, if it is known. Takes the mutex. */
void hf__sub_unsubscribe(struct hf__sub *sub, const hf_rowkey *key);

/* Notes an event of the key. */
void hf__sub_put_event(struct hf__sub *sub, struct hf__sub_key *k);
/* Notes that there may be events of any key, or that some were lost: on a new connection, for
   example. */
static inline void hf__sub_put_any(struct hf__sub *sub) { sub->any_event = 1; }
/* Takes the next event, as next_event of hf_notify_ops does: each key once, in the order of the
   events. Takes the mutex. */
int hf__sub_next_event(struct hf__sub *sub, hf_key_event *ret);

/* Keeps a copy of the payload of the key's last notification. If it is longer than `most`, or
   memory runs out, the key has no payload. */
void hf__sub_put_payload(struct hf__sub_key *k, const char *payload, size_t len, size_t most);

/* Takes the next channel out of the list of those to subscribe to, or to leave (no users). NULL:
   there is none. The caller frees a channel without users. */
struct hf__sub_channel *hf__sub_next_change(struct hf__sub *sub);
void hf__sub_channel_free(struct hf__sub_channel *c);
/* Notes that the connection is gone: the handle has to subscribe to all channels again, and
   payloads may be out of date. */
void hf__sub_disconnected(struct hf__sub *sub);

#endif
