/*
 * notify.c - see notify.h. A request in a queue is notified on the channel of its handle's address.
 * All other requests are notified on one channel, which all keys of a table share.
 *
 * A notification names the key, and the party that alone holds it now. It is not believed, because
 * every role of the database may notify, whatever it may do with the table. If it names a request
 * of this handle, the handle reads the row, on the connection on which the notification came. The
 * other requests needn't look. A false notification costs the named request a read, or the others a
 * delay until they poll.
 *
 * A subscription is kept for a while after its wait. So a holder is notified of a request that
 * joins the queue behind it.
 */
#include "kit/await.h"
#include "kit/fork_gate.h"
#include "kit/text.h"
#include "store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RETRY_MS = 5000, SPARE_CHANNELS = 64, OVER = 1 };

/* What the last notification of a key has shown: nothing; its row, which was then read; or that
   another request, `another`, was granted the key. */
enum says { NOTHING, THE_ROW, ANOTHER };

struct subscription {
    struct hf__sub_key key;
    struct subscription *unread_next;
    uint8_t unread; /* 1: the key is in the list of keys to read, and pinned */
    uint8_t shown;  /* 1: the wait has got `row`, as a payload */
    enum says says;
    hf_row *row;         /* if THE_ROW */
    uint8_t another[16]; /* if ANOTHER: the request's id */
    int64_t expires_us;
};

/* ---- notifications ---- */

/* Forgets what the last notification has shown. If the row is still to be read, it will be. The
   caller holds the mutex, here and for the next functions. */
static void forget(struct hf__sub_key *key)
{
    struct subscription *k = (struct subscription *)key;
    k->says = NOTHING;
    if (k->row) hf_row_clear(k->row);
    free(k->row);
    k->row = NULL;
}

static struct subscription *find(const struct hf__pg_listener *listener, const hf_rowkey *key)
{
    return (struct subscription *)hf__sub_find(&listener->sub, key->text, key->len, key->hash);
}

/* Reads the holder in a notification, which follows the key's hash: its id and expires_us. Returns
   1; 0: there is none, or it can't be read. */
static int read_holder(const char *said, uint8_t id[16], int64_t *ret_expires_us)
{
    char *end;
    if (*said != ' ' || strnlen(said, 35) < 35 || said[33] != ' ' || !hf__read_id(said + 1, 32, id))
        return 0;
    errno = 0;
    *ret_expires_us = strtoll(said + 34, &end, 10);
    return !errno && !*end && *ret_expires_us >= 0;
}

static void must_read(struct hf__pg_listener *listener, struct subscription *k)
{
    if (k->unread) return;
    if (!listener->unread) listener->unread_end = &listener->unread;
    k->unread = k->key.pinned = 1;
    k->unread_next = NULL;
    *listener->unread_end = k;
    listener->unread_end = &k->unread_next;
}

static struct subscription *next_unread(struct hf__pg_listener *listener)
{
    struct subscription *k = listener->unread;
    if (!k) return NULL;
    listener->unread = k->unread_next;
    k->unread = k->key.pinned = 0;
    return k;
}

/* Puts an event of the key into the queue of events, so that its wait looks. */
static void tell(struct hf__pg_listener *listener, struct subscription *k)
{
    if (!hf__sub_is_wanted(&k->key)) return;
    hf__sub_put_event(&listener->sub, &k->key);
    listener->events++;
}

/* Takes in one notification, for one key. */
static void take_in(struct hf__pg_listener *listener, struct subscription *k, const char *holder)
{
    uint8_t id[16];
    int64_t expires_us;
    int known = k->key.named && read_holder(holder, id, &expires_us);
    int wanted = hf__sub_is_wanted(&k->key);
    if (known && memcmp(id, k->key.who, 16) != 0) {
        /* Another request holds the key. If the row is to be read, it is read all the same. If the
           row was read, but its wait hasn't seen it, it is read again instead of being dropped: it
           may grant the key to that wait. */
        if (k->unread) return;
        if (wanted && k->says == THE_ROW && !k->shown) {
            must_read(listener, k);
            return;
        }
        k->says = ANOTHER;
        memcpy(k->another, id, 16);
        k->expires_us = expires_us;
        tell(listener, k);
    } else if (!known && !wanted) {
        forget(&k->key);
    } else {
        must_read(listener, k);
    }
}

/* Takes in the notifications that libpq has read. Returns 0 if the connection broke. */
static int take_in_all(struct hf__pg_listener *listener)
{
    PGnotify *note;
    while ((note = PQnotifies(listener->link.pg))) {
        char *end;
        uint64_t hash = strtoull(note->extra, &end, 10);
        pthread_mutex_lock(&listener->sub.mu);
        struct hf__sub_key *k = NULL;
        while ((k = hf__sub_of_hash(&listener->sub, hash, k)))
            take_in(listener, (struct subscription *)k, end);
        pthread_mutex_unlock(&listener->sub.mu);
        PQfreemem(note);
    }
    return PQstatus(listener->link.pg) == CONNECTION_OK;
}

/* Reads from the connection, and takes in the notifications that have come. Returns 0 if the
   connection broke. */
static int receive(struct hf__pg_listener *listener)
{
    hf__gate_begin();
    int read = PQconsumeInput(listener->link.pg);
    hf__gate_end();
    return read && take_in_all(listener);
}

/* Reads one row that has changed. Returns 0 if the connection broke. */
static int read_one(hf_store *st)
{
    struct hf__pg_listener *listener = &st->listener;
    hf_row *row = malloc(sizeof *row), *old;
    pthread_mutex_lock(&listener->sub.mu);
    /* Out of the list before the read: a notification that comes during it needs another read. */
    struct subscription *k = next_unread(listener);
    pthread_mutex_unlock(&listener->sub.mu);
    hf_rowkey key = {.text = k->key.text, .len = k->key.len, .hash = k->key.hash};
    if (row) hf_row_init(row);
    int rc = row ? hf__pg_read(st, &listener->link, &key, row) : HF_NOMEM;
    pthread_mutex_lock(&listener->sub.mu);
    old = k->row;
    k->row = row;
    k->shown = 0;
    /* If there is no row, or it can't be read, the wait reads it itself and finds that. */
    k->says = !rc && row->rev ? THE_ROW : NOTHING;
    tell(listener, k);
    pthread_mutex_unlock(&listener->sub.mu);
    if (old) hf_row_clear(old);
    free(old);
    return listener->link.pg != NULL;
}

static int payload(hf_store *st, const hf_rowkey *key, hf_row *row)
{
    struct hf__pg_listener *listener = &st->listener;
    hf_row_clear(row);
    pthread_mutex_lock(&listener->sub.mu);
    struct subscription *k = find(listener, key);
    int is = k && k->says == THE_ROW && !hf_row_copy(row, k->row);
    if (is) k->shown = 1;
    if (k && k->says == ANOTHER) {
        /* token 0: the payload says only that this request holds the key */
        memset(&row->party[0], 0, sizeof row->party[0]);
        memcpy(row->party[0].id, k->another, 16);
        row->party[0].expires_us = k->expires_us;
        row->n_holders = 1;
        is = 1;
    }
    pthread_mutex_unlock(&listener->sub.mu);
    return is;
}

/* ---- listening ---- */

int hf__pg_notify_open(struct hf__pg_listener *listener)
{
    hf__sub_open(&listener->sub, sizeof(struct subscription), forget);
    listener->sub.spare_channels = SPARE_CHANNELS;
    listener->wake_fd = hf__wake_fd();
    return listener->wake_fd < 0 ? errno : 0;
}

void hf__pg_notify_close(struct hf__pg_listener *listener)
{
    hf__pg_disconnect(&listener->link);
    hf__sub_free(&listener->sub);
    if (listener->wake_fd >= 0) close(listener->wake_fd);
}

static void forget_one(struct hf__sub_key *k, void *arg)
{
    (void)arg;
    forget(k);
}

static void disconnect(struct hf__pg_listener *listener)
{
    hf__pg_disconnect(&listener->link);
    pthread_mutex_lock(&listener->sub.mu);
    while (next_unread(listener)) continue;
    /* from now on notifications are lost */
    hf__sub_each(&listener->sub, forget_one, NULL);
    hf__sub_disconnected(&listener->sub);
    pthread_mutex_unlock(&listener->sub.mu);
    listener->listens_all = 0;
}

static int disconnected(struct hf__pg_listener *listener, const char *why, hf_error *err)
{
    disconnect(listener);
    listener->retry_at_us = hf__local_us() + RETRY_MS * INT64_C(1000);
    return hf_fail(err, HF_UNAVAILABLE, 0,
                   "postgres: subscribe to notifications: %s; waiters poll meanwhile", why);
}

static int connect_listener(const struct hf__pg_how *how, struct hf__pg_listener *listener,
                            hf_error *err)
{
    if (hf__local_us() < listener->retry_at_us)
        return hf_fail(err, HF_UNAVAILABLE, 0,
                       "postgres: subscribe to notifications: not tried, because it failed "
                       "less than 5 s ago; waiters poll meanwhile");
    int64_t until_us = hf__local_us() + how->io_timeout_ms * 1000;
    int rc = hf__pg_connect(how, &listener->link, until_us, err);
    if (!rc && listener->link.pooled) return disconnected(listener, "a pooler is in between", err);
    if (rc) {
        disconnected(listener, "", NULL);
        return rc;
    }
    listener->events++;
    pthread_mutex_lock(&listener->sub.mu);
    hf__sub_put_any(&listener->sub); /* what happened before is unknown: any key may differ */
    pthread_mutex_unlock(&listener->sub.mu);
    return 0;
}

/* Sends LISTEN or UNLISTEN (`what`) for the channel. */
static int say(const struct hf__pg_how *how, struct hf__pg_listener *listener, const char *what,
               const char *at, const char *channel, hf_error *err)
{
    char sql[120], state[6];
    PGresult *r;
    snprintf(sql, sizeof sql, "%s \"%s%s\"", what, at, channel);
    int rc = hf__pg_ask(how, &listener->link, HF_PG_ONCE(sql), 0, NULL, HF_UNAVAILABLE, &r, state,
                        "listen", "", err);
    if (rc)
        disconnected(listener, "", NULL);
    else
        PQclear(r);
    return rc;
}

/* Subscribes to the channel of an address; or, if it has no users, ends the subscription. */
static int say_one(const struct hf__pg_how *how, struct hf__pg_listener *listener,
                   struct hf__sub_channel *c, hf_error *err)
{
    char name[HF_ADDRESS + 1];
    int wanted = c->users != 0, rc = 0, changes = c->subscribed != wanted;
    memcpy(name, c->name, c->len + 1);
    c->subscribed = (uint8_t)wanted;
    if (!wanted) hf__sub_channel_free(c);
    if (changes) rc = say(how, listener, wanted ? "LISTEN" : "UNLISTEN", HF_PG_AT, name, err);
    return rc;
}

/* Subscribes to the channels that the present waits need, and leaves those that they don't. While
   there is no wait, the subscription to the channel of all keys stays as it is. */
static int say_all(const struct hf__pg_how *how, struct hf__pg_listener *listener, hf_error *err)
{
    int rc = 0;
    pthread_mutex_lock(&listener->sub.mu);
    int all = listener->sub.n_apart != 0, any = hf__sub_wanted(&listener->sub) != 0;
    pthread_mutex_unlock(&listener->sub.mu);
    if (any && all != listener->listens_all)
        rc = say(how, listener, all ? "LISTEN" : "UNLISTEN", "", listener->channel, err);
    if (any && !rc) listener->listens_all = all;
    while (!rc) {
        pthread_mutex_lock(&listener->sub.mu);
        struct hf__sub_channel *c = hf__sub_next_change(&listener->sub);
        pthread_mutex_unlock(&listener->sub.mu);
        if (!c) break;
        rc = say_one(how, listener, c, err);
    }
    return rc;
}

static int subscribe(hf_store *st, const hf_rowkey *key)
{
    struct hf__pg_listener *listener = &st->listener;
    char address[HF_ADDRESS + 1];
    int in_line = key->who && key->in_line, same;
    if (in_line) hf__put_address(address, key->who);
    pthread_mutex_lock(&listener->sub.mu);
    struct subscription *k = (struct subscription *)hf__sub_want(
        &listener->sub, key, in_line ? address : NULL, HF_ADDRESS, &same);
    /* ANOTHER was notified to an earlier request. This request may be the one that it named; or it
       may be out of date, because nothing is notified while the queue is empty. */
    if (k && !same && k->says == ANOTHER) k->says = NOTHING;
    pthread_mutex_unlock(&listener->sub.mu);
    return k ? 0 : HF_NOMEM;
}

static void unsubscribe(hf_store *st, const hf_rowkey *key)
{
    hf__sub_unsubscribe(&st->listener.sub, key);
}

static int next_event(hf_store *st, hf_key_event *ret)
{
    return hf__sub_next_event(&st->listener.sub, ret);
}

static int flush(hf_store *st, hf_event_count *ret, hf_error *err)
{
    struct hf__pg_listener *listener = &st->listener;
    /* Takes in the notifications that have come so far, before the subscriptions change. */
    if (listener->link.pg && !receive(listener)) disconnect(listener);
    if (!listener->link.pg) {
        int rc = connect_listener(&st->how, listener, err);
        if (rc) return rc;
    }
    int rc = say_all(&st->how, listener, err);
    if (rc) return rc;
    /* libpq has read the notifications that came with an answer: poll wouldn't report them. */
    if (!take_in_all(listener)) return disconnected(listener, "the connection broke", err);
    *ret = (hf_event_count){{listener->events, 0}};
    return 0;
}

/* Sleeps until a notification comes, and takes it in; doesn't sleep if there are rows to read.
   Returns 0; OVER: it was interrupted, or the time is over; or the error. */
static int sleep_until(struct hf__pg_listener *listener, int64_t until_us, hf_error *err)
{
    struct pollfd fds[2] = {{PQsocket(listener->link.pg), POLLIN, 0},
                            {listener->wake_fd, POLLIN, 0}};
    if (until_us <= hf__local_us()) return OVER;
    int ready = listener->unread ? poll(fds, 2, 0) : hf__wait_until(fds, 2, until_us);
    if (ready < 0 && errno != EINTR) return disconnected(listener, strerror(errno), err);
    if (fds[1].revents && hf__woken(listener->wake_fd)) return OVER;
    return fds[0].revents && !receive(listener)
               ? disconnected(listener, "the connection broke", err)
               : 0;
}

static int sleep_for_events(hf_store *st, const hf_event_count *since, int64_t until_us,
                            hf_error *err)
{
    struct hf__pg_listener *listener = &st->listener;
    int rc = 0, asked = 0;
    while (!rc && listener->events == since->n[0]) {
        /* Takes in notifications in each round, so that rows to be read don't delay them. */
        rc = sleep_until(listener, until_us, err);
        if (rc || !listener->unread || listener->events != since->n[0]) continue;
        asked++;
        /* libpq has read the notifications that came with the row: poll wouldn't report them. */
        if (!read_one(st) || !take_in_all(listener))
            rc = disconnected(listener, "the connection broke", err);
    }
    return rc < 0 ? rc : asked;
}

static void interrupt(hf_store *st) { hf__wake(st->listener.wake_fd); }

const hf_notify_ops hf__pg_notify = {.subscribe = subscribe,
                                     .unsubscribe = unsubscribe,
                                     .flush = flush,
                                     .sleep = sleep_for_events,
                                     .next_event = next_event,
                                     .payload = payload,
                                     .interrupt = interrupt};
