/*
 * watch.c - wakes the waiters by etcd's watches: requests that go on answering.
 *
 * Each watch is a stream of its own, so the end of one ends no other. There are three kinds. The
 * stream INBOXES covers this handle's inboxes. A stream ENDS brings the deletions of keys beside
 * rows in whose queues this handle has a waiter: they show the ends of sessions. A stream ALL
 * brings every write to the other rows that are waited for, and to the keys beside them. A stream
 * of these two kinds reaches from the first to the last key that was waited for when it began.
 * Later keys get a further stream. If a kind has too many streams, one new stream replaces them.
 */
#include "etcd.h"

#include "kit/await.h"
#include "range.h"
#include "stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RETRY_MS = 5000, IDLE_MS = 5000 };

/* What a stream brings: see above. */
enum kind { ENDS, ALL, INBOXES };
enum { OF_A_KIND = 4, STREAMS = 2 * OF_A_KIND + 1 };
_Static_assert((int)STREAMS <= (int)HF_ET_STREAMS_CAP, "all of them are waited for");

struct stream {
    enum kind kind;
    char *first, *last; /* the first and the last key that the stream covers */
    int created, broken;
    struct hf__et_watcher *watcher;
};

struct hf__et_watcher {
    pthread_mutex_t mu; /* protects what follows; held during a flush, and during a wait for
                           events */
    const hf_store *st;
    int wake_fd;
    struct stream stream[STREAMS];
    struct hf__et_stream *open[STREAMS];  /* NULL: unused */
    struct hf__et_range pending[INBOXES]; /* for each kind, the keys that no stream watches yet */
    int inboxes, anew; /* inboxes: 1 if they have to be watched. anew: 1 if streams have ended */
    uint64_t events;
    int64_t retry_at_us, used_at_us;
};

static void free_stream(struct stream *s)
{
    free(s->first);
    free(s->last);
    memset(s, 0, sizeof *s);
}

static void end_stream(struct hf__et_watcher *watcher, int i)
{
    if (!watcher->open[i]) return;
    hf__et_stream_end(watcher->open[i]);
    watcher->open[i] = NULL;
    watcher->anew = 1;
    hf__et_words_forget(watcher->st->words);
    free_stream(&watcher->stream[i]);
}

static void end_streams(struct hf__et_watcher *watcher)
{
    for (int i = 0; i < STREAMS; i++) end_stream(watcher, i);
}

static void end_kind(struct hf__et_watcher *watcher, enum kind kind)
{
    for (int i = 0; i < STREAMS; i++)
        if (watcher->stream[i].kind == kind) end_stream(watcher, i);
}

/* ---- what the streams bring ---- */

static void receive(void *arg, const ProtobufCMessage *said)
{
    struct stream *s = arg;
    const HfEt__WatchResponse *is = (const HfEt__WatchResponse *)said;
    if (!is || is->canceled)
        s->broken = 1;
    else if (is->created)
        s->created = 1;
    if (is) s->watcher->events += hf__et_words_receive(s->watcher->st, is, s->kind == ENDS);
}

/* Takes in what has come to the streams. Returns 0; 1: at least one stream has ended and was
   removed. */
static int perform(struct hf__et_watcher *watcher)
{
    int ended = 0;
    hf__et_streams_perform(watcher->open, STREAMS);
    for (int i = 0; i < STREAMS; i++)
        if (watcher->open[i] &&
            (watcher->stream[i].broken || hf__et_stream_ended(watcher->open[i]))) {
            end_stream(watcher, i);
            ended = 1;
        }
    /* The events that the ended stream would have brought aren't known. */
    if (ended) watcher->events++;
    return ended;
}

/* ---- beginning streams ---- */

/* Makes the request for a watch of the keys beside the rows from `first` to `last`: from `first`
   and a tabulator to `last` and a newline, which sorts next to it. (Each write of a row also writes
   its rev, which is beside it.) For INBOXES: of the keys from `first` to before `last`. */
static void request(const hf_store *st, enum kind kind, const char *first, const char *last,
                    struct hf__et_mem *mem, HfEt__WatchCreateRequest *ret)
{
    static HfEt__WatchCreateRequest__FilterType filter[] = {
        [ENDS] = HF_ET__WATCH_CREATE_REQUEST__FILTER_TYPE__NOPUT,
        [INBOXES] = HF_ET__WATCH_CREATE_REQUEST__FILTER_TYPE__NODELETE};
    int beside = kind != INBOXES;
    hf_et__watch_create_request__init(ret);
    ret->has_key = ret->has_range_end = ret->has_prev_kv = 1;
    ret->key = hf__et_key(st, mem, first, beside ? "\t" : "");
    ret->range_end = hf__et_key(st, mem, last, beside ? "\n" : "");
    ret->prev_kv = kind == ENDS; /* the deleted key's lease shows whether a session has ended: see
                                    is_tidied in words.c */
    ret->n_filters = kind != ALL;
    ret->filters = &filter[kind];
}

static int begin_stream(hf_store *st, enum kind kind, int i, const char *first, const char *last)
{
    struct hf__et_watcher *watcher = st->watcher;
    struct stream *s = &watcher->stream[i];
    struct hf__et_mem mem = {NULL, 0};
    HfEt__WatchCreateRequest create;
    HfEt__WatchRequest watch = HF_ET__WATCH_REQUEST__INIT;
    request(st, kind, first, last, &mem, &create);
    watch.create_request = &create;
    s->watcher = watcher;
    s->kind = kind;
    s->first = strdup(first);
    s->last = strdup(last);
    if (s->first && s->last)
        watcher->open[i] =
            hf__et_stream_begin(&st->http, HF_ET_WATCH, &watch.base, &mem, receive, s);
    hf__et_mem_free(&mem);
    if (watcher->open[i]) return 0;
    free_stream(s);
    return HF_UNAVAILABLE;
}

static int all_created(const struct hf__et_watcher *watcher)
{
    for (int i = 0; i < STREAMS; i++)
        if (watcher->open[i] && !watcher->stream[i].created) return 0;
    return 1;
}

/* Waits until etcd has confirmed the watches. */
static int await_created(hf_store *st)
{
    int64_t until_us = hf__local_us() + st->http.io_timeout_ms * 1000;
    while (!all_created(st->watcher)) {
        if (perform(st->watcher) || until_us <= hf__local_us()) return HF_UNAVAILABLE;
        if (!all_created(st->watcher))
            hf__et_streams_wait(st->watcher->open, STREAMS, -1, until_us);
    }
    return 0;
}

static int disconnected(hf_store *st, const char *why, hf_error *err)
{
    end_streams(st->watcher);
    st->watcher->anew = 1; /* the next flush begins the missing streams */
    st->watcher->events++;
    st->watcher->retry_at_us = hf__local_us() + RETRY_MS * INT64_C(1000);
    hf__et_next(&st->http);
    return hf_fail(err, HF_UNAVAILABLE, 0,
                   "etcd: subscribe to notifications: %s; waiters poll meanwhile", why);
}

static int watched(const struct hf__et_watcher *watcher, enum kind kind, const char *key)
{
    for (int i = 0; i < STREAMS; i++) {
        const struct stream *s = &watcher->stream[i];
        if (watcher->open[i] && s->kind == kind && strcmp(s->first, key) <= 0 &&
            strcmp(key, s->last) <= 0)
            return 1;
    }
    return 0;
}

static enum kind kind_for(int in_line) { return in_line ? ENDS : ALL; }

struct walk {
    struct hf__et_watcher *watcher;
    enum kind kind;
    int all, failed; /* all: 1 for keys that a stream covers already, too */
};

static void see_wanted(void *arg, const char *key, int in_line)
{
    struct walk *w = arg;
    if (kind_for(in_line) != w->kind || (!w->all && watched(w->watcher, w->kind, key))) return;
    if (hf__et_range_extend(&w->watcher->pending[w->kind], key)) w->failed = 1;
}

/* Adds to `pending` the keys that need a stream of this kind; without `all`, only keys that no
   stream covers yet. Returns 0 or HF_NOMEM. */
static int pend_wanted(struct hf__et_watcher *watcher, enum kind kind, int all)
{
    struct walk w = {watcher, kind, all, 0};
    hf__et_words_each_wanted(watcher->st->words, see_wanted, &w);
    return w.failed ? HF_NOMEM : 0;
}

/* Returns a stream that isn't in use; -1: none. */
static int unused_stream(const struct hf__et_watcher *watcher, enum kind kind)
{
    int first = (int)kind * OF_A_KIND, n = kind == INBOXES ? 1 : OF_A_KIND;
    for (int i = first; i < first + n; i++)
        if (!watcher->open[i]) return i;
    return -1;
}

static int watch_kind(hf_store *st, enum kind kind)
{
    struct hf__et_watcher *watcher = st->watcher;
    struct hf__et_range *r = &watcher->pending[kind];
    if (!r->first) return 0;
    int at = unused_stream(watcher, kind), rc = 0;
    if (at < 0) {
        end_kind(watcher, kind);
        watcher->events++;
        at = unused_stream(watcher, kind);
        rc = pend_wanted(watcher, kind, 1);
        if (!rc) rc = hf__et_range_widen(r);
    }
    if (!rc) rc = begin_stream(st, kind, at, r->first, r->last);
    hf__et_range_clear(r);
    return rc;
}

/* Watches the inboxes of this handle's queued waiters. */
static int watch_inboxes(hf_store *st)
{
    char first[HF_ET_ADDRESS_CAP], behind[HF_ET_ADDRESS_CAP];
    int at = unused_stream(st->watcher, INBOXES);
    if (at < 0) return 0;
    hf__et_address(st, first, 0);
    hf__et_address(st, behind, 1);
    return begin_stream(st, INBOXES, at, first, behind);
}

static int watch_more(hf_store *st, hf_error *err)
{
    struct hf__et_watcher *watcher = st->watcher;
    int rc = 0;
    if (watcher->anew)
        for (int kind = 0; kind < INBOXES && !rc; kind++) rc = pend_wanted(watcher, kind, 0);
    int inboxes = watcher->inboxes && unused_stream(watcher, INBOXES) >= 0;
    if (!rc && !inboxes && !watcher->pending[ENDS].first && !watcher->pending[ALL].first) return 0;
    if (hf__local_us() < watcher->retry_at_us)
        return hf_fail(err, HF_UNAVAILABLE, 0,
                       "etcd: subscribe to notifications: not tried, because it failed "
                       "less than 5 s ago; waiters poll meanwhile");
    if (!rc) rc = watch_kind(st, ENDS);
    if (!rc) rc = watch_kind(st, ALL);
    if (!rc && inboxes) rc = watch_inboxes(st);
    watcher->anew = 0;
    if (!rc) rc = await_created(st);
    return rc ? disconnected(st, "no watch", err) : 0;
}

static int flush_locked(hf_store *st, hf_event_count *ret, hf_error *err)
{
    struct hf__et_watcher *watcher = st->watcher;
    /* Takes in what has come so far. Streams are read even if no wait is left: a holder that a
       notification named uses later notifications for the handover. */
    perform(watcher);
    hf__et_words_listen(st->words);
    if (hf__et_words_n_wanted(st->words)) {
        watcher->used_at_us = hf__local_us();
        int rc = watch_more(st, err);
        if (rc) return rc;
    }
    ret->n[0] = watcher->events;
    ret->n[1] = 0;
    return 0;
}

static int subscribe(hf_store *st, const hf_rowkey *key)
{
    struct hf__et_watcher *watcher = st->watcher;
    int in_line = key->who && key->in_line;
    enum kind kind = kind_for(in_line);
    pthread_mutex_lock(&watcher->mu);
    int rc = watched(watcher, kind, key->text)
                 ? 0
                 : hf__et_range_extend(&watcher->pending[kind], key->text);
    if (!rc) rc = hf__et_words_subscribe(st->words, key);
    watcher->inboxes |= in_line;
    pthread_mutex_unlock(&watcher->mu);
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
    pthread_mutex_lock(&st->watcher->mu);
    int rc = flush_locked(st, ret, err);
    pthread_mutex_unlock(&st->watcher->mu);
    return rc;
}

static int sleep_locked(hf_store *st, const hf_event_count *since, int64_t until_us, hf_error *err)
{
    struct hf__et_watcher *watcher = st->watcher;
    while (!hf__woken(watcher->wake_fd)) {
        int64_t now = hf__local_us(), idle_at = now + IDLE_MS * INT64_C(1000), end = until_us;
        if (perform(watcher)) return disconnected(st, "the connection broke", err);
        if (watcher->events != since->n[0] || until_us <= now) return 0;
        /* When the last wait has ended, the streams stay open for IDLE_MS, for the next wait. */
        int wanted = hf__et_words_n_wanted(watcher->st->words) != 0;
        if (!wanted && now - watcher->used_at_us >= IDLE_MS * INT64_C(1000))
            end_streams(watcher);
        else if (!wanted && end > idle_at)
            end = idle_at;
        if (hf__et_streams_wait(watcher->open, STREAMS, watcher->wake_fd, end))
            return disconnected(st, "it can't be waited for", err);
    }
    return 0;
}

static int sleep_until(hf_store *st, const hf_event_count *since, int64_t until_us, hf_error *err)
{
    pthread_mutex_lock(&st->watcher->mu);
    int rc = sleep_locked(st, since, until_us, err);
    pthread_mutex_unlock(&st->watcher->mu);
    return rc;
}

/* Reads what has come, unless another thread has the mutex: it sleeps, and so reads the streams
   itself. Streams that have ended aren't removed here: the next sleep does that, and then returns,
   so that waits look again after the streams were opened anew. */
static void catch_up(struct hf__et_watcher *watcher)
{
    if (pthread_mutex_trylock(&watcher->mu)) return;
    hf__et_streams_perform(watcher->open, STREAMS);
    pthread_mutex_unlock(&watcher->mu);
}

static int payload(hf_store *st, const hf_rowkey *key, hf_row *row)
{
    /* While a handle has only a holder, and no wait, no thread reads the streams; so this does. */
    if (hf__et_words_wanted(st->words, key)) catch_up(st->watcher);
    return hf__et_words_told(st->words, key, row);
}

static void interrupt(hf_store *st) { hf__wake(st->watcher->wake_fd); }

const hf_notify_ops hf__et_notify = {.subscribe = subscribe,
                                     .unsubscribe = unsubscribe,
                                     .flush = flush,
                                     .sleep = sleep_until,
                                     .next_event = next_event,
                                     .payload = payload,
                                     .interrupt = interrupt};

int hf__et_notify_open(hf_store *st, hf_error *err)
{
    st->watcher = calloc(1, sizeof *st->watcher);
    if (!st->watcher) return hf_fail(err, HF_NOMEM, 0, "etcd: open: out of memory");
    pthread_mutex_init(&st->watcher->mu, NULL);
    st->watcher->st = st;
    st->watcher->wake_fd = hf__wake_fd();
    int sys = errno;
    if (st->watcher->wake_fd >= 0) return 0;
    return hf_fail(err, HF_UNAVAILABLE, sys, "etcd: open: eventfd: %s", strerror(sys));
}

void hf__et_notify_close(hf_store *st)
{
    if (!st->watcher) return;
    end_streams(st->watcher);
    for (int kind = 0; kind < INBOXES; kind++) hf__et_range_clear(&st->watcher->pending[kind]);
    if (st->watcher->wake_fd >= 0) close(st->watcher->wake_fd);
    pthread_mutex_destroy(&st->watcher->mu);
    free(st->watcher);
}
