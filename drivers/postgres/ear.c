/*
 * ear.c - see ear.h. Who stands in line is told at its address, on a channel of its handle's; for
 * the others all keys of a table share one channel.
 *
 * A notification says of which key it is, and who has that alone now. Nobody believes it: every
 * role of the database may notify, and listen, whatever it may do with the table. It makes the one
 * whom it names look, who reads the row by the connection on which it came; the others needn't, for
 * now. What isn't so costs one a read, or the others a delay until they look of themselves.
 *
 * What is listened for outlives the wait for a while: who holds the key then hears of who comes to
 * wait behind.
 */
#include "ear.h"

#include "kit/text.h"
#include "os.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { DEAF_MS = 5000, SPARE_KEYS = 64, OVER = 1 };

enum wanted { BEFORE = 1, NOW }; /* while it is found out */
enum says { NOTHING, THE_ROW, ANOTHER };

struct hf__pg_heard {
    uint64_t hash;
    char *text;
    uint32_t len;
    uint8_t named, who[16]; /* the request that waits for it, or did, if it is named */
    uint8_t wanted, unread;
    uint8_t shown; /* THE_ROW was, since it was read */
    size_t next;   /* one more than the number of the next one in its bucket; 0: none */
    enum says says;
    uint64_t rang;       /* `heard`, as it was heard of last */
    hf_row *row;         /* THE_ROW */
    uint8_t another[16]; /* ANOTHER */
    int64_t expires_us;
};

/* ---- what was said ---- */

void hf__pg_word(const hf_rowkey *key, const hf_row *row, char to[HF_PG_WORD_CAP])
{
    char id[33];
    int n = snprintf(to, HF_PG_WORD_CAP, "%llu", (unsigned long long)key->hash);
    if (!row || row->n_holders != 1) return;
    hf__put_id(id, row->party[0].id);
    snprintf(to + n, HF_PG_WORD_CAP - (size_t)n, " %s %lld", id,
             (long long)row->party[0].expires_us);
}

static void forget(struct hf__pg_ear *ear, struct hf__pg_heard *k)
{
    ear->n_unread -= k->unread;
    k->unread = 0;
    k->says = NOTHING;
    if (k->row) hf_row_clear(k->row);
    free(k->row);
    k->row = NULL;
}

/* Under the mutex, as are the next ones. */
static void drop(struct hf__pg_ear *ear, struct hf__pg_heard *k)
{
    forget(ear, k);
    free(k->text);
}

static void drop_all(struct hf__pg_ear *ear)
{
    for (size_t i = 0; i < ear->n_keys; i++) drop(ear, &ear->key[i]);
    free(ear->key);
    free(ear->bucket);
    ear->key = NULL;
    ear->bucket = NULL;
    ear->n_keys = ear->n_buckets = 0;
}

static void put_into_bucket(struct hf__pg_ear *ear, size_t i)
{
    size_t *bucket = &ear->bucket[ear->key[i].hash % ear->n_buckets];
    ear->key[i].next = *bucket;
    *bucket = i + 1;
}

static void fill_buckets(struct hf__pg_ear *ear)
{
    memset(ear->bucket, 0, ear->n_buckets * sizeof *ear->bucket);
    for (size_t i = 0; i < ear->n_keys; i++) put_into_bucket(ear, i);
}

/* The first key of a bucket, or the one behind `k`. */
static struct hf__pg_heard *in_bucket(struct hf__pg_ear *ear, uint64_t hash,
                                      const struct hf__pg_heard *k)
{
    size_t next = k ? k->next : ear->n_buckets ? ear->bucket[hash % ear->n_buckets] : 0;
    return next ? &ear->key[next - 1] : NULL;
}

static int is_of(const struct hf__pg_heard *k, const hf_rowkey *key)
{
    return k->hash == key->hash && k->len == key->len && !memcmp(k->text, key->text, k->len);
}

static struct hf__pg_heard *find(struct hf__pg_ear *ear, const hf_rowkey *key)
{
    struct hf__pg_heard *k = NULL;
    while ((k = in_bucket(ear, key->hash, k)) && !is_of(k, key)) continue;
    return k;
}

/* What comes behind the hash. 0: nothing that can be read. */
static int read_holder(const char *said, uint8_t id[16], int64_t *ret_expires_us)
{
    char *end;
    if (*said != ' ' || strnlen(said, 35) < 35 || said[33] != ' ' || !hf__read_id(said + 1, 32, id))
        return 0;
    errno = 0;
    *ret_expires_us = strtoll(said + 34, &end, 10);
    return !errno && !*end && *ret_expires_us >= 0;
}

static void must_read(struct hf__pg_ear *ear, struct hf__pg_heard *k)
{
    ear->n_unread += !k->unread;
    k->unread = 1;
}

/* One word, of one of the keys. 1: somebody here waits for it, and is to look at what it said. */
static int take_in(struct hf__pg_ear *ear, struct hf__pg_heard *k, const char *holder)
{
    uint8_t id[16];
    int64_t expires_us;
    int known = k->named && read_holder(holder, id, &expires_us);
    if (known && memcmp(id, k->who, 16) != 0) {
        /* What has to be read is read all the same; and what was read isn't put aside for this
           before anybody has seen it, for it may say that he was handed the key. */
        if (k->unread) return 0;
        if (k->wanted && k->says == THE_ROW && !k->shown) {
            must_read(ear, k);
            return 0;
        }
        k->says = ANOTHER;
        memcpy(k->another, id, 16);
        k->expires_us = expires_us;
        if (k->wanted) k->rang = ear->heard + 1;
        return k->wanted != 0;
    }
    if (!known && !k->wanted) {
        forget(ear, k);
        return 0;
    }
    must_read(ear, k);
    return 0;
}

/* Takes in the notifications that were read. 0: the connection broke. */
static int take_in_all(struct hf__pg_ear *ear)
{
    PGnotify *note;
    while ((note = PQnotifies(ear->link.pg))) {
        char *end;
        uint64_t hash = strtoull(note->extra, &end, 10);
        pthread_mutex_lock(&ear->mu);
        struct hf__pg_heard *k = NULL;
        while ((k = in_bucket(ear, hash, k)))
            if (k->hash == hash) ear->heard += (uint64_t)take_in(ear, k, end);
        pthread_mutex_unlock(&ear->mu);
        PQfreemem(note);
    }
    return PQstatus(ear->link.pg) == CONNECTION_OK;
}

/* Those that have come. */
static int hear(struct hf__pg_ear *ear) { return PQconsumeInput(ear->link.pg) && take_in_all(ear); }

/* Reads a row that has changed. 0: the connection broke. */
static int read_one(struct hf__pg_ear *ear)
{
    struct hf__pg_heard *k = ear->key;
    while (!k->unread) k++;
    hf_rowkey key = {.text = k->text, .len = k->len, .hash = k->hash};
    hf_row *row = malloc(sizeof *row), *old;
    /* What comes while it is read is another change. */
    k->unread = 0;
    ear->n_unread--;
    if (row) hf_row_init(row);
    int rc = row ? ear->read(ear->st, &ear->link, &key, row) : HF_NOMEM;
    pthread_mutex_lock(&ear->mu);
    old = k->row;
    k->row = row;
    k->shown = 0;
    /* That nobody has it, or why it can't be read, is for who waits to find. */
    k->says = !rc && row->rev ? THE_ROW : NOTHING;
    if (k->wanted) k->rang = ++ear->heard;
    pthread_mutex_unlock(&ear->mu);
    if (old) hf_row_clear(old);
    free(old);
    return ear->link.pg != NULL;
}

int hf__pg_told(struct hf__pg_ear *ear, const hf_rowkey *key, hf_row *row)
{
    hf_row_clear(row);
    pthread_mutex_lock(&ear->mu);
    struct hf__pg_heard *k = find(ear, key);
    int is = k && k->says == THE_ROW && !hf_row_copy(row, k->row);
    if (is) k->shown = 1;
    if (k && k->says == ANOTHER) {
        memset(&row->party[0], 0, sizeof row->party[0]); /* no token: no grant to go by */
        memcpy(row->party[0].id, k->another, 16);
        row->party[0].expires_us = k->expires_us;
        row->n_holders = 1;
        is = 1;
    }
    pthread_mutex_unlock(&ear->mu);
    return is;
}

uint64_t hf__pg_rang(struct hf__pg_ear *ear, const hf_rowkey *key)
{
    pthread_mutex_lock(&ear->mu);
    const struct hf__pg_heard *k = find(ear, key);
    uint64_t rang = k && k->rang > ear->all_rang ? k->rang : ear->all_rang;
    pthread_mutex_unlock(&ear->mu);
    return rang;
}

/* ---- listening ---- */

int hf__pg_ear_open(struct hf__pg_ear *ear, hf_store *st, hf__pg_read *read_row)
{
    ear->st = st;
    ear->read = read_row;
    pthread_mutex_init(&ear->mu, NULL);
    ear->wake_fd = hf__fd_above(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    return ear->wake_fd < 0 ? errno : 0;
}

void hf__pg_ear_channel(struct hf__pg_ear *ear, const char *schema, const char *table)
{
    char whole[160];
    size_t n = (size_t)snprintf(whole, sizeof whole, "holdfast:%s.%s", schema, table);
    if (n >= sizeof ear->channel || strchr(whole, '"'))
        snprintf(ear->channel, sizeof ear->channel, "holdfast:%016llx",
                 (unsigned long long)hf_key_hash(whole, n));
    else
        memcpy(ear->channel, whole, n + 1);
}

void hf__pg_ear_close(struct hf__pg_ear *ear)
{
    hf__pg_disconnect(&ear->link);
    drop_all(ear);
    hf__addresses_clear(&ear->addresses);
    pthread_mutex_destroy(&ear->mu);
    if (ear->wake_fd >= 0) close(ear->wake_fd);
}

static void disconnect(struct hf__pg_ear *ear)
{
    hf__pg_disconnect(&ear->link);
    pthread_mutex_lock(&ear->mu);
    drop_all(ear); /* others may be lost from here on */
    pthread_mutex_unlock(&ear->mu);
    hf__addresses_clear(&ear->addresses);
    ear->hears_all = 0;
}

static int deaf(struct hf__pg_ear *ear, const char *why, hf_error *err)
{
    disconnect(ear);
    ear->deaf_until_us = hf__local_us() + DEAF_MS * INT64_C(1000);
    return hf_fail(err, HF_UNAVAILABLE, 0, "postgres: listen: %s", why);
}

static int connect_ear(const struct hf__pg_how *how, struct hf__pg_ear *ear, hf_error *err)
{
    if (hf__local_us() < ear->deaf_until_us)
        return hf_fail(err, HF_UNAVAILABLE, 0, "postgres: listen: not heard lately");
    int64_t until_us = hf__local_us() + how->io_timeout_ms * 1000;
    int rc = hf__pg_connect(how, &ear->link, until_us, err);
    if (!rc && ear->link.pooled) return deaf(ear, "a pooler is in between", err);
    if (rc) {
        deaf(ear, "", NULL);
        return rc;
    }
    ear->all_rang = ++ear->heard; /* what came before isn't known */
    return 0;
}

/* LISTEN, or UNLISTEN. */
static int say(const struct hf__pg_how *how, struct hf__pg_ear *ear, const char *what,
               const char *at, const char *channel, hf_error *err)
{
    char sql[120], state[6];
    PGresult *r;
    snprintf(sql, sizeof sql, "%s \"%s%s\"", what, at, channel);
    int rc =
        hf__pg_ask(how, &ear->link, sql, 0, NULL, HF_UNAVAILABLE, &r, state, "listen", "", err);
    if (rc)
        deaf(ear, "", NULL);
    else
        PQclear(r);
    return rc;
}

/* Listens where those who wait now are told, and no longer where nobody is. */
static int say_all(const struct hf__pg_how *how, struct hf__pg_ear *ear, int all, size_t n,
                   hf_error *err)
{
    struct hf__addresses *at = &ear->addresses;
    int rc = 0;
    if (n && all != ear->hears_all)
        rc = say(how, ear, all ? "LISTEN" : "UNLISTEN", "", ear->channel, err);
    if (n && !rc) ear->hears_all = all;
    for (size_t i = 0; i < at->n && !rc; i++) {
        if (!at->at[i].wanted || at->at[i].listened) continue;
        rc = say(how, ear, "LISTEN", HF_PG_AT, at->at[i].text, err);
        if (!rc) at->at[i].listened = 1;
    }
    size_t left = rc ? 0 : hf__addresses_end(at);
    for (size_t i = 0; i < left && !rc; i++)
        rc = say(how, ear, "UNLISTEN", HF_PG_AT, at->at[at->n + i].text, err);
    return rc;
}

/* Under the mutex, as are the next ones. NULL: out of memory. */
static struct hf__pg_heard *add(struct hf__pg_ear *ear, const hf_rowkey *key)
{
    if (ear->n_keys == ear->n_buckets) { /* room for as many keys as there are buckets */
        size_t n = ear->n_buckets ? 2 * ear->n_buckets : 64;
        struct hf__pg_heard *more = realloc(ear->key, n * sizeof *more);
        if (!more) return NULL;
        ear->key = more;
        size_t *buckets = realloc(ear->bucket, n * sizeof *buckets);
        if (!buckets) return NULL;
        ear->bucket = buckets;
        ear->n_buckets = n;
        fill_buckets(ear);
    }
    struct hf__pg_heard k = {.hash = key->hash, .len = key->len};
    k.text = malloc((size_t)key->len + 1);
    if (!k.text) return NULL;
    memcpy(k.text, key->text, (size_t)key->len + 1);
    ear->key[ear->n_keys] = k;
    put_into_bucket(ear, ear->n_keys);
    return &ear->key[ear->n_keys++];
}

static void drop_unwanted(struct hf__pg_ear *ear)
{
    size_t kept = 0;
    for (size_t i = 0; i < ear->n_keys; i++) {
        if (ear->key[i].wanted)
            ear->key[kept++] = ear->key[i];
        else
            drop(ear, &ear->key[i]);
    }
    ear->n_keys = kept;
    fill_buckets(ear);
}

/* *ret_all: some of them don't stand in line. */
static int want(struct hf__pg_ear *ear, const hf_rowkey *const *keys, size_t n, int *ret_all)
{
    hf__addresses_begin(&ear->addresses);
    for (size_t i = 0; i < ear->n_keys; i++)
        if (ear->key[i].wanted) ear->key[i].wanted = BEFORE;
    for (size_t i = 0; i < n; i++) {
        struct hf__pg_heard *k = find(ear, keys[i]);
        const uint8_t *who = keys[i]->who;
        if (!k) k = add(ear, keys[i]);
        if (!k) return HF_NOMEM;
        if (!who || !keys[i]->in_line)
            *ret_all = 1;
        else if (hf__address_want(&ear->addresses, who))
            return HF_NOMEM;
        int was = k->wanted;
        k->wanted = NOW;
        /* That another had it was said to somebody else: this one may be whom it named. Or it was
           said long ago: while nobody stands in line nothing is said. */
        if (was && k->named == (who != NULL) && (!who || !memcmp(k->who, who, 16))) continue;
        if (k->says == ANOTHER) k->says = NOTHING;
        k->named = who != NULL;
        if (who) memcpy(k->who, who, 16);
    }
    for (size_t i = 0; i < ear->n_keys; i++) ear->key[i].wanted = ear->key[i].wanted == NOW;
    if (ear->n_keys > 2 * n + SPARE_KEYS) drop_unwanted(ear);
    return 0;
}

int hf__pg_listen(const struct hf__pg_how *how, struct hf__pg_ear *ear,
                  const hf_rowkey *const *keys, size_t n, hf_ear *ret, hf_error *err)
{
    /* Those that came for the keys of the last time count for them. */
    if (ear->link.pg && !hear(ear)) disconnect(ear);
    if (!ear->link.pg) {
        int rc = connect_ear(how, ear, err);
        if (rc) return rc;
    }
    int all = 0;
    pthread_mutex_lock(&ear->mu);
    int rc = want(ear, keys, n, &all);
    pthread_mutex_unlock(&ear->mu);
    if (rc) return deaf(ear, "out of memory", err);
    rc = say_all(how, ear, all, n, err);
    if (rc) return rc;
    /* What came with an answer isn't in the socket any more, which wouldn't wake anybody. */
    if (!take_in_all(ear)) return deaf(ear, "the connection broke", err);
    *ret = (hf_ear){{ear->heard, 0}};
    return 0;
}

/* Until something comes, or not at all if there is something to be read. OVER: it was interrupted,
   or it is time. */
static int sleep_until(struct hf__pg_ear *ear, int64_t until_us, hf_error *err)
{
    struct pollfd fds[2] = {{PQsocket(ear->link.pg), POLLIN, 0}, {ear->wake_fd, POLLIN, 0}};
    int64_t left = until_us - hf__local_us();
    uint64_t n;
    if (left <= 0) return OVER;
    left = ear->n_unread ? 0 : left / 1000 + 1;
    if (poll(fds, 2, left > 60000 ? 60000 : (int)left) < 0 && errno != EINTR)
        return deaf(ear, strerror(errno), err);
    if (fds[1].revents) {
        if (read(ear->wake_fd, &n, sizeof n) < 0 && errno != EAGAIN)
            return deaf(ear, strerror(errno), err);
        return OVER;
    }
    return fds[0].revents && !hear(ear) ? deaf(ear, "the connection broke", err) : 0;
}

int hf__pg_watch(struct hf__pg_ear *ear, const hf_ear *since, int64_t until_us, hf_error *err)
{
    int rc = 0, asked = 0;
    while (!rc && ear->heard == since->heard[0]) {
        /* Each time: words that have one read don't keep the others from what they have to do. */
        rc = sleep_until(ear, until_us, err);
        if (rc || !ear->n_unread || ear->heard != since->heard[0]) continue;
        asked++;
        /* What came with the row isn't in the socket any more, which wouldn't wake anybody. */
        if (!read_one(ear) || !take_in_all(ear)) rc = deaf(ear, "the connection broke", err);
    }
    return rc < 0 ? rc : asked;
}

void hf__pg_interrupt(struct hf__pg_ear *ear)
{
    uint64_t one = 1;
    if (write(ear->wake_fd, &one, sizeof one) < 0) return; /* full: it is awake already */
}
