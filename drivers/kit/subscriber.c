/*
 * subscriber.c - see subscriber.h.
 */
#include "subscriber.h"

#include <stdlib.h>
#include <string.h>

enum { FEWEST = 64, SPARE_KEYS = 64 };

/* ---- channels ---- */

static void change(struct hf__sub *sub, struct hf__sub_channel *c)
{
    if (c->changed) return;
    c->changed = 1;
    c->changed_next = sub->changed;
    sub->changed = c;
}

static int grow_channels(struct hf__sub *sub)
{
    size_t n = sub->channel_buckets ? sub->channel_buckets * 4 : FEWEST;
    struct hf__sub_channel **more = calloc(n, sizeof(struct hf__sub_channel *));
    if (!more)
        return sub->channel_buckets ? 0 : HF_NOMEM; /* the old table stays in use, with
                                                       longer chains */
    for (size_t i = 0; i < sub->channel_buckets; i++)
        for (struct hf__sub_channel *c = sub->channel[i], *next; c; c = next) {
            next = c->chain;
            c->chain = more[c->hash & (n - 1)];
            more[c->hash & (n - 1)] = c;
        }
    free(sub->channel);
    sub->channel = more;
    sub->channel_buckets = n;
    return 0;
}

/* Puts a channel without users into the list of spare ones. */
static void give_up(struct hf__sub *sub, struct hf__sub_channel *c)
{
    if (!sub->spare) sub->spare_end = &sub->spare;
    c->spare_next = NULL;
    c->spare_prev = sub->spare_end;
    *sub->spare_end = c;
    sub->spare_end = &c->spare_next;
    sub->n_spare++;
}

static void leave_spare(struct hf__sub *sub, struct hf__sub_channel *c)
{
    *c->spare_prev = c->spare_next;
    if (c->spare_next)
        c->spare_next->spare_prev = c->spare_prev;
    else
        sub->spare_end = c->spare_prev;
    c->spare_prev = NULL;
    sub->n_spare--;
}

/* Returns the channel of this name, with one user more. NULL: out of memory. */
static struct hf__sub_channel *use_channel(struct hf__sub *sub, const char *name, size_t len)
{
    uint64_t hash = hf_key_hash(name, len);
    if (sub->n_channels >= sub->channel_buckets && grow_channels(sub)) return NULL;
    struct hf__sub_channel **at = &sub->channel[hash & (sub->channel_buckets - 1)];
    for (struct hf__sub_channel *c = *at; c; c = c->chain)
        if (c->hash == hash && c->len == len && !memcmp(c->name, name, len)) {
            if (!c->users++ && c->spare_prev) leave_spare(sub, c);
            if (!c->subscribed) change(sub, c);
            return c;
        }
    struct hf__sub_channel *c = calloc(1, sizeof *c);
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
    sub->n_channels++;
    change(sub, c);
    return c;
}

static void leave_channel(struct hf__sub *sub, struct hf__sub_channel *c)
{
    if (--c->users) return;
    give_up(sub, c);
    while (sub->n_spare > sub->spare_channels) {
        c = sub->spare;
        leave_spare(sub, c);
        change(sub, c);
    }
}

void hf__sub_channel_free(struct hf__sub_channel *c)
{
    free(c->name);
    free(c);
}

struct hf__sub_channel *hf__sub_next_change(struct hf__sub *sub)
{
    struct hf__sub_channel *c = sub->changed;
    if (!c) return NULL;
    sub->changed = c->changed_next;
    c->changed = 0;
    if (c->users) return c;
    /* the last key has left the channel before the server was asked to subscribe */
    if (c->spare_prev) leave_spare(sub, c);
    struct hf__sub_channel **at = &sub->channel[c->hash & (sub->channel_buckets - 1)];
    while (*at != c) at = &(*at)->chain;
    *at = c->chain;
    sub->n_channels--;
    return c;
}

/* ---- keys ---- */

struct hf__sub_key *hf__sub_find(const struct hf__sub *sub, const char *text, size_t len,
                                 uint64_t hash)
{
    if (!sub->key_buckets) return NULL;
    struct hf__sub_key *k = sub->key[hash & (sub->key_buckets - 1)];
    while (k && (k->hash != hash || k->len != len || memcmp(k->text, text, len) != 0)) k = k->chain;
    return k;
}

struct hf__sub_key *hf__sub_of_hash(const struct hf__sub *sub, uint64_t hash,
                                    const struct hf__sub_key *k)
{
    struct hf__sub_key *next = k                  ? k->chain
                               : sub->key_buckets ? sub->key[hash & (sub->key_buckets - 1)]
                                                  : NULL;
    while (next && next->hash != hash) next = next->chain;
    return next;
}

void hf__sub_each(struct hf__sub *sub, void (*each)(struct hf__sub_key *k, void *arg), void *arg)
{
    for (size_t i = 0; i < sub->key_buckets; i++)
        for (struct hf__sub_key *k = sub->key[i]; k; k = k->chain) each(k, arg);
}

static int grow_keys(struct hf__sub *sub)
{
    size_t n = sub->key_buckets ? sub->key_buckets * 4 : FEWEST;
    struct hf__sub_key **more = calloc(n, sizeof(struct hf__sub_key *));
    if (!more) return sub->key_buckets ? 0 : HF_NOMEM;
    for (size_t i = 0; i < sub->key_buckets; i++)
        for (struct hf__sub_key *k = sub->key[i], *next; k; k = next) {
            next = k->chain;
            k->chain = more[k->hash & (n - 1)];
            more[k->hash & (n - 1)] = k;
        }
    free(sub->key);
    sub->key = more;
    sub->key_buckets = n;
    return 0;
}

static struct hf__sub_key *add_key(struct hf__sub *sub, const hf_rowkey *key)
{
    if (sub->n_keys >= sub->key_buckets && grow_keys(sub)) return NULL;
    struct hf__sub_key *k = calloc(1, sub->key_size ? sub->key_size : sizeof *k);
    if (k) k->text = malloc((size_t)key->len + 1);
    if (!k || !k->text) {
        free(k);
        return NULL;
    }
    memcpy(k->text, key->text, key->len);
    k->text[key->len] = 0;
    k->len = key->len;
    k->hash = key->hash;
    struct hf__sub_key **at = &sub->key[k->hash & (sub->key_buckets - 1)];
    k->chain = *at;
    *at = k;
    sub->n_keys++;
    sub->n_apart++; /* the key is wanted from now on, and has no channel yet */
    return k;
}

static void leave_idle(struct hf__sub *sub, struct hf__sub_key *k)
{
    if (!k->idle_prev) return;
    *k->idle_prev = k->idle_next;
    if (k->idle_next)
        k->idle_next->idle_prev = k->idle_prev;
    else
        sub->idle_end = k->idle_prev;
    k->idle_prev = NULL;
    sub->n_idle--;
}

static void free_key(const struct hf__sub *sub, struct hf__sub_key *k)
{
    if (sub->forget) sub->forget(k);
    free(k->text);
    free(k->payload);
    free(k);
}

/* Removes a key that no wait wants. */
static void drop_key(struct hf__sub *sub, struct hf__sub_key *k)
{
    struct hf__sub_key **at = &sub->key[k->hash & (sub->key_buckets - 1)];
    while (*at != k) at = &(*at)->chain;
    *at = k->chain;
    sub->n_keys--;
    leave_idle(sub, k);
    if (k->at) leave_channel(sub, k->at);
    free_key(sub, k);
}

void hf__sub_unwant(struct hf__sub *sub, struct hf__sub_key *k)
{
    if (k->idle_prev) return;
    sub->n_apart -= !k->at;
    if (!sub->idle) sub->idle_end = &sub->idle;
    k->idle_next = NULL;
    k->idle_prev = sub->idle_end;
    *sub->idle_end = k;
    sub->idle_end = &k->idle_next;
    sub->n_idle++;
    size_t wanted = sub->n_keys - sub->n_idle;
    for (struct hf__sub_key *first; sub->n_idle > wanted + SPARE_KEYS;) {
        first = sub->idle;
        if (first->has_event || first->pinned) break; /* another list still has the key */
        drop_key(sub, first);
    }
}

void hf__sub_unsubscribe(struct hf__sub *sub, const hf_rowkey *key)
{
    pthread_mutex_lock(&sub->mu);
    struct hf__sub_key *k = hf__sub_find(sub, key->text, key->len, key->hash);
    if (k) hf__sub_unwant(sub, k);
    pthread_mutex_unlock(&sub->mu);
}

/* Moves a key to another channel. The new channel is taken first, because the old one may be
   dropped. */
static void move_to(struct hf__sub *sub, struct hf__sub_key *k, struct hf__sub_channel *c)
{
    if (hf__sub_is_wanted(k)) sub->n_apart -= !k->at;
    if (k->at) leave_channel(sub, k->at);
    k->at = c;
    leave_idle(sub, k);
    sub->n_apart += !c;
}

struct hf__sub_key *hf__sub_want(struct hf__sub *sub, const hf_rowkey *key, const char *name,
                                 size_t len, int *ret_same)
{
    const uint8_t *who = key->who;
    struct hf__sub_key *k = hf__sub_find(sub, key->text, key->len, key->hash);
    int known = k != NULL;
    if (!k) k = add_key(sub, key);
    if (!k) return NULL;
    struct hf__sub_channel *c = name ? use_channel(sub, name, len) : NULL;
    if (name && !c) {
        hf__sub_unwant(sub, k);
        return NULL;
    }
    if (ret_same)
        *ret_same = known && hf__sub_is_wanted(k) && k->named == (who != NULL) &&
                    (!who || !memcmp(k->who, who, sizeof k->who));
    move_to(sub, k, c);
    k->in_line = who && key->in_line;
    k->named = who != NULL;
    if (who) memcpy(k->who, who, sizeof k->who);
    return k;
}

/* ---- events ---- */

void hf__sub_put_event(struct hf__sub *sub, struct hf__sub_key *k)
{
    if (k->has_event) return;
    if (!sub->event) sub->event_end = &sub->event;
    k->has_event = 1;
    k->event_next = NULL;
    *sub->event_end = k;
    sub->event_end = &k->event_next;
}

int hf__sub_next_event(struct hf__sub *sub, hf_key_event *ret)
{
    pthread_mutex_lock(&sub->mu);
    struct hf__sub_key *k = sub->any_event ? NULL : sub->event;
    int is = sub->any_event || k;
    *ret = (hf_key_event){0, 0};
    sub->any_event = 0;
    if (k) {
        sub->event = k->event_next;
        k->has_event = 0;
        *ret = (hf_key_event){k->hash, UINT64_MAX};
    }
    pthread_mutex_unlock(&sub->mu);
    return is;
}

void hf__sub_put_payload(struct hf__sub_key *k, const char *payload, size_t len, size_t most)
{
    k->payload_len = 0;
    char *to = len && len <= most ? realloc(k->payload, len) : NULL;
    if (!to) return;
    k->payload = to;
    memcpy(k->payload, payload, len);
    k->payload_len = len;
}

void hf__sub_disconnected(struct hf__sub *sub)
{
    while (sub->spare) {
        struct hf__sub_channel *c = sub->spare;
        leave_spare(sub, c);
        change(sub, c);
    }
    for (size_t i = 0; i < sub->key_buckets; i++)
        for (struct hf__sub_key *k = sub->key[i]; k; k = k->chain) k->payload_len = 0;
    for (size_t i = 0; i < sub->channel_buckets; i++)
        for (struct hf__sub_channel *c = sub->channel[i]; c; c = c->chain) {
            c->subscribed = 0;
            change(sub, c);
        }
}

void hf__sub_open(struct hf__sub *sub, size_t key_size, void (*forget)(struct hf__sub_key *k))
{
    memset(sub, 0, sizeof *sub);
    sub->key_size = key_size;
    sub->forget = forget;
    pthread_mutex_init(&sub->mu, NULL);
}

void hf__sub_free(struct hf__sub *sub)
{
    for (size_t i = 0; i < sub->key_buckets; i++)
        for (struct hf__sub_key *k = sub->key[i], *next; k; k = next) {
            next = k->chain;
            free_key(sub, k);
        }
    for (size_t i = 0; i < sub->channel_buckets; i++)
        for (struct hf__sub_channel *c = sub->channel[i], *next; c; c = next) {
            next = c->chain;
            hf__sub_channel_free(c);
        }
    free(sub->key);
    free(sub->channel);
    pthread_mutex_destroy(&sub->mu);
    memset(sub, 0, sizeof *sub);
}
