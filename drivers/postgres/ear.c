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

enum { DEAF_MS = 5000, SPARE_CHANNELS = 64, OVER = 1 };

enum says { NOTHING, THE_ROW, ANOTHER };

struct heard {
    struct hf__sub_key key;
    struct heard *unread_next;
    uint8_t unread; /* it is in the list of those, and pinned */
    uint8_t shown;  /* THE_ROW was, since it was read */
    enum says says;
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

/* Under the mutex, as are the next ones. What has to be read still has. */
static void forget(struct hf__sub_key *key)
{
    struct heard *k = (struct heard *)key;
    k->says = NOTHING;
    if (k->row) hf_row_clear(k->row);
    free(k->row);
    k->row = NULL;
}

static struct heard *find(const struct hf__pg_ear *ear, const hf_rowkey *key)
{
    return (struct heard *)hf__sub_find(&ear->sub, key->text, key->len, key->hash);
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

static void must_read(struct hf__pg_ear *ear, struct heard *k)
{
    if (k->unread) return;
    if (!ear->unread) ear->unread_end = &ear->unread;
    k->unread = k->key.pinned = 1;
    k->unread_next = NULL;
    *ear->unread_end = k;
    ear->unread_end = &k->unread_next;
}

static struct heard *next_unread(struct hf__pg_ear *ear)
{
    struct heard *k = ear->unread;
    if (!k) return NULL;
    ear->unread = k->unread_next;
    k->unread = k->key.pinned = 0;
    return k;
}

/* Its waits are to look. */
static void tell(struct hf__pg_ear *ear, struct heard *k)
{
    if (!hf__sub_is_wanted(&k->key)) return;
    hf__sub_put_event(&ear->sub, &k->key);
    ear->heard++;
}

/* One word, of one of the keys. */
static void take_in(struct hf__pg_ear *ear, struct heard *k, const char *holder)
{
    uint8_t id[16];
    int64_t expires_us;
    int known = k->key.named && read_holder(holder, id, &expires_us);
    int wanted = hf__sub_is_wanted(&k->key);
    if (known && memcmp(id, k->key.who, 16) != 0) {
        /* What has to be read is read all the same; and what was read isn't put aside for this
           before anybody has seen it, for it may say that he was handed the key. */
        if (k->unread) return;
        if (wanted && k->says == THE_ROW && !k->shown) {
            must_read(ear, k);
            return;
        }
        k->says = ANOTHER;
        memcpy(k->another, id, 16);
        k->expires_us = expires_us;
        tell(ear, k);
    } else if (!known && !wanted) {
        forget(&k->key);
    } else {
        must_read(ear, k);
    }
}

/* Takes in the notifications that were read. 0: the connection broke. */
static int take_in_all(struct hf__pg_ear *ear)
{
    PGnotify *note;
    while ((note = PQnotifies(ear->link.pg))) {
        char *end;
        uint64_t hash = strtoull(note->extra, &end, 10);
        pthread_mutex_lock(&ear->mu);
        struct hf__sub_key *k = NULL;
        while ((k = hf__sub_of_hash(&ear->sub, hash, k))) take_in(ear, (struct heard *)k, end);
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
    hf_row *row = malloc(sizeof *row), *old;
    pthread_mutex_lock(&ear->mu);
    /* What comes while it is read is another change. */
    struct heard *k = next_unread(ear);
    pthread_mutex_unlock(&ear->mu);
    hf_rowkey key = {.text = k->key.text, .len = k->key.len, .hash = k->key.hash};
    if (row) hf_row_init(row);
    int rc = row ? ear->read(ear->st, &ear->link, &key, row) : HF_NOMEM;
    pthread_mutex_lock(&ear->mu);
    old = k->row;
    k->row = row;
    k->shown = 0;
    /* That nobody has it, or why it can't be read, is for who waits to find. */
    k->says = !rc && row->rev ? THE_ROW : NOTHING;
    tell(ear, k);
    pthread_mutex_unlock(&ear->mu);
    if (old) hf_row_clear(old);
    free(old);
    return ear->link.pg != NULL;
}

int hf__pg_payload(struct hf__pg_ear *ear, const hf_rowkey *key, hf_row *row)
{
    hf_row_clear(row);
    pthread_mutex_lock(&ear->mu);
    struct heard *k = find(ear, key);
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

/* ---- listening ---- */

int hf__pg_ear_open(struct hf__pg_ear *ear, hf_store *st, hf__pg_read *read_row)
{
    ear->st = st;
    ear->read = read_row;
    ear->sub.key_size = sizeof(struct heard);
    ear->sub.forget = forget;
    ear->sub.spare_channels = SPARE_CHANNELS;
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
    hf__sub_free(&ear->sub);
    pthread_mutex_destroy(&ear->mu);
    if (ear->wake_fd >= 0) close(ear->wake_fd);
}

static void forget_one(struct hf__sub_key *k, void *arg)
{
    (void)arg;
    forget(k);
}

static void disconnect(struct hf__pg_ear *ear)
{
    hf__pg_disconnect(&ear->link);
    pthread_mutex_lock(&ear->mu);
    while (next_unread(ear)) continue;
    hf__sub_each(&ear->sub, forget_one, NULL); /* others may be lost from here on */
    hf__sub_disconnected(&ear->sub);
    pthread_mutex_unlock(&ear->mu);
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
    ear->heard++;
    pthread_mutex_lock(&ear->mu);
    hf__sub_put_any(&ear->sub); /* what came before isn't known */
    pthread_mutex_unlock(&ear->mu);
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

/* Listens at the address, or no longer. */
static int say_one(const struct hf__pg_how *how, struct hf__pg_ear *ear, struct hf__sub_channel *c,
                   hf_error *err)
{
    char name[HF_ADDRESS + 1];
    int wanted = c->users != 0, rc = 0, changes = c->subscribed != wanted;
    memcpy(name, c->name, c->len + 1);
    c->subscribed = (uint8_t)wanted;
    if (!wanted) hf__sub_channel_free(c);
    if (changes) rc = say(how, ear, wanted ? "LISTEN" : "UNLISTEN", HF_PG_AT, name, err);
    return rc;
}

/* Listens where those who wait now are told, and no longer where nobody is. The channel of all keys
   stays while nobody waits. */
static int say_all(const struct hf__pg_how *how, struct hf__pg_ear *ear, hf_error *err)
{
    int rc = 0;
    pthread_mutex_lock(&ear->mu);
    int all = ear->sub.n_apart != 0, any = hf__sub_wanted(&ear->sub) != 0;
    pthread_mutex_unlock(&ear->mu);
    if (any && all != ear->hears_all)
        rc = say(how, ear, all ? "LISTEN" : "UNLISTEN", "", ear->channel, err);
    if (any && !rc) ear->hears_all = all;
    while (!rc) {
        pthread_mutex_lock(&ear->mu);
        struct hf__sub_channel *c = hf__sub_next_change(&ear->sub);
        pthread_mutex_unlock(&ear->mu);
        if (!c) break;
        rc = say_one(how, ear, c, err);
    }
    return rc;
}

int hf__pg_subscribe(struct hf__pg_ear *ear, const hf_rowkey *key)
{
    char address[HF_ADDRESS + 1];
    int in_line = key->who && key->in_line, same;
    if (in_line) hf__put_address(address, key->who);
    pthread_mutex_lock(&ear->mu);
    struct heard *k =
        (struct heard *)hf__sub_want(&ear->sub, key, in_line ? address : NULL, HF_ADDRESS, &same);
    /* That another had it was said to somebody else: this one may be whom it named. Or it was said
       long ago: while nobody stands in line nothing is said. */
    if (k && !same && k->says == ANOTHER) k->says = NOTHING;
    pthread_mutex_unlock(&ear->mu);
    return k ? 0 : HF_NOMEM;
}

void hf__pg_unsubscribe(struct hf__pg_ear *ear, const hf_rowkey *key)
{
    pthread_mutex_lock(&ear->mu);
    struct heard *k = find(ear, key);
    if (k) hf__sub_unwant(&ear->sub, &k->key);
    pthread_mutex_unlock(&ear->mu);
}

int hf__pg_next_event(struct hf__pg_ear *ear, hf_key_event *ret)
{
    pthread_mutex_lock(&ear->mu);
    int is = hf__sub_next_event(&ear->sub, ret);
    pthread_mutex_unlock(&ear->mu);
    return is;
}

int hf__pg_flush(const struct hf__pg_how *how, struct hf__pg_ear *ear, hf_event_count *ret,
                 hf_error *err)
{
    /* What came for keys before is told of them. */
    if (ear->link.pg && !hear(ear)) disconnect(ear);
    if (!ear->link.pg) {
        int rc = connect_ear(how, ear, err);
        if (rc) return rc;
    }
    int rc = say_all(how, ear, err);
    if (rc) return rc;
    /* What came with an answer isn't in the socket any more, which wouldn't wake anybody. */
    if (!take_in_all(ear)) return deaf(ear, "the connection broke", err);
    *ret = (hf_event_count){{ear->heard, 0}};
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
    left = ear->unread ? 0 : left / 1000 + 1;
    if (poll(fds, 2, left > 60000 ? 60000 : (int)left) < 0 && errno != EINTR)
        return deaf(ear, strerror(errno), err);
    if (fds[1].revents) {
        if (read(ear->wake_fd, &n, sizeof n) < 0 && errno != EAGAIN)
            return deaf(ear, strerror(errno), err);
        return OVER;
    }
    return fds[0].revents && !hear(ear) ? deaf(ear, "the connection broke", err) : 0;
}

int hf__pg_sleep(struct hf__pg_ear *ear, const hf_event_count *since, int64_t until_us,
                 hf_error *err)
{
    int rc = 0, asked = 0;
    while (!rc && ear->heard == since->n[0]) {
        /* Each time: words that have one read don't keep the others from what they have to do. */
        rc = sleep_until(ear, until_us, err);
        if (rc || !ear->unread || ear->heard != since->n[0]) continue;
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
