/*
 * ear.c - see ear.h.
 *
 * A change stream blocks whoever reads it, for half a second at a time, and libmongoc can't be
 * woken. So a thread of its own reads it while somebody waits for a key; the watcher waits for that
 * thread. It ends when nobody waits any more, or the stream breaks. Who closes the handle waits for
 * it, but not for a server that is mute: then it ends by itself, with what it needs.
 */
#include "ear.h"

#include "addresses.h"
#include "kit/subscriber.h"
#include "kit/text.h"
#include "os.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { AWAIT_MS = 500, IDLE_MS = 1000, CLOSE_MS = 50, DEAF_MS = 5000, LONGEST_MS = 60000 };

enum ear_state { EAR_OFF, EAR_STARTING, EAR_HEARS };

/* A key, and to whom the last change that was heard of it gave it. */
struct heard {
    struct hf__sub_key key;
    hf_party handed;              /* token 0: to nobody */
    char address[HF_ADDRESS + 1]; /* of who stands in line for it; "": nobody does */
};

struct hf__mg_ear {
    struct hf__mg_how how; /* only read, once it is there */
    pthread_mutex_t mu;
    int changed_fd; /* rung by the thread, and by who interrupts; one waits for it at a time */
    enum ear_state state;
    int refs, ends, interrupted;
    int64_t deaf_until_us, wanted_us; /* when somebody waited last */
    uint64_t heard;
    struct hf__sub sub;
};

hf__mg_ear *hf__mg_ear_new(const hf_url *url, int64_t io_timeout_ms)
{
    hf__mg_ear *ear = calloc(1, sizeof *ear);
    if (!ear) return NULL;
    ear->changed_fd = hf__fd_above(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (ear->changed_fd < 0 || hf__mg_how(url, io_timeout_ms, &ear->how, NULL)) {
        if (ear->changed_fd >= 0) close(ear->changed_fd);
        free(ear);
        return NULL;
    }
    ear->refs = 1;
    ear->sub.key_size = sizeof(struct heard);
    pthread_mutex_init(&ear->mu, NULL);
    return ear;
}

/* Under the mutex, which goes. */
static void let_go(hf__mg_ear *ear)
{
    int last = !--ear->refs;
    pthread_mutex_unlock(&ear->mu);
    if (!last) return;
    hf__mg_how_free(&ear->how);
    pthread_mutex_destroy(&ear->mu);
    close(ear->changed_fd);
    hf__sub_free(&ear->sub);
    free(ear);
}

static void ring(hf__mg_ear *ear)
{
    uint64_t one = 1;
    ssize_t n = write(ear->changed_fd, &one, sizeof one);
    (void)n; /* full means that it has rung already */
}

/* Sleeps until something may have changed or local time until_us; 0: it is that late. Under the
   mutex, dropped. */
static int sleep_until(hf__mg_ear *ear, int64_t until_us)
{
    struct pollfd fd = {ear->changed_fd, POLLIN, 0};
    int64_t left_ms = (until_us - hf__local_us()) / 1000 + 1;
    uint64_t rung;
    if (until_us <= hf__local_us()) return 0;
    pthread_mutex_unlock(&ear->mu);
    /* In a suspend no time passes for it. */
    poll(&fd, 1, left_ms > LONGEST_MS ? LONGEST_MS : (int)left_ms);
    ssize_t n = read(ear->changed_fd, &rung, sizeof rung);
    (void)n;
    pthread_mutex_lock(&ear->mu);
    return 1;
}

void hf__mg_ear_free(hf__mg_ear *ear)
{
    if (!ear) return;
    pthread_mutex_lock(&ear->mu);
    ear->ends = 1;
    int64_t until_us = hf__local_us() + CLOSE_MS * INT64_C(1000);
    while (ear->refs > 1 && sleep_until(ear, until_us)) continue;
    let_go(ear);
}

/* ---- the thread ---- */

/* Shorter than any request may take. */
static int64_t await_ms(const hf__mg_ear *ear)
{
    int64_t half = ear->how.io_timeout_ms / 2;
    return half < AWAIT_MS ? half : AWAIT_MS;
}

/* What the event says there. */
static int find_at(const bson_t *event, const char *path, bson_iter_t *ret)
{
    bson_iter_t it;
    return bson_iter_init(&it, event) && bson_iter_find_descendant(&it, path, ret);
}

#define CHANGED "updateDescription.updatedFields."

static int number_at(const bson_t *event, const char *path, int64_t *ret)
{
    bson_iter_t it;
    if (!find_at(event, path, &it) || !BSON_ITER_HOLDS_NUMBER(&it)) return 0;
    *ret = bson_iter_as_int64(&it);
    return *ret >= 0;
}

/* The new holder, from this change on. */
static void read_handed(const bson_t *event, hf_party *ret)
{
    bson_iter_t it;
    int64_t token, flags = HF_PARTY_UNCLAIMED;
    uint32_t len;
    ret->token = 0;
    if (!find_at(event, CHANGED "request", &it) || !BSON_ITER_HOLDS_UTF8(&it)) return;
    const char *text = bson_iter_utf8(&it, &len);
    if (!hf__read_id(text, len, ret->id) || !number_at(event, CHANGED "token", &token) ||
        !number_at(event, CHANGED "acquired_us", &ret->since_us) ||
        !number_at(event, CHANGED "expires_us", &ret->expires_us))
        return;
    /* It has changed as well, unless the holder before was handed the key, too. */
    if (find_at(event, CHANGED "more", &it)) {
        flags = 0;
        if (!BSON_ITER_HOLDS_DOCUMENT(&it)) return;
        number_at(event, CHANGED "more.flags", &flags);
        number_at(event, CHANGED "more.token", &token);
    }
    ret->flags = (uint8_t)flags;
    ret->token = (uint64_t)token;
}

/* Does this change of the key concern the wait that listens for it? */
static int concerns(const struct heard *k, const bson_t *event)
{
    bson_iter_t it;
    if (!k->address[0] || !find_at(event, CHANGED HF_MG_ADDRESSES, &it) ||
        !BSON_ITER_HOLDS_UTF8(&it))
        return 1; /* it isn't in line, or the row is gone, or was written by somebody else */
    return strstr(bson_iter_utf8(&it, NULL), k->address) != NULL;
}

/* The key that a change is of; NULL: nobody here knows it. *ret_any: the event doesn't say which.
 */
static struct heard *changed_key(const hf__mg_ear *ear, const bson_t *event, int *ret_any)
{
    bson_iter_t id;
    uint32_t len;
    *ret_any = !find_at(event, "documentKey._id", &id) || !BSON_ITER_HOLDS_UTF8(&id);
    if (*ret_any) return NULL;
    const char *key = bson_iter_utf8(&id, &len);
    return (struct heard *)hf__sub_find(&ear->sub, key, len, hf_key_hash(key, len));
}

/* A change: of a key that somebody here waits for, or of something that isn't told. */
static void hear(hf__mg_ear *ear, const bson_t *event)
{
    int any;
    pthread_mutex_lock(&ear->mu);
    struct heard *k = changed_key(ear, event, &any);
    if (k) read_handed(event, &k->handed);
    int matters = any || (k && hf__sub_is_wanted(&k->key) && concerns(k, event));
    if (any)
        hf__sub_put_any(&ear->sub);
    else if (matters)
        hf__sub_put_event(&ear->sub, &k->key);
    if (matters) {
        ear->heard++;
        ring(ear);
    }
    pthread_mutex_unlock(&ear->mu);
}

static void forget_handed(struct hf__sub_key *k, void *arg)
{
    (void)arg;
    ((struct heard *)k)->handed.token = 0;
}

/* What came before isn't known. Under the mutex. */
static void lose(hf__mg_ear *ear)
{
    ear->heard++;
    hf__sub_put_any(&ear->sub);
    hf__sub_each(&ear->sub, forget_handed, NULL);
}

static int wanted(hf__mg_ear *ear, enum ear_state state)
{
    pthread_mutex_lock(&ear->mu);
    if (state != ear->state) {
        ear->state = state;
        lose(ear);
        ring(ear);
    }
    int64_t now_us = hf__local_us();
    if (hf__sub_wanted(&ear->sub)) ear->wanted_us = now_us;
    int is = !ear->ends && now_us - ear->wanted_us < IDLE_MS * INT64_C(1000);
    if (!is) {
        ear->state = EAR_OFF; /* from here on another may be started */
        hf__sub_each(&ear->sub, forget_handed, NULL);
    }
    pthread_mutex_unlock(&ear->mu);
    return is;
}

/* 0: nobody wants to hear any more; else it can't. *ret_heard: it could. */
static int read_stream(hf__mg_ear *ear, mongoc_change_stream_t *stream, int *ret_heard)
{
    const bson_t *event, *reply;
    bson_error_t e;
    if (mongoc_change_stream_error_document(stream, &e, &reply)) return 1;
    while (wanted(ear, EAR_HEARS)) {
        int64_t asked_us = hf__local_us();
        if (mongoc_change_stream_next(stream, &event))
            hear(ear, event);
        else if (mongoc_change_stream_error_document(stream, &e, &reply))
            return 1;
        else if (hf__local_us() - asked_us < await_ms(ear) * 100)
            return 1; /* a server that answers "nothing" at once would be asked all the time */
        *ret_heard = 1;
    }
    return 0;
}

#define FIELD(name) "updateDescription.updatedFields." name, BCON_INT32(1)

/* As read_stream, with a connection of its own. */
static int follow(hf__mg_ear *ear, struct hf__mg_link *link, int *ret_heard)
{
    *ret_heard = 0;
    if (hf__mg_connect(&ear->how, link, NULL) || !link->replicated) return 1;
    link->until_us = 0; /* libmongoc's time limits are right for a stream that goes on */
    mongoc_collection_t *rows =
        mongoc_client_get_collection(link->client, ear->how.db, ear->how.collection);
    bson_t *only =
        BCON_NEW("pipeline", "[", "{", "$project", "{", "documentKey", BCON_INT32(1),
                 FIELD("request"), FIELD("token"), FIELD("acquired_us"), FIELD("expires_us"),
                 FIELD("more"), FIELD(HF_MG_ADDRESSES), "}", "}", "]");
    bson_t *opts = BCON_NEW("maxAwaitTimeMS", BCON_INT64(await_ms(ear)));
    mongoc_change_stream_t *stream = mongoc_collection_watch(rows, only, opts);
    int deaf = read_stream(ear, stream, ret_heard);
    mongoc_change_stream_destroy(stream);
    mongoc_collection_destroy(rows);
    bson_destroy(only);
    bson_destroy(opts);
    return deaf;
}

static void *run(void *arg)
{
    hf__mg_ear *ear = arg;
    struct hf__mg_link link = {.client = NULL};
    int deaf = 1, heard = 1;
    /* A stream that breaks is begun anew at once: there may be another primary. One that was never
       heard isn't. */
    while (deaf && heard && hf__mg_begin()) {
        deaf = follow(ear, &link, &heard);
        hf__mg_disconnect(&link);
        hf__mg_end();
        if (deaf && heard && !wanted(ear, EAR_STARTING)) deaf = 0;
    }
    pthread_mutex_lock(&ear->mu);
    if (deaf) {
        ear->deaf_until_us = hf__local_us() + DEAF_MS * INT64_C(1000);
        ear->state = EAR_OFF;
        lose(ear);
    }
    ring(ear);
    let_go(ear);
    return NULL;
}

/* Under the mutex. */
static int start(hf__mg_ear *ear)
{
    pthread_t thread;
    pthread_attr_t attr;
    sigset_t all, before;
    if (hf__local_us() < ear->deaf_until_us) return 0;
    /* Who waits may be a thread of the caller's, whose signals stay its own. */
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGSEGV);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    ear->state = EAR_STARTING;
    ear->refs++;
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&thread, &attr, run, ear);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (!rc) return 1;
    ear->refs--;
    ear->state = EAR_OFF;
    return 0;
}

/* ---- who watches ---- */

static struct heard *find(const hf__mg_ear *ear, const hf_rowkey *key)
{
    return (struct heard *)hf__sub_find(&ear->sub, key->text, key->len, key->hash);
}

int hf__mg_subscribe(hf__mg_ear *ear, const hf_rowkey *key)
{
    pthread_mutex_lock(&ear->mu);
    struct heard *k = (struct heard *)hf__sub_want(&ear->sub, key, NULL, 0, NULL);
    if (k) k->address[0] = 0;
    if (k && k->key.in_line) hf__put_address(k->address, k->key.who);
    pthread_mutex_unlock(&ear->mu);
    return k ? 0 : HF_NOMEM;
}

void hf__mg_unsubscribe(hf__mg_ear *ear, const hf_rowkey *key)
{
    pthread_mutex_lock(&ear->mu);
    struct heard *k = find(ear, key);
    if (k) hf__sub_unwant(&ear->sub, &k->key);
    pthread_mutex_unlock(&ear->mu);
}

int hf__mg_next_event(hf__mg_ear *ear, hf_key_event *ret)
{
    pthread_mutex_lock(&ear->mu);
    int is = hf__sub_next_event(&ear->sub, ret);
    pthread_mutex_unlock(&ear->mu);
    return is;
}

int hf__mg_flush(hf__mg_ear *ear, hf_event_count *ret, hf_error *err)
{
    int rc = 0;
    pthread_mutex_lock(&ear->mu);
    int wanted = hf__sub_wanted(&ear->sub) != 0;
    if (wanted) ear->wanted_us = hf__local_us();
    int64_t until_us = hf__local_us() + ear->how.io_timeout_ms * 1000;
    while (wanted && ear->state != EAR_HEARS && !rc)
        if ((ear->state == EAR_OFF && !start(ear)) || !sleep_until(ear, until_us))
            rc = hf_fail(err, HF_UNAVAILABLE, 0, "mongodb: listen: no change stream");
    ret->n[0] = ear->heard;
    ret->n[1] = 0;
    pthread_mutex_unlock(&ear->mu);
    return rc;
}

int hf__mg_sleep(hf__mg_ear *ear, const hf_event_count *since, int64_t until_us, hf_error *err)
{
    int rc = 0, over = 0;
    pthread_mutex_lock(&ear->mu);
    while (!over && !ear->interrupted && ear->heard == since->n[0])
        over = !sleep_until(ear, until_us);
    ear->interrupted = 0;
    if (hf__sub_wanted(&ear->sub) && ear->state != EAR_HEARS)
        rc = hf_fail(err, HF_UNAVAILABLE, 0, "mongodb: watch: the change stream broke");
    pthread_mutex_unlock(&ear->mu);
    return rc;
}

int hf__mg_payload(hf__mg_ear *ear, const hf_rowkey *key, hf_row *row)
{
    hf_row_clear(row);
    pthread_mutex_lock(&ear->mu);
    const struct heard *k = find(ear, key);
    int found = k && k->handed.token;
    if (found) row->party[0] = k->handed;
    pthread_mutex_unlock(&ear->mu);
    row->n_holders = (uint32_t)found;
    row->token = found ? row->party[0].token : 0;
    return found;
}

void hf__mg_interrupt(hf__mg_ear *ear)
{
    pthread_mutex_lock(&ear->mu);
    ear->interrupted = 1;
    ring(ear);
    pthread_mutex_unlock(&ear->mu);
}
