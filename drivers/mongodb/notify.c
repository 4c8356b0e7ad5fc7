/*
 * notify.c - mongodb: notifications, by a change stream. See doc/stores/mongodb.md.
 *
 * A read of a change stream blocks for up to half a second, and can't be interrupted. So a separate
 * thread reads the stream as long as there are waits; it wakes the handle's dispatcher, which
 * sleeps meanwhile. The thread ends when no wait is left, or when the stream breaks. Closing the
 * handle waits for the thread. But if the server is mute the handle doesn't wait: the thread ends
 * later, and frees the listener itself.
 */
#include "addresses.h"
#include "kit/await.h"
#include "kit/subscriber.h"
#include "store.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { AWAIT_MS = 500, IDLE_MS = 1000, CLOSE_MS = 50, RETRY_MS = 5000 };

enum stream_state { STREAM_OFF, STREAM_STARTING, STREAM_OPEN };

/* The subscription to a key, with what the last event said. */
struct subscription {
    struct hf__sub_key key;
    hf_party handed;              /* the party that was granted the key; token 0: none is known */
    char address[HF_ADDRESS + 1]; /* the address of this handle's waiter in the queue; "": it has
                                     none there */
};

struct hf__mg_listener {
    struct hf__mg_how how; /* constant */
    int changed_fd; /* an eventfd: the thread and `interrupt` write to it, the sleeper reads it */
    struct hf__sub sub; /* its mutex protects what follows, too */
    enum stream_state state;
    int refs, ends, interrupted;
    /* Local times. retry_at_us: before it no thread is started. wanted_us: when a wait last needed
       the stream. */
    int64_t retry_at_us, wanted_us;
    uint64_t events;
};

hf__mg_listener *hf__mg_listener_new(const hf_url *url, int64_t io_timeout_ms)
{
    hf__mg_listener *listener = calloc(1, sizeof *listener);
    if (!listener) return NULL;
    listener->changed_fd = hf__wake_fd();
    if (listener->changed_fd < 0 || hf__mg_how(url, io_timeout_ms, &listener->how, NULL)) {
        if (listener->changed_fd >= 0) close(listener->changed_fd);
        free(listener);
        return NULL;
    }
    listener->refs = 1;
    hf__sub_open(&listener->sub, sizeof(struct subscription), NULL);
    return listener;
}

/* Gives up a reference to the listener, and frees it with the last one. The caller holds the mutex,
   and this function releases it. */
static void let_go(hf__mg_listener *listener)
{
    int last = !--listener->refs;
    pthread_mutex_unlock(&listener->sub.mu);
    if (!last) return;
    hf__mg_how_free(&listener->how);
    close(listener->changed_fd);
    hf__sub_free(&listener->sub);
    free(listener);
}

/* Sleeps until changed_fd is written to, or until local time until_us: then returns 0. The caller
   holds the mutex, which is released while the thread sleeps. */
static int sleep_until(hf__mg_listener *listener, int64_t until_us)
{
    struct pollfd fd = {listener->changed_fd, POLLIN, 0};
    pthread_mutex_unlock(&listener->sub.mu);
    int ready = hf__wait_until(&fd, 1, until_us);
    if (ready) hf__woken(listener->changed_fd);
    pthread_mutex_lock(&listener->sub.mu);
    return ready != 0;
}

void hf__mg_listener_free(hf__mg_listener *listener)
{
    if (!listener) return;
    pthread_mutex_lock(&listener->sub.mu);
    listener->ends = 1;
    int64_t until_us = hf__local_us() + CLOSE_MS * INT64_C(1000);
    while (listener->refs > 1 && sleep_until(listener, until_us)) continue;
    let_go(listener);
}

/* ---- the thread ---- */

/* Returns how long the server may wait for changes before it replies, in ms: less than the
   request's time limit. */
static int64_t await_ms(const hf__mg_listener *listener)
{
    int64_t half = listener->how.io_timeout_ms / 2;
    return half < AWAIT_MS ? half : AWAIT_MS;
}

/* Takes in an event, which concerns a key with a subscription or another one. */
static void receive(hf__mg_listener *listener, const bson_t *event)
{
    struct subscription *k = NULL;
    uint32_t len = 0;
    const char *key = hf__mg_change_key(event, &len);
    pthread_mutex_lock(&listener->sub.mu);
    if (key)
        k = (struct subscription *)hf__sub_find(&listener->sub, key, len, hf_key_hash(key, len));
    if (k) hf__mg_change_holder(event, &k->handed);
    int matters = !key || (k && hf__sub_is_wanted(&k->key) &&
                           (!k->address[0] || hf__mg_change_concerns(event, k->address)));
    if (!key)
        hf__sub_put_any(&listener->sub);
    else if (matters)
        hf__sub_put_event(&listener->sub, &k->key);
    if (matters) {
        listener->events++;
        hf__wake(listener->changed_fd);
    }
    pthread_mutex_unlock(&listener->sub.mu);
}

static void forget_handed(struct hf__sub_key *k, void *arg)
{
    (void)arg;
    ((struct subscription *)k)->handed.token = 0;
}

/* Notes that events may have been lost: the next event is about all keys. The caller holds the
   mutex. */
static void lose(hf__mg_listener *listener)
{
    listener->events++;
    hf__sub_put_any(&listener->sub);
    hf__sub_each(&listener->sub, forget_handed, NULL);
}

static int wanted(hf__mg_listener *listener, enum stream_state state)
{
    pthread_mutex_lock(&listener->sub.mu);
    if (state != listener->state) {
        listener->state = state;
        lose(listener);
        hf__wake(listener->changed_fd);
    }
    int64_t now_us = hf__local_us();
    if (hf__sub_wanted(&listener->sub)) listener->wanted_us = now_us;
    int is = !listener->ends && now_us - listener->wanted_us < IDLE_MS * INT64_C(1000);
    if (!is) {
        listener->state = STREAM_OFF; /* from now on another thread may be started */
        hf__sub_each(&listener->sub, forget_handed, NULL);
    }
    pthread_mutex_unlock(&listener->sub.mu);
    return is;
}

/* Reads the change stream until no wait needs it. Returns 0: no wait needs it; 1: the stream broke.
 *ret_opened: it was open. */
static int read_stream(hf__mg_listener *listener, mongoc_change_stream_t *stream, int *ret_opened)
{
    const bson_t *event, *reply;
    bson_error_t e;
    if (mongoc_change_stream_error_document(stream, &e, &reply)) return 1;
    while (wanted(listener, STREAM_OPEN)) {
        int64_t asked_us = hf__local_us();
        if (mongoc_change_stream_next(stream, &event))
            receive(listener, event);
        else if (mongoc_change_stream_error_document(stream, &e, &reply))
            return 1;
        else if (hf__local_us() - asked_us < await_ms(listener) * 100)
            /* a server that replies "no changes" at once is treated as broken: otherwise this would
               be a busy loop */
            return 1;
        *ret_opened = 1;
    }
    return 0;
}

/* Connects, opens the change stream, and reads it (read_stream). Returns 1 if any of that fails. */
static int follow(hf__mg_listener *listener, struct hf__mg_link *link, int *ret_opened)
{
    *ret_opened = 0;
    if (hf__mg_connect(&listener->how, link, NULL) || !link->replicated) return 1;
    link->until_us = 0; /* each request for changes has libmongoc's own time limit */
    mongoc_collection_t *rows =
        mongoc_client_get_collection(link->client, listener->how.db, listener->how.collection);
    bson_t *only = hf__mg_change_pipeline();
    bson_t *opts = BCON_NEW("maxAwaitTimeMS", BCON_INT64(await_ms(listener)));
    mongoc_change_stream_t *stream = mongoc_collection_watch(rows, only, opts);
    int broken = read_stream(listener, stream, ret_opened);
    mongoc_change_stream_destroy(stream);
    mongoc_collection_destroy(rows);
    bson_destroy(only);
    bson_destroy(opts);
    return broken;
}

static void *run(void *arg)
{
    hf__mg_listener *listener = arg;
    struct hf__mg_link link = {.client = NULL};
    int broken = 1, opened = 1;
    /* A stream that was open and breaks is opened again at once, because there may be another
       primary. A stream that couldn't be opened isn't tried again here. */
    while (broken && opened && hf__mg_begin()) {
        broken = follow(listener, &link, &opened);
        hf__mg_disconnect(&link);
        hf__mg_end();
        if (broken && opened && !wanted(listener, STREAM_STARTING)) broken = 0;
    }
    pthread_mutex_lock(&listener->sub.mu);
    if (broken) {
        listener->retry_at_us = hf__local_us() + RETRY_MS * INT64_C(1000);
        listener->state = STREAM_OFF;
        lose(listener);
    }
    hf__wake(listener->changed_fd);
    let_go(listener);
    return NULL;
}

/* Starts the thread that reads the stream. Returns 0 if it is too early to try again, or if it
   fails. The caller holds the mutex. */
static int start(hf__mg_listener *listener)
{
    pthread_t thread;
    pthread_attr_t attr;
    sigset_t all, before;
    if (hf__local_us() < listener->retry_at_us) return 0;
    /* The new thread inherits a mask that blocks all signals but those of memory faults. */
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGSEGV);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    listener->state = STREAM_STARTING;
    listener->refs++;
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&thread, &attr, run, listener);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (!rc) return 1;
    listener->refs--;
    listener->state = STREAM_OFF;
    return 0;
}

/* ---- subscriptions ---- */

static struct subscription *find(const hf__mg_listener *listener, const hf_rowkey *key)
{
    return (struct subscription *)hf__sub_find(&listener->sub, key->text, key->len, key->hash);
}

static int subscribe(hf_store *st, const hf_rowkey *key)
{
    hf__mg_listener *listener = st->listener;
    pthread_mutex_lock(&listener->sub.mu);
    struct subscription *k =
        (struct subscription *)hf__sub_want(&listener->sub, key, NULL, 0, NULL);
    if (k) k->address[0] = 0;
    if (k && k->key.in_line) hf__put_address(k->address, k->key.who);
    pthread_mutex_unlock(&listener->sub.mu);
    return k ? 0 : HF_NOMEM;
}

static void unsubscribe(hf_store *st, const hf_rowkey *key)
{
    hf__sub_unsubscribe(&st->listener->sub, key);
}

static int next_event(hf_store *st, hf_key_event *ret)
{
    return hf__sub_next_event(&st->listener->sub, ret);
}

static int flush(hf_store *st, hf_event_count *ret, hf_error *err)
{
    hf__mg_listener *listener = st->listener;
    int rc = 0;
    pthread_mutex_lock(&listener->sub.mu);
    int wanted = hf__sub_wanted(&listener->sub) != 0;
    if (wanted) listener->wanted_us = hf__local_us();
    int64_t until_us = hf__local_us() + listener->how.io_timeout_ms * 1000;
    while (wanted && listener->state != STREAM_OPEN && !rc)
        if ((listener->state == STREAM_OFF && !start(listener)) || !sleep_until(listener, until_us))
            rc = hf_fail(err, HF_UNAVAILABLE, 0,
                         "mongodb: subscribe to notifications: no change stream can be opened; "
                         "waiters poll meanwhile");
    ret->n[0] = listener->events;
    ret->n[1] = 0;
    pthread_mutex_unlock(&listener->sub.mu);
    return rc;
}

static int sleep_for_events(hf_store *st, const hf_event_count *since, int64_t until_us,
                            hf_error *err)
{
    hf__mg_listener *listener = st->listener;
    int rc = 0, over = 0;
    pthread_mutex_lock(&listener->sub.mu);
    while (!over && !listener->interrupted && listener->events == since->n[0])
        over = !sleep_until(listener, until_us);
    listener->interrupted = 0;
    if (hf__sub_wanted(&listener->sub) && listener->state != STREAM_OPEN)
        rc = hf_fail(err, HF_UNAVAILABLE, 0,
                     "mongodb: receive notifications: the change stream broke; waiters poll "
                     "until another one is open");
    pthread_mutex_unlock(&listener->sub.mu);
    return rc;
}

static int payload(hf_store *st, const hf_rowkey *key, hf_row *row)
{
    hf__mg_listener *listener = st->listener;
    hf_row_clear(row);
    pthread_mutex_lock(&listener->sub.mu);
    const struct subscription *k = find(listener, key);
    int found = k && k->handed.token;
    if (found) row->party[0] = k->handed;
    pthread_mutex_unlock(&listener->sub.mu);
    row->n_holders = (uint32_t)found;
    row->token = found ? row->party[0].token : 0;
    return found;
}

static void interrupt(hf_store *st)
{
    hf__mg_listener *listener = st->listener;
    pthread_mutex_lock(&listener->sub.mu);
    listener->interrupted = 1;
    hf__wake(listener->changed_fd);
    pthread_mutex_unlock(&listener->sub.mu);
}

const hf_notify_ops hf__mg_notify = {.subscribe = subscribe,
                                     .unsubscribe = unsubscribe,
                                     .flush = flush,
                                     .sleep = sleep_for_events,
                                     .next_event = next_event,
                                     .payload = payload,
                                     .interrupt = interrupt};
