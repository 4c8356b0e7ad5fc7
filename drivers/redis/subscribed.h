/*
 * subscribed.h - redis: the keys that a handle listens for, and the channels at which it is told.
 *
 * Many keys share a channel: who stands in line is told at the address of its handle. Found by
 * hash tables, so that what happens to one key doesn't depend on how many there are. All of it
 * under hf_store.said_mu.
 */
#ifndef HF_REDIS_SUBSCRIBED_H
#define HF_REDIS_SUBSCRIBED_H

#include "holdfast_driver.h"

#include <stddef.h>
#include <stdint.h>

struct hf__rd_channel { /* of the server's */
    struct hf__rd_channel *chain, *changed_next;
    char *name;
    size_t len, users; /* keys that are told there */
    uint64_t hash;
    uint8_t subscribed; /* so was asked of the server */
    uint8_t changed;    /* it is in the list of those of which the server is to be told */
};

struct hf__rd_key {
    struct hf__rd_key *chain, *news_next;
    struct hf__rd_key *idle_next, **idle_prev; /* NULL: it is wanted */
    struct hf__rd_channel *at;
    char *text;
    size_t len;
    uint64_t hash;
    uint64_t wanted_by; /* the last listen that named it; while they are named all at once */
    uint64_t rang;      /* hf_store.heard, as it was heard of last */
    uint8_t has_news;   /* it is in the list of those */
    /* What the last message says, and how long it is; 0: nothing. */
    char *said;
    size_t said_len;
};

struct hf__rd_subscribed { /* all zero at first */
    struct hf__rd_key **key;
    struct hf__rd_channel **channel;
    size_t key_buckets, channel_buckets, n_keys, n_idle, n_channels;
    struct hf__rd_key *idle, **idle_end; /* the first is wanted by nobody for longest */
    struct hf__rd_key *news, **news_end;
    struct hf__rd_channel *changed;
    uint64_t listens;
    int any_news; /* anything may have come */
};

struct hf__rd_key *hf__rd_key_of(const struct hf__rd_subscribed *all, const char *text, size_t len,
                                 uint64_t hash);
static inline int hf__rd_is_wanted(const struct hf__rd_key *k) { return !k->idle_prev; }
/* The key is wanted, and told at the channel of that name. 0, or HF_NOMEM: then it isn't. */
int hf__rd_want(struct hf__rd_subscribed *all, const hf_rowkey *key, const char *name, size_t len);
/* It is kept for a while: who waits for it again soon needn't ask for it. */
void hf__rd_unwant(struct hf__rd_subscribed *all, struct hf__rd_key *k);
/* Since the last listen that named all of its keys: the others aren't wanted any more. */
void hf__rd_unwant_others(struct hf__rd_subscribed *all);
void hf__rd_put_news(struct hf__rd_subscribed *all, struct hf__rd_key *k);
int hf__rd_next_news(struct hf__rd_subscribed *all, hf_key_event *ret);
/* What is kept of it says nothing if there is no memory. */
void hf__rd_keep_said(struct hf__rd_key *k, const char *said, size_t len, size_t most);
/* The next channel of which the server is to be told, taken out; NULL: there is none. One without
   users is the caller's to free. */
struct hf__rd_channel *hf__rd_next_change(struct hf__rd_subscribed *all);
void hf__rd_channel_free(struct hf__rd_channel *c);
/* The connection is gone: the server knows of none; what was said may be overtaken. */
void hf__rd_unsubscribed(struct hf__rd_subscribed *all);
void hf__rd_subscribed_free(struct hf__rd_subscribed *all);

#endif
