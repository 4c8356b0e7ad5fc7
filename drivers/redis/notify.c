/*
 * notify.c - redis: notifications. A handle has one connection for them, with two kinds of
 * subscriptions. For requests in queues it subscribes to the channel of the handle's address: a
 * write sends a message there only if it concerns one of these requests; the message names the key.
 * So a handover notifies two of a thousand queued requests, not all. For a key with a request
 * outside the queue the handle subscribes to the key's own channel.
 *
 * A subscription is kept for a while after its wait, so that a handle that waits for one key again
 * and again needn't subscribe each time.
 */
#include "store.h"

#include "kit/await.h"
#include "kit/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { RETRY_MS = 5000 };

static int disconnected(hf_store *st, const char *why, hf_error *err)
{
    char text[HF_KIT_WHY];
    snprintf(text, sizeof text, "%s", why);
    hf__rd_disconnect(&st->listener);
    pthread_mutex_lock(&st->sub.mu);
    hf__sub_disconnected(&st->sub);
    pthread_mutex_unlock(&st->sub.mu);
    st->retry_at_us = hf__local_us() + RETRY_MS * INT64_C(1000);
    return hf_fail(err, HF_UNAVAILABLE, 0,
                   HF_RD ": subscribe to notifications: %s; waiters poll meanwhile", text);
}

/* Writes the name of a key's own channel. Returns its length. */
static size_t channel_of(const hf_store *st, const char *key, size_t len, char to[HF_RD_NAME_CAP])
{
    size_t before = strlen(st->how.prefix), behind = strlen(st->how.channels);
    memcpy(to, st->how.prefix, before);
    memcpy(to + before, key, len);
    memcpy(to + before + len, st->how.channels, behind);
    return before + len + behind;
}

size_t hf__rd_word(const hf_row *row, const struct hf__rd_args *a, char to[HF_RD_WORD_CAP])
{
    const hf_party *p = &row->party[0];
    size_t len = HF_FIELDS; /* the length of a payload with the separators between its values */
    char id[33];
    for (int i = a->n - HF_FIELDS; i < a->n; i++) len += a->len[i];
    to[0] = 0;
    if (len <= HF_RD_SAID_MOST) return (size_t)snprintf(to, HF_RD_WORD_CAP, "*");
    if (row->n_holders != 1 || !(p->flags & HF_PARTY_UNCLAIMED)) return 0;
    hf__put_id(id, p->id);
    return (size_t)snprintf(to, HF_RD_WORD_CAP, "%s %llu %lld %lld %u", id,
                            (unsigned long long)p->token, (long long)p->since_us,
                            (long long)p->expires_us, p->flags);
}

/* Reads a payload that names only the holder: *row gets rev 0 and that holder. Returns 0 if it
   isn't such a payload. */
static int read_handed(const char *said, size_t len, hf_row *row)
{
    unsigned long long n[4];
    hf_party *p = &row->party[0];
    if (len < 34 || said[32] != ' ' || !hf__read_id(said, 32, p->id) ||
        sscanf(said + 33, "%llu %llu %llu %llu", &n[0], &n[1], &n[2], &n[3]) != 4)
        return 0;
    if (!n[0] || n[0] > INT64_MAX || n[1] > INT64_MAX || n[2] > INT64_MAX || n[3] > UINT8_MAX)
        return 0;
    p->token = row->token = n[0];
    p->since_us = (int64_t)n[1];
    p->expires_us = (int64_t)n[2];
    p->flags = (uint8_t)n[3];
    row->n_holders = 1;
    return 1;
}

/* Reads a payload that is a whole row: the values of its fields, each with a NUL behind it. Returns
   0 if it isn't such a payload. */
static int read_whole(const char *said, size_t len, hf_row *row)
{
    const char *text[HF_FIELDS], *at = said, *end = said + len;
    size_t is[HF_FIELDS];
    for (int i = 0; i < HF_FIELDS; i++) {
        if (at > end) return 0;
        text[i] = at;
        is[i] = strlen(at);
        at += is[i] + 1;
    }
    if (at != end + 1) return 0;
    return !hf__rd_row_of(text, is, row, NULL, NULL) && row->rev;
}

int hf__rd_read_word(const char *said, size_t len, hf_row *row)
{
    hf_row_clear(row);
    if (len && (read_whole(said, len, row) || read_handed(said, len, row))) return 1;
    hf_row_clear(row);
    return 0;
}

static int payload(hf_store *st, const hf_rowkey *key, hf_row *row)
{
    char said[HF_RD_SAID_MOST + 1];
    size_t len = 0;
    pthread_mutex_lock(&st->sub.mu);
    const struct hf__sub_key *k = hf__sub_find(&st->sub, key->text, key->len, key->hash);
    /* With ?wait= the payload isn't used: the write may not have reached as many replicas as this
       handle requires. */
    if (k && !st->how.wait) len = k->payload_len;
    if (len) memcpy(said, k->payload, len);
    pthread_mutex_unlock(&st->sub.mu);
    said[len] = 0;
    return hf__rd_read_word(said, len, row);
}

/* Finds the key whose own channel has that name. Returns the key's length; 0: it isn't such a
   channel. */
static size_t key_in(const hf_store *st, const redisReply *name, const char **ret_key)
{
    size_t before = strlen(st->how.prefix), behind = strlen(st->how.channels);
    if (name->len <= before + behind || memcmp(name->str, st->how.prefix, before) != 0 ||
        memcmp(name->str + name->len - behind, st->how.channels, behind) != 0)
        return 0;
    *ret_key = name->str + before;
    return name->len - before - behind;
}

/* Finds the subscription to the key that a message is about. The message's channel names the key;
   if it is the channel of an address, the first line of the message names the key. *ret_said: the
   rest of the message. NULL: there is no subscription to that key. */
static struct hf__sub_key *told_of(hf_store *st, const redisReply *to, const redisReply *message,
                                   const char **ret_said, size_t *ret_len)
{
    const char *key = NULL;
    size_t before = strlen(st->how.prefix), len = key_in(st, to, &key);
    int is_text = message->type == REDIS_REPLY_STRING;
    *ret_said = is_text ? message->str : "";
    *ret_len = is_text ? message->len : 0;
    if (to->len > before && to->str[before] == '\t') {
        const char *line = *ret_len ? memchr(*ret_said, '\n', *ret_len) : NULL;
        len = line ? (size_t)(line - *ret_said) : 0;
        key = *ret_said;
        *ret_said += len + (len > 0);
        *ret_len -= len + (len > 0);
    }
    if (!len || len >= HF_KEY_CAP) return NULL;
    return hf__sub_find(&st->sub, key, len, hf_key_hash(key, len));
}

/* Takes in a message. Returns 1: it is about a key with a subscription; 2: it confirms a
   subscription; 0: neither. */
static int meaning(hf_store *st, const redisReply *r)
{
    if (r->type != REDIS_REPLY_ARRAY || r->elements < 3) return 0;
    const redisReply *what = r->element[0], *name = r->element[1];
    if (what->type != REDIS_REPLY_STRING || name->type != REDIS_REPLY_STRING) return 0;
    if (!strcmp(what->str, "subscribe")) return 2;
    if (strcmp(what->str, "message")) return 0;
    const char *said;
    size_t len;
    pthread_mutex_lock(&st->sub.mu);
    struct hf__sub_key *k = told_of(st, name, r->element[2], &said, &len);
    if (k) hf__sub_put_payload(k, said, len, HF_RD_SAID_MOST);
    int wanted = k && hf__sub_is_wanted(k);
    if (wanted) hf__sub_put_event(&st->sub, k);
    pthread_mutex_unlock(&st->sub.mu);
    return wanted;
}

/* Takes in what has come; with `confirmed` it waits for that number of confirmations. Returns 0 if
   the connection broke, or the server refused. */
static int receive(hf_store *st, size_t confirmed, int64_t until_us)
{
    for (;;) {
        int broken;
        redisReply *r = hf__rd_next(&st->listener, confirmed ? until_us : 0, &broken);
        if (!r) return !broken && !confirmed;
        int refused = r->type == REDIS_REPLY_ERROR, what = meaning(st, r);
        if (refused) hf__rd_words(r->str, st->listener.why);
        freeReplyObject(r);
        if (refused) return 0;
        st->events += what == 1;
        confirmed -= what == 2 && confirmed;
    }
}

/* Adds SUBSCRIBE or UNSUBSCRIBE. */
static void put_call(struct hf__rd_batch *batch, const char *what, const char *name, size_t len)
{
    const char *word[] = {what, name};
    size_t lens[] = {strlen(what), len};
    hf__rd_put(batch, 2, word, lens);
}

/* Notes that the key's channel, or for a request in the queue the channel of its address, is to be
   subscribed to; for the next flush. */
static int want(hf_store *st, const hf_rowkey *key)
{
    char name[HF_RD_NAME_CAP], address[HF_ADDRESS + 1];
    size_t len;
    if (key->in_line && key->who) {
        hf__put_address(address, key->who);
        len = (size_t)snprintf(name, sizeof name, "%s\t%s%s", st->how.prefix, address,
                               st->how.channels);
    } else {
        len = channel_of(st, key->text, key->len, name);
    }
    return hf__sub_want(&st->sub, key, name, len, NULL) ? 0 : HF_NOMEM;
}

static int subscribe(hf_store *st, const hf_rowkey *key)
{
    pthread_mutex_lock(&st->sub.mu);
    int rc = want(st, key);
    pthread_mutex_unlock(&st->sub.mu);
    return rc;
}

static void unsubscribe(hf_store *st, const hf_rowkey *key) { hf__sub_unsubscribe(&st->sub, key); }

static int next_event(hf_store *st, hf_key_event *ret) { return hf__sub_next_event(&st->sub, ret); }

/* Adds commands for the changed subscriptions to the batch. *ret_new: how many subscribe. */
static int put_changes(hf_store *st, struct hf__rd_batch *batch, size_t *ret_new)
{
    for (struct hf__sub_channel *c; (c = hf__sub_next_change(&st->sub));) {
        int subscribe = c->users != 0;
        if (c->subscribed != subscribe)
            put_call(batch, subscribe ? "SUBSCRIBE" : "UNSUBSCRIBE", c->name, c->len);
        *ret_new += subscribe && !c->subscribed;
        c->subscribed = (uint8_t)subscribe;
        if (!subscribe) hf__sub_channel_free(c);
    }
    return batch->failed ? HF_NOMEM : 0;
}

static int flush(hf_store *st, hf_event_count *ret, hf_error *err)
{
    struct hf__rd_batch batch = {NULL, 0, 0, 0, 0};
    size_t fresh = 0;
    /* Takes in the messages that have come so far, before the subscriptions change. */
    if (st->listener.fd >= 0 && !receive(st, 0, 0)) disconnected(st, st->listener.why, NULL);
    int is_new = st->listener.fd < 0;
    if (is_new) {
        if (hf__local_us() < st->retry_at_us)
            return hf_fail(err, HF_UNAVAILABLE, 0,
                           HF_RD ": subscribe to notifications: not tried, because it failed "
                                 "less than 5 s ago; waiters poll meanwhile");
        int64_t until_us = hf__local_us() + st->how.io_timeout_ms * 1000;
        int rc = hf__rd_connect(&st->how, &st->listener, 0, until_us, err);
        if (rc) {
            disconnected(st, "", NULL);
            return rc;
        }
        st->events++;
    }
    pthread_mutex_lock(&st->sub.mu);
    if (is_new) hf__sub_put_any(&st->sub); /* what happened before is unknown: any key may differ */
    int no_memory = put_changes(st, &batch, &fresh);
    pthread_mutex_unlock(&st->sub.mu);
    if (no_memory) {
        hf__rd_batch_free(&batch);
        return disconnected(st, "out of memory", err);
    }
    if (batch.n) {
        int64_t until_us = hf__local_us() + st->how.io_timeout_ms * 1000;
        if (hf__rd_send(&st->how, &st->listener, &batch) ||
            (fresh && !receive(st, fresh, until_us)))
            return disconnected(st, st->listener.why, err);
    }
    ret->n[0] = st->events;
    ret->n[1] = 0;
    return 0;
}

static int sleep_until(hf_store *st, const hf_event_count *since, int64_t until_us, hf_error *err)
{
    while (st->events == since->n[0]) {
        struct pollfd fds[2] = {{st->listener.fd, POLLIN, 0}, {st->wake_fd, POLLIN, 0}};
        int ready = hf__wait_until(fds, 2, until_us);
        if (ready < 0) return disconnected(st, strerror(errno), err);
        if (!ready || (fds[1].revents && hf__woken(st->wake_fd))) return 0;
        if (fds[0].revents && !receive(st, 0, 0)) return disconnected(st, st->listener.why, err);
    }
    return 0;
}

static void interrupt(hf_store *st) { hf__wake(st->wake_fd); }

const hf_notify_ops hf__rd_notify = {.subscribe = subscribe,
                                     .unsubscribe = unsubscribe,
                                     .flush = flush,
                                     .sleep = sleep_until,
                                     .next_event = next_event,
                                     .payload = payload,
                                     .interrupt = interrupt};
