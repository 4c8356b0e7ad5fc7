/*
 * watch.c - waking who waits: watches of etcd's, as a request that goes on answering.
 *
 * A stream is one watch: what ends it ends nothing else. One is of the letters to this handle.
 * Others are of what is deleted beside the keys in whose lines somebody here stands, which tells of
 * sessions that have ended; or of all that is written beside keys that are waited for in another
 * way: from the first to the last of those that were waited for when it was begun. Keys that come
 * later get a further stream; when there are too many of these all keys of that kind get a new one.
 */
#include "etcd.h"

#include "os.h"
#include "stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { DEAF_MS = 5000, IDLE_MS = 5000, POLL_MS = 60000 };

/* What a stream is of. */
enum kind { ENDS, ALL, LETTERS };
enum { OF_A_KIND = 4, STREAMS = 2 * OF_A_KIND + 1 };
_Static_assert((int)STREAMS <= (int)HF_ET_STREAMS_CAP, "all of them are waited for");

struct stream {
    enum kind kind;
    char *first, *last; /* of the keys that it watches, with all between them */
    int created, broken;
    struct hf__et_ear *ear;
};

/* All keys from the first to the last; NULL: of none. */
struct range {
    char *first, *last;
};

struct hf__et_ear {
    pthread_mutex_t mu; /* of who listens or watches, for as long as that takes: of what follows */
    const hf_store *st;
    int wake_fd;
    struct stream stream[STREAMS];
    struct hf__et_stream *open[STREAMS]; /* NULL: unused */
    struct range pending[LETTERS];       /* keys that no stream watches yet; of each kind */
    int letters, anew;                   /* letters are to be watched; streams have ended */
    uint64_t heard;
    int64_t deaf_until_us, used_at_us;
};

static void free_stream(struct stream *s)
{
    free(s->first);
    free(s->last);
    memset(s, 0, sizeof *s);
}

static void end_stream(struct hf__et_ear *ear, int i)
{
    if (!ear->open[i]) return;
    hf__et_stream_end(ear->open[i]);
    ear->open[i] = NULL;
    ear->anew = 1;
    hf__et_words_forget(ear->st->words);
    free_stream(&ear->stream[i]);
}

static void end_streams(struct hf__et_ear *ear)
{
    for (int i = 0; i < STREAMS; i++) end_stream(ear, i);
}

static void end_kind(struct hf__et_ear *ear, enum kind kind)
{
    for (int i = 0; i < STREAMS; i++)
        if (ear->stream[i].kind == kind) end_stream(ear, i);
}

/* ---- what they say ---- */

static void hear(void *arg, const ProtobufCMessage *said)
{
    struct stream *s = arg;
    const HfEt__WatchResponse *is = (const HfEt__WatchResponse *)said;
    if (!is || is->canceled)
        s->broken = 1;
    else if (is->created)
        s->created = 1;
    if (is) s->ear->heard += hf__et_words_hear(s->ear->st, is, s->kind == ENDS);
}

/* Lets them go on. 0; or one of them has ended, and is gone. */
static int perform(struct hf__et_ear *ear)
{
    int ended = 0;
    hf__et_streams_perform(ear->open, STREAMS);
    for (int i = 0; i < STREAMS; i++)
        if (ear->open[i] && (ear->stream[i].broken || hf__et_stream_ended(ear->open[i]))) {
            end_stream(ear, i);
            ended = 1;
        }
    /* What it would have told isn't known. */
    if (ended) ear->heard++;
    return ended;
}

/* ---- what is asked ---- */

/* The watch of all keys from `first` to `last`. A control character comes before all that keys are
   made of, so that what stands beside them lies in between. */
static void request(const hf_store *st, enum kind kind, const char *first, const char *last,
                    struct hf__et_mem *mem, HfEt__WatchCreateRequest *ret)
{
    static HfEt__WatchCreateRequest__FilterType filter[] = {
        [ENDS] = HF_ET__WATCH_CREATE_REQUEST__FILTER_TYPE__NOPUT,
        [LETTERS] = HF_ET__WATCH_CREATE_REQUEST__FILTER_TYPE__NODELETE};
    int beside = kind != LETTERS;
    hf_et__watch_create_request__init(ret);
    ret->has_key = ret->has_range_end = ret->has_prev_kv = 1;
    ret->key = hf__et_key(st, mem, first, beside ? "\t" : "");
    ret->range_end = hf__et_key(st, mem, last, beside ? "\n" : "");
    ret->prev_kv = kind == ENDS; /* what was there of which the end is told: see words.c */
    ret->n_filters = kind != ALL;
    ret->filters = &filter[kind];
}

static int begin_stream(hf_store *st, enum kind kind, int i, const char *first, const char *last)
{
    struct hf__et_ear *ear = st->ear;
    struct stream *s = &ear->stream[i];
    struct hf__et_mem mem = {NULL, 0};
    HfEt__WatchCreateRequest create;
    HfEt__WatchRequest watch = HF_ET__WATCH_REQUEST__INIT;
    request(st, kind, first, last, &mem, &create);
    watch.create_request = &create;
    s->ear = ear;
    s->kind = kind;
    s->first = strdup(first);
    s->last = strdup(last);
    if (s->first && s->last)
        ear->open[i] = hf__et_stream_begin(&st->http, HF_ET_WATCH, &watch.base, &mem, hear, s);
    hf__et_mem_free(&mem);
    if (ear->open[i]) return 0;
    free_stream(s);
    return HF_UNAVAILABLE;
}

static int all_created(const struct hf__et_ear *ear)
{
    for (int i = 0; i < STREAMS; i++)
        if (ear->open[i] && !ear->stream[i].created) return 0;
    return 1;
}

/* Until etcd has said that it watches them. */
static int await_created(hf_store *st)
{
    int64_t until_us = hf__local_us() + st->http.io_timeout_ms * 1000;
    while (!all_created(st->ear)) {
        int64_t left = (until_us - hf__local_us()) / 1000;
        if (perform(st->ear) || left <= 0) return HF_UNAVAILABLE;
        if (!all_created(st->ear)) hf__et_streams_wait(st->ear->open, STREAMS, -1, (int)left + 1);
    }
    return 0;
}

static int deaf(hf_store *st, const char *why, hf_error *err)
{
    end_streams(st->ear);
    st->ear->anew = 1; /* also where none was begun */
    st->ear->heard++;
    st->ear->deaf_until_us = hf__local_us() + DEAF_MS * INT64_C(1000);
    hf__et_next(&st->http);
    return hf_fail(err, HF_UNAVAILABLE, 0, "etcd: listen: %s", why);
}

static int watched(const struct hf__et_ear *ear, enum kind kind, const char *key)
{
    for (int i = 0; i < STREAMS; i++) {
        const struct stream *s = &ear->stream[i];
        if (ear->open[i] && s->kind == kind && strcmp(s->first, key) <= 0 &&
            strcmp(key, s->last) <= 0)
            return 1;
    }
    return 0;
}

static enum kind kind_for(int in_line) { return in_line ? ENDS : ALL; }

/* ---- ranges of keys ---- */

static void clear_range(struct range *r)
{
    free(r->first);
    free(r->last);
    *r = (struct range){NULL, NULL};
}

/* 0 or HF_NOMEM. */
static int extend(struct range *r, const char *key)
{
    char **at[] = {&r->first, &r->last};
    for (int i = 0; i < 2; i++) {
        int order = *at[i] ? strcmp(key, *at[i]) : 0;
        if (*at[i] && (i ? order <= 0 : order >= 0)) continue;
        char *text = strdup(key);
        if (!text) return HF_NOMEM;
        free(*at[i]);
        *at[i] = text;
    }
    return 0;
}

/* All keys that begin as both of its ends do: those that are waited for later are among them, as a
   rule, and need no further stream. 0 or HF_NOMEM. */
static int widen(struct range *r)
{
    size_t n = 0;
    while (r->first[n] && r->first[n] == r->last[n]) n++;
    char *last = malloc(n + 2);
    if (!last) return HF_NOMEM;
    memcpy(last, r->first, n);
    last[n] = '\xff'; /* which no key has */
    last[n + 1] = 0;
    free(r->last);
    r->last = last;
    if (!n) r->first[n++] = ' '; /* the least that a key begins with: letters are before it */
    r->first[n] = 0;
    return 0;
}

struct walk {
    struct hf__et_ear *ear;
    enum kind kind;
    int all, failed; /* all: those that a stream watches, too */
};

static void see_wanted(void *arg, const char *key, int in_line)
{
    struct walk *w = arg;
    if (kind_for(in_line) != w->kind || (!w->all && watched(w->ear, w->kind, key))) return;
    if (extend(&w->ear->pending[w->kind], key)) w->failed = 1;
}

/* All keys that are waited for in that way are pending; but for those that a stream watches, unless
   `all`. 0 or HF_NOMEM. */
static int pend_wanted(struct hf__et_ear *ear, enum kind kind, int all)
{
    struct walk w = {ear, kind, all, 0};
    hf__et_words_each_wanted(ear->st->words, see_wanted, &w);
    return w.failed ? HF_NOMEM : 0;
}

/* -1: none. */
static int unused_stream(const struct hf__et_ear *ear, enum kind kind)
{
    int first = (int)kind * OF_A_KIND, n = kind == LETTERS ? 1 : OF_A_KIND;
    for (int i = first; i < first + n; i++)
        if (!ear->open[i]) return i;
    return -1;
}

static int watch_kind(hf_store *st, enum kind kind)
{
    struct hf__et_ear *ear = st->ear;
    struct range *r = &ear->pending[kind];
    if (!r->first) return 0;
    int at = unused_stream(ear, kind), rc = 0;
    if (at < 0) {
        end_kind(ear, kind);
        ear->heard++;
        at = unused_stream(ear, kind);
        rc = pend_wanted(ear, kind, 1);
        if (!rc) rc = widen(r);
    }
    if (!rc) rc = begin_stream(st, kind, at, r->first, r->last);
    clear_range(r);
    return rc;
}

/* They come to whoever stands in line. */
static int watch_letters(hf_store *st)
{
    char first[HF_ET_ADDRESS_CAP], behind[HF_ET_ADDRESS_CAP];
    int at = unused_stream(st->ear, LETTERS);
    if (at < 0) return 0;
    hf__et_address(st, first, 0);
    hf__et_address(st, behind, 1);
    return begin_stream(st, LETTERS, at, first, behind);
}

static int watch_more(hf_store *st, hf_error *err)
{
    struct hf__et_ear *ear = st->ear;
    int rc = 0;
    if (ear->anew)
        for (int kind = 0; kind < LETTERS && !rc; kind++) rc = pend_wanted(ear, kind, 0);
    int letters = ear->letters && unused_stream(ear, LETTERS) >= 0;
    if (!rc && !letters && !ear->pending[ENDS].first && !ear->pending[ALL].first) return 0;
    if (hf__local_us() < ear->deaf_until_us)
        return hf_fail(err, HF_UNAVAILABLE, 0, "etcd: listen: not heard lately");
    if (!rc) rc = watch_kind(st, ENDS);
    if (!rc) rc = watch_kind(st, ALL);
    if (!rc && letters) rc = watch_letters(st);
    ear->anew = 0;
    if (!rc) rc = await_created(st);
    return rc ? deaf(st, "no watch", err) : 0;
}

static int flush_locked(hf_store *st, hf_event_count *ret, hf_error *err)
{
    struct hf__et_ear *ear = st->ear;
    /* What came for keys before is told of them. They go on being heard while nobody waits: who
       holds one of them, and was told so, gives it on as the next letter says. */
    perform(ear);
    hf__et_words_listen(st->words);
    if (hf__et_words_n_wanted(st->words)) {
        ear->used_at_us = hf__local_us();
        int rc = watch_more(st, err);
        if (rc) return rc;
    }
    ret->n[0] = ear->heard;
    ret->n[1] = 0;
    return 0;
}

static int subscribe(hf_store *st, const hf_rowkey *key)
{
    struct hf__et_ear *ear = st->ear;
    int in_line = key->who && key->in_line;
    enum kind kind = kind_for(in_line);
    pthread_mutex_lock(&ear->mu);
    int rc = hf__et_words_subscribe(st->words, key);
    if (!rc && !watched(ear, kind, key->text)) rc = extend(&ear->pending[kind], key->text);
    ear->letters |= in_line;
    pthread_mutex_unlock(&ear->mu);
    return rc;
}

static void unsubscribe(hf_store *st, const hf_rowkey *key)
{
    hf__et_words_unsubscribe(st->words, key);
}

static int next_event(hf_store *st, hf_key_event *ret)
{
    return hf__et_words_next_event(st->words, ret);
}

static int flush(hf_store *st, hf_event_count *ret, hf_error *err)
{
    pthread_mutex_lock(&st->ear->mu);
    int rc = flush_locked(st, ret, err);
    pthread_mutex_unlock(&st->ear->mu);
    return rc;
}

/* Was it interrupted since it was asked last? */
static int is_woken(struct hf__et_ear *ear)
{
    uint64_t n;
    return read(ear->wake_fd, &n, sizeof n) == (ssize_t)sizeof n;
}

static int sleep_locked(hf_store *st, const hf_event_count *since, int64_t until_us, hf_error *err)
{
    struct hf__et_ear *ear = st->ear;
    while (!is_woken(ear)) {
        int64_t now = hf__local_us(), left = (until_us - now) / 1000 + 1;
        if (perform(ear)) return deaf(st, "the connection broke", err);
        if (ear->heard != since->n[0] || until_us <= now) return 0;
        /* Nobody waits any more: the next one may, soon. */
        int wanted = hf__et_words_n_wanted(ear->st->words) != 0;
        if (!wanted && now - ear->used_at_us >= IDLE_MS * INT64_C(1000))
            end_streams(ear);
        else if (!wanted && left > IDLE_MS)
            left = IDLE_MS;
        if (hf__et_streams_wait(ear->open, STREAMS, ear->wake_fd,
                                left > POLL_MS ? POLL_MS : (int)left))
            return deaf(st, "it can't be waited for", err);
    }
    return 0;
}

static int sleep_until(hf_store *st, const hf_event_count *since, int64_t until_us, hf_error *err)
{
    pthread_mutex_lock(&st->ear->mu);
    int rc = sleep_locked(st, since, until_us, err);
    pthread_mutex_unlock(&st->ear->mu);
    return rc;
}

/* Takes in what has come, unless somebody is watching, who does. The next watch says that it was
   heard. Streams that have ended are left to it, too: who looks now must look again when there are
   others, and who watches is deaf until then. */
static void catch_up(struct hf__et_ear *ear)
{
    if (pthread_mutex_trylock(&ear->mu)) return;
    hf__et_streams_perform(ear->open, STREAMS);
    pthread_mutex_unlock(&ear->mu);
}

static int payload(hf_store *st, const hf_rowkey *key, hf_row *row)
{
    /* Who holds isn't watching: his letter may have come, and nobody has read it yet. */
    if (hf__et_words_wanted(st->words, key)) catch_up(st->ear);
    return hf__et_words_told(st->words, key, row);
}

static void interrupt(hf_store *st)
{
    const uint64_t one = 1;
    ssize_t n = write(st->ear->wake_fd, &one, sizeof one);
    (void)n; /* an eventfd that is full wakes, too */
}

const hf_notify_ops hf__et_notify = {.subscribe = subscribe,
                                     .unsubscribe = unsubscribe,
                                     .flush = flush,
                                     .sleep = sleep_until,
                                     .next_event = next_event,
                                     .payload = payload,
                                     .interrupt = interrupt};

int hf__et_ear_open(hf_store *st, hf_error *err)
{
    st->ear = calloc(1, sizeof *st->ear);
    if (!st->ear) return hf_fail(err, HF_NOMEM, 0, "etcd: open: out of memory");
    pthread_mutex_init(&st->ear->mu, NULL);
    st->ear->st = st;
    st->ear->wake_fd = hf__fd_above(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    int sys = errno;
    if (st->ear->wake_fd >= 0) return 0;
    return hf_fail(err, HF_UNAVAILABLE, sys, "etcd: open: eventfd: %s", strerror(sys));
}

void hf__et_ear_close(hf_store *st)
{
    if (!st->ear) return;
    end_streams(st->ear);
    for (int kind = 0; kind < LETTERS; kind++) clear_range(&st->ear->pending[kind]);
    if (st->ear->wake_fd >= 0) close(st->ear->wake_fd);
    pthread_mutex_destroy(&st->ear->mu);
    free(st->ear);
}
