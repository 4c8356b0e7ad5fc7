/*
 * subscribed.c - see subscribed.h.
 */
#include "subscribed.h"

#include <stdlib.h>
#include <string.h>

enum { FEWEST = 64, SPARE_KEYS = 64 };

/* ---- channels ---- */

static void change(struct hf__rd_subscribed *all, struct hf__rd_channel *c)
{
    if (c->changed) return;
    c->changed = 1;
    c->changed_next = all->changed;
    all->changed = c;
}

static int grow_channels(struct hf__rd_subscribed *all)
{
    size_t n = all->channel_buckets ? all->channel_buckets * 4 : FEWEST;
    struct hf__rd_channel **more = calloc(n, sizeof(struct hf__rd_channel *));
    if (!more) return all->channel_buckets ? 0 : HF_NOMEM; /* longer chains, nothing worse */
    for (size_t i = 0; i < all->channel_buckets; i++)
        for (struct hf__rd_channel *c = all->channel[i], *next; c; c = next) {
            next = c->chain;
            c->chain = more[c->hash & (n - 1)];
            more[c->hash & (n - 1)] = c;
        }
    free(all->channel);
    all->channel = more;
    all->channel_buckets = n;
    return 0;
}

/* With one user more; NULL: out of memory. */
static struct hf__rd_channel *use_channel(struct hf__rd_subscribed *all, const char *name,
                                          size_t len)
{
    uint64_t hash = hf_key_hash(name, len);
    if (all->n_channels >= all->channel_buckets && grow_channels(all)) return NULL;
    struct hf__rd_channel **at = &all->channel[hash & (all->channel_buckets - 1)];
    for (struct hf__rd_channel *c = *at; c; c = c->chain)
        if (c->hash == hash && c->len == len && !memcmp(c->name, name, len)) {
            if (!c->users++) change(all, c);
            return c;
        }
    struct hf__rd_channel *c = calloc(1, sizeof *c);
    if (c) c->name = malloc(len + 1);
    if (!c || !c->name) {
        free(c);
        return NULL;
    }
    memcpy(c->name, name, len);
    c->name[len] = 0;
    c->len = len;
    c->hash = hash;
    c->users = 1;
    c->chain = *at;
    *at = c;
    all->n_channels++;
    change(all, c);
    return c;
}

static void leave_channel(struct hf__rd_subscribed *all, struct hf__rd_channel *c)
{
    if (!--c->users) change(all, c);
}

void hf__rd_channel_free(struct hf__rd_channel *c)
{
    free(c->name);
    free(c);
}

struct hf__rd_channel *hf__rd_next_change(struct hf__rd_subscribed *all)
{
    struct hf__rd_channel *c = all->changed;
    if (!c) return NULL;
    all->changed = c->changed_next;
    c->changed = 0;
    if (c->users) return c;
    struct hf__rd_channel **at = &all->channel[c->hash & (all->channel_buckets - 1)];
    while (*at != c) at = &(*at)->chain;
    *at = c->chain;
    all->n_channels--;
    return c;
}

/* ---- keys ---- */

struct hf__rd_key *hf__rd_key_of(const struct hf__rd_subscribed *all, const char *text, size_t len,
                                 uint64_t hash)
{
    if (!all->key_buckets) return NULL;
    struct hf__rd_key *k = all->key[hash & (all->key_buckets - 1)];
    while (k && (k->hash != hash || k->len != len || memcmp(k->text, text, len) != 0)) k = k->chain;
    return k;
}

static int grow_keys(struct hf__rd_subscribed *all)
{
    size_t n = all->key_buckets ? all->key_buckets * 4 : FEWEST;
    struct hf__rd_key **more = calloc(n, sizeof(struct hf__rd_key *));
    if (!more) return all->key_buckets ? 0 : HF_NOMEM;
    for (size_t i = 0; i < all->key_buckets; i++)
        for (struct hf__rd_key *k = all->key[i], *next; k; k = next) {
            next = k->chain;
            k->chain = more[k->hash & (n - 1)];
            more[k->hash & (n - 1)] = k;
        }
    free(all->key);
    all->key = more;
    all->key_buckets = n;
    return 0;
}

static struct hf__rd_key *add_key(struct hf__rd_subscribed *all, const hf_rowkey *key)
{
    if (all->n_keys >= all->key_buckets && grow_keys(all)) return NULL;
    struct hf__rd_key *k = calloc(1, sizeof *k);
    if (k) k->text = malloc((size_t)key->len + 1);
    if (!k || !k->text) {
        free(k);
        return NULL;
    }
    memcpy(k->text, key->text, key->len);
    k->text[key->len] = 0;
    k->len = key->len;
    k->hash = key->hash;
    struct hf__rd_key **at = &all->key[k->hash & (all->key_buckets - 1)];
    k->chain = *at;
    *at = k;
    all->n_keys++;
    return k;
}

static void leave_idle(struct hf__rd_subscribed *all, struct hf__rd_key *k)
{
    if (!k->idle_prev) return;
    *k->idle_prev = k->idle_next;
    if (k->idle_next)
        k->idle_next->idle_prev = k->idle_prev;
    else
        all->idle_end = k->idle_prev;
    k->idle_prev = NULL;
    all->n_idle--;
}

static void free_key(struct hf__rd_key *k)
{
    free(k->text);
    free(k->said);
    free(k);
}

/* Nobody wants it. */
static void drop_key(struct hf__rd_subscribed *all, struct hf__rd_key *k)
{
    struct hf__rd_key **at = &all->key[k->hash & (all->key_buckets - 1)];
    while (*at != k) at = &(*at)->chain;
    *at = k->chain;
    all->n_keys--;
    leave_idle(all, k);
    if (k->at) leave_channel(all, k->at);
    free_key(k);
}

void hf__rd_unwant(struct hf__rd_subscribed *all, struct hf__rd_key *k)
{
    if (k->idle_prev) return;
    if (!all->idle) all->idle_end = &all->idle;
    k->idle_next = NULL;
    k->idle_prev = all->idle_end;
    *all->idle_end = k;
    all->idle_end = &k->idle_next;
    all->n_idle++;
    size_t wanted = all->n_keys - all->n_idle;
    for (struct hf__rd_key *first; all->n_idle > wanted + SPARE_KEYS;) {
        first = all->idle;
        if (first->has_news) break; /* it is in that list, too */
        drop_key(all, first);
    }
}

int hf__rd_want(struct hf__rd_subscribed *all, const hf_rowkey *key, const char *name, size_t len)
{
    struct hf__rd_key *k = hf__rd_key_of(all, key->text, key->len, key->hash);
    if (!k) k = add_key(all, key);
    struct hf__rd_channel *c = k ? use_channel(all, name, len) : NULL;
    if (!c) {
        if (k) hf__rd_unwant(all, k);
        return HF_NOMEM;
    }
    if (k->at) leave_channel(all, k->at);
    k->at = c;
    leave_idle(all, k);
    k->wanted_by = all->listens;
    return 0;
}

void hf__rd_unwant_others(struct hf__rd_subscribed *all)
{
    for (size_t i = 0; i < all->key_buckets; i++)
        for (struct hf__rd_key *k = all->key[i], *next; k; k = next) {
            next = k->chain;
            if (k->wanted_by != all->listens) hf__rd_unwant(all, k);
        }
}

/* ---- what came ---- */

void hf__rd_put_news(struct hf__rd_subscribed *all, struct hf__rd_key *k)
{
    if (k->has_news) return;
    if (!all->news) all->news_end = &all->news;
    k->has_news = 1;
    k->news_next = NULL;
    *all->news_end = k;
    all->news_end = &k->news_next;
}

int hf__rd_next_news(struct hf__rd_subscribed *all, hf_key_event *ret)
{
    struct hf__rd_key *k = all->news;
    *ret = (hf_key_event){0, 0};
    if (all->any_news) {
        all->any_news = 0;
        return 1;
    }
    if (!k) return 0;
    all->news = k->news_next;
    k->has_news = 0;
    *ret = (hf_key_event){k->hash, UINT64_MAX};
    return 1;
}

void hf__rd_keep_said(struct hf__rd_key *k, const char *said, size_t len, size_t most)
{
    k->said_len = 0;
    char *to = len && len <= most ? realloc(k->said, len) : NULL;
    if (!to) return;
    k->said = to;
    memcpy(k->said, said, len);
    k->said_len = len;
}

void hf__rd_unsubscribed(struct hf__rd_subscribed *all)
{
    for (size_t i = 0; i < all->key_buckets; i++)
        for (struct hf__rd_key *k = all->key[i]; k; k = k->chain) k->said_len = 0;
    for (size_t i = 0; i < all->channel_buckets; i++)
        for (struct hf__rd_channel *c = all->channel[i]; c; c = c->chain) {
            c->subscribed = 0;
            change(all, c);
        }
}

void hf__rd_subscribed_free(struct hf__rd_subscribed *all)
{
    for (size_t i = 0; i < all->key_buckets; i++)
        for (struct hf__rd_key *k = all->key[i], *next; k; k = next) {
            next = k->chain;
            free_key(k);
        }
    for (size_t i = 0; i < all->channel_buckets; i++)
        for (struct hf__rd_channel *c = all->channel[i], *next; c; c = next) {
            next = c->chain;
            hf__rd_channel_free(c);
        }
    free(all->key);
    free(all->channel);
    memset(all, 0, sizeof *all);
}
