/*
 * ear.c - redis: how who waits is woken. One connection per handle, subscribed to the handle's own
 * address, where those who stand in line are told of what concerns them, and of which key; and to
 * the channels of those keys that somebody waits for without standing in line. So of a thousand in
 * line two are woken by a handover, whose first can be on its way at once, and not all of them.
 *
 * A subscription outlives the wait for a while: who waits for a key again and again needn't ask for
 * it each time.
 */
#include "store.h"

#include "os.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEAF_MS = 5000, SPARE_CHANNELS = 64 };

static void forget_channel(struct hf__rd_channel *c)
{
    free(c->name);
    free(c->said);
}

void hf__rd_forget_channels(hf_store *st)
{
    pthread_mutex_lock(&st->said_mu);
    for (size_t i = 0; i < st->n_channels; i++) forget_channel(&st->channel[i]);
    free(st->channel);
    st->channel = NULL;
    st->n_channels = 0;
    hf__addresses_clear(&st->addresses);
    pthread_mutex_unlock(&st->said_mu);
}

static int deaf(hf_store *st, const char *why, hf_error *err)
{
    char text[HF_RD_WHY];
    snprintf(text, sizeof text, "%s", why);
    hf__rd_disconnect(&st->ear);
    hf__rd_forget_channels(st);
    st->deaf_until_us = hf__local_us() + DEAF_MS * INT64_C(1000);
    return hf_fail(err, HF_UNAVAILABLE, 0, HF_RD ": listen: %s", text);
}

/* The name of a key's own channel, and its length. */
static size_t channel_of(const hf_store *st, const char *key, size_t len, char to[HF_RD_NAME_CAP])
{
    size_t before = strlen(st->how.prefix), behind = strlen(st->how.channels);
    memcpy(to, st->how.prefix, before);
    memcpy(to + before, key, len);
    memcpy(to + before + len, st->how.channels, behind);
    return before + len + behind;
}

/* They are asked for in the order in which they are kept, mostly. */
static struct hf__rd_channel *find(hf_store *st, const char *name, size_t len)
{
    for (size_t n = 0; n < st->n_channels; n++) {
        size_t i = (st->found + n) % st->n_channels;
        if (st->channel[i].len != len || memcmp(st->channel[i].name, name, len) != 0) continue;
        st->found = i + 1;
        return &st->channel[i];
    }
    return NULL;
}

size_t hf__rd_word(const hf_row *row, const struct hf__rd_args *a, char to[HF_RD_WORD_CAP])
{
    const hf_party *p = &row->party[0];
    size_t len = HF_COLS; /* with what stands between the values */
    char id[33];
    for (int i = a->n - HF_COLS; i < a->n; i++) len += a->len[i];
    to[0] = 0;
    if (len <= HF_RD_SAID_MOST) return (size_t)snprintf(to, HF_RD_WORD_CAP, "*");
    if (row->n_holders != 1 || !(p->flags & HF_PARTY_UNCLAIMED)) return 0;
    hf__put_id(id, p->id);
    return (size_t)snprintf(to, HF_RD_WORD_CAP, "%s %llu %lld %lld %u", id,
                            (unsigned long long)p->token, (long long)p->since_us,
                            (long long)p->expires_us, p->flags);
}

/* Another's words, or none. Only who has been handed the key. */
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

/* The values of the row, each with a NUL behind it. */
static int read_whole(const char *said, size_t len, hf_row *row)
{
    const char *text[HF_COLS], *at = said, *end = said + len;
    char why[HF_RD_WHY];
    size_t is[HF_COLS];
    for (int i = 0; i < HF_COLS; i++) {
        if (at > end) return 0;
        text[i] = at;
        is[i] = strlen(at);
        at += is[i] + 1;
    }
    if (at != end + 1) return 0;
    return !hf__rd_row_of(text, is, row, why) && row->rev;
}

int hf__rd_read_word(const char *said, size_t len, hf_row *row)
{
    hf_row_clear(row);
    if (len && (read_whole(said, len, row) || read_handed(said, len, row))) return 1;
    hf_row_clear(row);
    return 0;
}

int hf__rd_told(hf_store *st, const hf_rowkey *key, hf_row *row)
{
    char name[HF_RD_NAME_CAP], said[HF_RD_SAID_MOST + 1];
    size_t n_name = channel_of(st, key->text, key->len, name), len = 0;
    pthread_mutex_lock(&st->said_mu);
    const struct hf__rd_channel *c = find(st, name, n_name);
    /* Who wrote it needn't have waited for the replicas that this one waits for. */
    if (c && !st->how.wait) len = c->said_len;
    if (len) memcpy(said, c->said, len);
    pthread_mutex_unlock(&st->said_mu);
    said[len] = 0;
    return hf__rd_read_word(said, len, row);
}

uint64_t hf__rd_rang(hf_store *st, const hf_rowkey *key)
{
    char name[HF_RD_NAME_CAP];
    size_t n_name = channel_of(st, key->text, key->len, name);
    pthread_mutex_lock(&st->said_mu);
    const struct hf__rd_channel *c = find(st, name, n_name);
    uint64_t rang = c && c->rang > st->all_rang ? c->rang : st->all_rang;
    pthread_mutex_unlock(&st->said_mu);
    return rang;
}

/* What can't be kept says nothing. */
static void keep_word(struct hf__rd_channel *c, const char *said, size_t len)
{
    c->said_len = 0;
    if (len > HF_RD_SAID_MOST) return;
    if (!c->said) c->said = malloc(HF_RD_SAID_MOST);
    if (!c->said) return;
    memcpy(c->said, said, len);
    c->said_len = len;
}

/* Of which key a message is, by its channel or by its first line, and what it says. NULL: of none
   that is known here. */
static struct hf__rd_channel *told_of(hf_store *st, const redisReply *to, const redisReply *message,
                                      const char **ret_said, size_t *ret_len)
{
    char name[HF_RD_NAME_CAP];
    size_t before = strlen(st->how.prefix);
    int is_text = message->type == REDIS_REPLY_STRING;
    *ret_said = is_text ? message->str : "";
    *ret_len = is_text ? message->len : 0;
    if (to->len <= before || to->str[before] != '\t') return find(st, to->str, to->len);
    const char *line = *ret_len ? memchr(*ret_said, '\n', *ret_len) : NULL;
    size_t len = line ? (size_t)(line - *ret_said) : HF_KEY_CAP;
    if (len >= HF_KEY_CAP) return NULL;
    size_t n_name = channel_of(st, *ret_said, len, name);
    *ret_said += len + 1;
    *ret_len -= len + 1;
    return find(st, name, n_name);
}

/* 1: somebody here wants to know of it; 2: a subscription was confirmed; 0: neither. */
static int meaning(hf_store *st, const redisReply *r)
{
    if (r->type != REDIS_REPLY_ARRAY || r->elements < 3) return 0;
    const redisReply *what = r->element[0], *name = r->element[1];
    if (what->type != REDIS_REPLY_STRING || name->type != REDIS_REPLY_STRING) return 0;
    if (!strcmp(what->str, "subscribe")) return 2;
    if (strcmp(what->str, "message")) return 0;
    const char *said;
    size_t len;
    pthread_mutex_lock(&st->said_mu);
    struct hf__rd_channel *c = told_of(st, name, r->element[2], &said, &len);
    if (c) keep_word(c, said, len);
    int wanted = c && c->wanted;
    if (wanted) c->rang = st->heard + 1;
    pthread_mutex_unlock(&st->said_mu);
    return wanted;
}

/* Takes in what has come; with `confirmed` waits for so many confirmations. 0: broken, or refused.
 */
static int hear(hf_store *st, size_t confirmed, int64_t until_us)
{
    for (;;) {
        int broken;
        redisReply *r = hf__rd_next(&st->ear, confirmed ? until_us : 0, &broken);
        if (!r) return !broken && !confirmed;
        int refused = r->type == REDIS_REPLY_ERROR, what = meaning(st, r);
        if (refused) hf__rd_words(r->str, st->ear.why);
        freeReplyObject(r);
        if (refused) return 0;
        st->heard += what == 1;
        confirmed -= what == 2 && confirmed;
    }
}

/* SUBSCRIBE, or UNSUBSCRIBE. */
static void put_call(struct hf__rd_batch *batch, const char *what, const char *name, size_t len)
{
    const char *word[] = {what, name};
    size_t lens[] = {strlen(what), len};
    hf__rd_put(batch, 2, word, lens);
}

/* At an address. */
static void put_address(const hf_store *st, struct hf__rd_batch *batch, const char *what,
                        const struct hf__address *a)
{
    char name[HF_RD_PREFIX_CAP + HF_ADDRESS + HF_RD_DB_CAP + 2];
    int len = snprintf(name, sizeof name, "%s\t%s%s", st->how.prefix, a->text, st->how.channels);
    put_call(batch, what, name, (size_t)len);
}

/* NULL: out of memory. */
static struct hf__rd_channel *add_channel(hf_store *st, const char *name, size_t len)
{
    struct hf__rd_channel *more = realloc(st->channel, (st->n_channels + 1) * sizeof *st->channel);
    if (!more) return NULL;
    st->channel = more;
    struct hf__rd_channel c = {.name = malloc(len), .len = len};
    if (!c.name) return NULL;
    memcpy(c.name, name, len);
    st->channel[st->n_channels] = c;
    return &st->channel[st->n_channels++];
}

static void want_channel(struct hf__rd_channel *c, int subscribed, struct hf__rd_batch *batch,
                         size_t *ret_new)
{
    c->wanted = 1;
    if (c->subscribed == subscribed) return;
    put_call(batch, subscribed ? "SUBSCRIBE" : "UNSUBSCRIBE", c->name, c->len);
    c->subscribed = subscribed;
    *ret_new += (size_t)subscribed;
}

static void drop_unwanted(hf_store *st, struct hf__rd_batch *batch)
{
    size_t kept = 0;
    for (size_t i = 0; i < st->n_channels; i++) {
        struct hf__rd_channel *c = &st->channel[i];
        if (c->wanted) {
            st->channel[kept++] = *c;
            continue;
        }
        if (c->subscribed) put_call(batch, "UNSUBSCRIBE", c->name, c->len);
        forget_channel(c);
    }
    st->n_channels = kept;
}

/* Subscribes at what is wanted, and no longer at what isn't; adds to *ret_new. */
static void want_addresses(hf_store *st, struct hf__rd_batch *batch, size_t *ret_new)
{
    for (size_t i = 0; i < st->addresses.n; i++) {
        struct hf__address *a = &st->addresses.at[i];
        if (!a->wanted || a->listened) continue;
        put_address(st, batch, "SUBSCRIBE", a);
        a->listened = 1;
        ++*ret_new;
    }
    size_t left = hf__addresses_end(&st->addresses);
    for (size_t i = 0; i < left; i++)
        put_address(st, batch, "UNSUBSCRIBE", &st->addresses.at[st->addresses.n + i]);
}

/* Marks what is wanted, and subscribes to what is new; *ret_new of them. */
static int want(hf_store *st, const hf_rowkey *const *keys, size_t n, struct hf__rd_batch *batch,
                size_t *ret_new)
{
    char name[HF_RD_NAME_CAP];
    for (size_t i = 0; i < st->n_channels; i++) st->channel[i].wanted = 0;
    hf__addresses_begin(&st->addresses);
    for (size_t i = 0; i < n; i++) {
        int addressed = keys[i]->in_line && keys[i]->who;
        size_t len = channel_of(st, keys[i]->text, keys[i]->len, name);
        struct hf__rd_channel *c = find(st, name, len);
        if (!c) c = add_channel(st, name, len);
        if (!c || (addressed && hf__address_want(&st->addresses, keys[i]->who))) return HF_NOMEM;
        want_channel(c, !addressed, batch, ret_new);
    }
    if (st->n_channels > 2 * n + SPARE_CHANNELS) drop_unwanted(st, batch);
    want_addresses(st, batch, ret_new);
    return batch->failed ? HF_NOMEM : 0;
}

int hf__rd_listen(hf_store *st, uint8_t bell, const hf_rowkey *const *keys, size_t n, hf_ear *ret,
                  hf_error *err)
{
    (void)bell;
    struct hf__rd_batch batch = {NULL, 0, 0, 0, 0};
    size_t fresh = 0;
    /* What came for the keys of the last time counts for them. */
    if (st->ear.fd >= 0 && !hear(st, 0, 0)) deaf(st, st->ear.why, NULL);
    if (st->ear.fd < 0) {
        if (hf__local_us() < st->deaf_until_us)
            return hf_fail(err, HF_UNAVAILABLE, 0, HF_RD ": listen: not heard lately");
        hf__rd_forget_channels(st);
        int64_t until_us = hf__local_us() + st->how.io_timeout_ms * 1000;
        int rc = hf__rd_connect(&st->how, &st->ear, 0, until_us, err);
        if (rc) {
            deaf(st, "", NULL);
            return rc;
        }
        st->all_rang = ++st->heard; /* what came before isn't known */
    }
    pthread_mutex_lock(&st->said_mu);
    int no_memory = want(st, keys, n, &batch, &fresh);
    pthread_mutex_unlock(&st->said_mu);
    if (no_memory) {
        hf__rd_batch_free(&batch);
        return deaf(st, "out of memory", err);
    }
    if (batch.n) {
        int64_t until_us = hf__local_us() + st->how.io_timeout_ms * 1000;
        if (hf__rd_send(&st->how, &st->ear, &batch) || (fresh && !hear(st, fresh, until_us)))
            return deaf(st, st->ear.why, err);
    }
    ret->heard[0] = st->heard;
    ret->heard[1] = 0;
    return 0;
}

int hf__rd_watch(hf_store *st, uint8_t bell, const hf_ear *ear, int64_t until_us, hf_error *err)
{
    (void)bell;
    while (st->heard == ear->heard[0]) {
        struct pollfd fds[2] = {{st->ear.fd, POLLIN, 0}, {st->wake_fd, POLLIN, 0}};
        int64_t left = until_us - hf__local_us();
        uint64_t n;
        if (left <= 0) return 0;
        left = left / 1000 + 1;
        if (poll(fds, 2, left > 60000 ? 60000 : (int)left) < 0) {
            if (errno == EINTR) continue;
            return deaf(st, strerror(errno), err);
        }
        if (fds[1].revents) {
            if (read(st->wake_fd, &n, sizeof n) < 0 && errno != EAGAIN)
                return deaf(st, strerror(errno), err);
            return 0;
        }
        if (fds[0].revents && !hear(st, 0, 0)) return deaf(st, st->ear.why, err);
    }
    return 0;
}

void hf__rd_interrupt(hf_store *st, uint8_t bell)
{
    uint64_t one = 1;
    (void)bell;
    ssize_t n = write(st->wake_fd, &one, sizeof one);
    (void)n; /* full means that it is awake already */
}
