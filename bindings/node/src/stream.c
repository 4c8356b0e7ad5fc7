/*
 * stream.c - passes on the rows that list and watch show. Each stream has a thread of its own,
 * which pauses while JavaScript hasn't taken AHEAD of the rows yet.
 */
#include "addon.h"

#include <stdlib.h>
#include <string.h>

enum { AHEAD = 1024 };

struct stream {
    struct event event; /* posted when the stream has ended */
    struct object object;
    struct stream *next, **prev;
    struct store *store;
    napi_ref callback;
    bool watches;
    int code;
    hf_error err;
    pthread_mutex_t mu; /* protects `ahead` and `stop` */
    pthread_cond_t taken;
    unsigned ahead;
    bool stop;
    char prefix[HF_KEY_CAP + 3];
};

struct item {
    struct event event;
    struct stream *stream;
    struct info *info;
};

static void item_drop(struct event *e)
{
    struct item *item = (struct item *)e;
    free(item->info);
    free(item);
}

/* Calls back with (info), and in the end with (null, error | undefined). */
static void call_back(struct addon *a, struct stream *stream, napi_value info, napi_value error)
{
    napi_value callback, undefined, ignored, argv[2] = {info, error};
    napi_get_undefined(a->env, &undefined);
    if (!error) argv[1] = undefined;
    if (!napi_get_reference_value(a->env, stream->callback, &callback) && callback)
        napi_call_function(a->env, undefined, callback, 2, argv, &ignored);
}

static void item_deliver(struct addon *a, struct event *e)
{
    struct item *item = (struct item *)e;
    call_back(a, item->stream, info_value(a, &item->info->it), NULL);
    item_drop(e);
}

static void end_drop(struct event *e)
{
    struct stream *stream = (struct stream *)e;
    pthread_mutex_destroy(&stream->mu);
    pthread_cond_destroy(&stream->taken);
    free(stream);
}

static void end_deliver(struct addon *a, struct event *e)
{
    struct stream *stream = (struct stream *)e;
    struct store *s = stream->store;
    napi_value null, error = NULL;
    napi_get_null(a->env, &null);
    if (stream->code && !stream->stop) error = failure(a, &stream->err, stream->code, NULL);
    strike(a, &stream->object);
    if ((*stream->prev = stream->next)) stream->next->prev = stream->prev;
    call_back(a, stream, null, error);
    napi_delete_reference(a->env, stream->callback);
    end_drop(e);
    store_unref(s);
}

/* Posts a row that was seen. Runs on the stream's thread. */
static int see(void *arg, const hf_info *info)
{
    struct stream *stream = arg;
    struct item *item = NULL;
    pthread_mutex_lock(&stream->mu);
    while (info && stream->ahead >= AHEAD && !stream->stop)
        pthread_cond_wait(&stream->taken, &stream->mu);
    bool stop = stream->stop;
    if (info && !stop) stream->ahead++;
    pthread_mutex_unlock(&stream->mu);
    if (!info || stop) return stop;
    if (!(item = malloc(sizeof *item)) || !(item->info = info_copy(info))) {
        free(item);
        stream->code = HF_NOMEM;
        return 1;
    }
    item->event = (struct event){item_deliver, item_drop};
    item->stream = stream;
    post(stream->store->addon, &item->event);
    return 0;
}

static void *stream_body(void *arg)
{
    struct stream *stream = arg;
    struct store *s = stream->store;
    int rc =
        (stream->watches ? hf_watch : hf_list)(s->h, stream->prefix, see, stream, &stream->err);
    if (rc) stream->code = rc;
    /* the stream may be freed from here on, but not the store: closing it waits for this thread */
    post(s->addon, &stream->event);
    pthread_mutex_lock(&s->mu);
    s->n_streaming--;
    pthread_cond_broadcast(&s->idle);
    pthread_mutex_unlock(&s->mu);
    return NULL;
}

static void stop(struct stream *stream)
{
    pthread_mutex_lock(&stream->mu);
    stream->stop = true;
    pthread_cond_signal(&stream->taken);
    pthread_mutex_unlock(&stream->mu);
}

void streams_stop(struct store *s)
{
    for (struct stream *stream = s->streams; stream; stream = stream->next) stop(stream);
}

static int stream_start(struct stream *stream)
{
    pthread_t thread;
    struct store *s = stream->store;
    pthread_mutex_lock(&s->mu);
    s->n_streaming++;
    int rc = start_thread(&thread, stream_body, stream);
    if (rc) s->n_streaming--;
    pthread_mutex_unlock(&s->mu);
    if (!rc) pthread_detach(thread);
    return rc;
}

/* (store, prefix, watches, callback) Starts a stream. Returns its id. */
static napi_value js_stream(napi_env env, napi_callback_info info)
{
    napi_value argv[4];
    struct addon *a = begin(env, info, 4, argv);
    struct store *s = store_of(a, argv[0]);
    struct stream *stream;
    if (!s || !(stream = calloc(1, sizeof *stream))) return NULL;
    if (take_text(env, argv[1], stream->prefix, sizeof stream->prefix, NULL, "prefix")) {
        free(stream);
        return NULL;
    }
    pthread_mutex_init(&stream->mu, NULL);
    pthread_cond_init(&stream->taken, NULL);
    stream->event = (struct event){end_deliver, end_drop};
    stream->store = s;
    napi_get_value_bool(env, argv[2], &stream->watches);
    if (!enroll(a, &stream->object, KIND_STREAM) ||
        napi_create_reference(env, argv[3], 1, &stream->callback) || stream_start(stream)) {
        strike(a, &stream->object);
        if (stream->callback) napi_delete_reference(env, stream->callback);
        end_drop(&stream->event);
        fail(a, HF_NOMEM, NULL, "no thread to list with");
        return NULL;
    }
    s->refs++;
    stream->prev = &s->streams;
    if ((stream->next = s->streams)) s->streams->prev = &stream->next;
    s->streams = stream;
    return number(env, stream->object.id);
}

static struct stream *stream_of(struct addon *a, napi_value id)
{
    struct object *found = named(a, id, KIND_STREAM);
    return found ? (struct stream *)(void *)((char *)found - offsetof(struct stream, object))
                 : NULL;
}

/* (stream) Notes that the program has taken one more row. */
static napi_value js_took(napi_env env, napi_callback_info info)
{
    napi_value argv[1];
    struct addon *a = begin(env, info, 1, argv);
    struct stream *stream = stream_of(a, argv[0]);
    if (!stream) return NULL;
    pthread_mutex_lock(&stream->mu);
    stream->ahead--;
    pthread_cond_signal(&stream->taken);
    pthread_mutex_unlock(&stream->mu);
    return NULL;
}

/* (stream) */
static napi_value js_stop(napi_env env, napi_callback_info info)
{
    napi_value argv[1];
    struct addon *a = begin(env, info, 1, argv);
    struct stream *stream = stream_of(a, argv[0]);
    if (stream) stop(stream);
    return NULL;
}

void stream_exports(napi_env env, napi_value exports)
{
    static const struct method methods[] = {
        {"stream", js_stream}, {"took", js_took}, {"stop", js_stop}};
    ADD_METHODS(env, exports, methods);
}
