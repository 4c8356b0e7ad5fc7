/*
 * store.c - opens and closes a store, and makes the calls about a store as a whole.
 */
#include "addon.h"

#include <stdlib.h>
#include <string.h>

struct store *store_of(struct addon *a, napi_value id)
{
    struct store *s = (struct store *)named(a, id, KIND_STORE);
    if (!s) fail(a, HF_CANCELED, NULL, "the store is closed");
    return s;
}

/* ---- closing ---- */

/* Closes the store: the part that may block. Any thread may call this. */
static void close_now(struct store *s)
{
    pthread_mutex_lock(&s->mu);
    hf *h = s->h; /* NULL: a job is opening it */
    pthread_mutex_unlock(&s->mu);
    hf_close_begin(h); /* so that no job goes on for long */
    jobs_end(s);
    for (size_t i = 0; i < s->n_brought; i++) {
        int rc = hf_release(s->brought[i], NULL);
        /* the store doesn't answer: the other grants end by their leases */
        if (rc && rc != HF_LOST) break;
    }
    hf_close(s->h);
    s->h = NULL;
}

static void *close_body(void *arg)
{
    struct job *job = arg;
    close_now(job->store);
    post(job->store->addon, &job->event);
    return NULL;
}

/* Takes the store out of use, and ends what is under way. */
static void close_begin(struct store *s)
{
    s->closing = true;
    strike(s->addon, &s->object);
    waits_closed(s);
    streams_stop(s);
    locks_closed(s);
}

static napi_value closed(struct addon *a, struct job *job)
{
    struct store *s = job->store;
    if (s->closer_runs) pthread_join(s->closer, NULL);
    s->closer_runs = false;
    locks_forget(s);
    for (struct store **at = &a->stores; *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    s->refs--; /* the reference of the open store; the job has another */
    return NULL;
}

static void close_start(struct store *s, napi_value *promise)
{
    struct job *job = job_new(s, NULL, promise);
    if (!job) return;
    if (!promise) job->deferred = s->dropped;
    job->result = closed;
    close_begin(s);
    if (!start_thread(&s->closer, close_body, job))
        s->closer_runs = true;
    else
        close_body(job);
}

/* Closes a store that its program has dropped. Only its own reference is left. */
static void close_if_dropped(struct store *s)
{
    if (s->dropped && !s->closing) close_start(s, NULL);
}

void store_unref(struct store *s)
{
    if (--s->refs == 1) close_if_dropped(s);
    if (s->refs) return;
    pthread_mutex_destroy(&s->mu);
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->idle);
    free(s->brought);
    free(s->warning);
    free(s);
}

static void *end_body(void *store)
{
    close_now(store);
    return NULL;
}

/* Closes all stores, because the process or the environment ends: side by side, because each server
   that doesn't answer takes its time. Frees nothing, and calls no function of Node. */
void stores_leave(struct addon *a)
{
    for (struct store *s = a->stores; s; s = s->next) {
        if (s->closing) continue;
        close_begin(s);
        if (s->next && !start_thread(&s->closer, end_body, s))
            s->closer_runs = true;
        else
            close_now(s);
    }
    for (struct store *s = a->stores; s; s = s->next) {
        if (s->closer_runs) pthread_join(s->closer, NULL);
        s->closer_runs = false;
    }
}

/* Closes all stores, because the environment ends. Events that are under way are dropped later, and
   don't use what is freed here. */
void stores_end(struct addon *a)
{
    stores_leave(a);
    for (struct store *s; (s = a->stores);) {
        a->stores = s->next;
        for (struct wait *w = s->waits; w; w = w->next) {
            hf_wait_free(w->w);
            w->w = NULL;
        }
        locks_forget(s);
        s->refs = 1;
        store_unref(s);
    }
}

/* (store) */
static napi_value js_close(napi_env env, napi_callback_info info)
{
    napi_value argv[1], promise = NULL;
    struct addon *a = begin(env, info, 1, argv);
    struct store *s = store_of(a, argv[0]);
    if (s) close_start(s, &promise);
    return promise;
}

/* (store) Closes a dropped store once nothing uses it. Returns a promise, which keeps no process
   alive before that; undefined: the store is closed. */
static napi_value js_close_idle(napi_env env, napi_callback_info info)
{
    napi_value argv[1], promise = NULL;
    struct addon *a = begin(env, info, 1, argv);
    struct store *s = (struct store *)named(a, argv[0], KIND_STORE);
    if (s && !napi_create_promise(env, &s->dropped, &promise) && s->refs == 1) close_if_dropped(s);
    return promise;
}

/* ---- opening ---- */

static void open_work(struct job *job)
{
    char warning[HF_TEXT_CAP];
    struct store *s = job->store;
    hf *made = NULL;
    job->code = hf_open(job->url, &job->open, &made, &job->err);
    pthread_mutex_lock(&s->mu);
    s->h = made;
    pthread_mutex_unlock(&s->mu);
    if (!job->code && hf_store_warning(made, warning, sizeof warning)) s->warning = strdup(warning);
}

static napi_value opened(struct addon *a, struct job *job)
{
    struct store *s = job->store;
    const char *url = hf_store_url(s->h);
    close_at_exit(url);
    s->instant = !strncmp(url, "mem:", 4) || !strncmp(url, "file:", 5);
    return number(a->env, s->object.id);
}

/* Delivers the result of open. A store that couldn't be opened is closed, because it may have
   threads. */
static void open_deliver(struct addon *a, struct event *e)
{
    struct job *job = (struct job *)e;
    struct store *s = job->store;
    bool failed = job->code != 0;
    s->refs++;
    job_deliver(a, e);
    if (failed) close_start(s, NULL);
    store_unref(s);
}

/* (url | undefined, owner | undefined, note | undefined, ioTimeoutMs, flags) */
static napi_value js_open(napi_env env, napi_callback_info info)
{
    napi_value argv[5], promise = NULL;
    struct addon *a = begin(env, info, 5, argv);
    struct store *s = NULL;
    struct job *job = NULL;
    napi_valuetype type[3];
    size_t n = 0;
    double ms = 0, flags = 0;
    if (a->ended) {
        fail(a, HF_CANCELED, NULL, "open: the process ends");
        return NULL;
    }
    for (int i = 0; i < 3; i++) napi_typeof(env, argv[i], &type[i]);
    take_number(env, argv[3], &ms);
    take_number(env, argv[4], &flags);
    if (!(s = calloc(1, sizeof *s)) || !enroll(a, &s->object, KIND_STORE)) {
        free(s);
        fail(a, HF_NOMEM, NULL, "out of memory");
        return NULL;
    }
    s->addon = a;
    s->refs = 1;
    jobs_begin(s);
    s->next = a->stores;
    a->stores = s;
    if (!(job = job_new(s, open_work, &promise))) return NULL;
    job->open = (hf_open_options)HF_OPEN_OPTIONS_INIT;
    job->open.io_timeout_ms = (int64_t)ms;
    job->open.flags = (unsigned)flags;
    int rc = 0;
    if (type[0] != napi_undefined) {
        napi_get_value_string_utf8(env, argv[0], NULL, 0, &n);
        job->url = malloc(n + 1);
        rc = job->url ? take_text(env, argv[0], job->url, n + 1, NULL, "url") : HF_NOMEM;
    }
    if (!rc && type[1] != napi_undefined) {
        rc = take_text(env, argv[1], job->owner, sizeof job->owner, NULL, "owner");
        job->open.owner = job->owner;
    }
    if (!rc && type[2] != napi_undefined) {
        rc = take_text(env, argv[2], job->note, sizeof job->note, NULL, "note");
        job->open.note = job->note;
    }
    job->doing = "open";
    job->event.deliver = open_deliver;
    job->result = opened;
    if (!rc) {
        job_start(job);
        return promise;
    }
    /* The caller gets the exception, and no code gets the promise, which is settled only to free
       it. */
    unpend(a);
    napi_value undefined, exception;
    napi_get_and_clear_last_exception(env, &exception);
    napi_get_undefined(env, &undefined);
    napi_resolve_deferred(env, job->deferred, undefined);
    free(job->url);
    free(job);
    s->refs--;
    close_start(s, NULL);
    napi_throw(env, exception);
    return NULL;
}

/* ---- asking ---- */

/* (store) */
static napi_value js_url(napi_env env, napi_callback_info info)
{
    napi_value argv[1];
    struct addon *a = begin(env, info, 1, argv);
    struct store *s = store_of(a, argv[0]);
    return s ? text(env, hf_store_url(s->h)) : NULL;
}

/* (store) Returns the store's warning, a text; null: there is none. */
static napi_value js_warning(napi_env env, napi_callback_info info)
{
    napi_value argv[1], ret = NULL;
    struct addon *a = begin(env, info, 1, argv);
    struct store *s = store_of(a, argv[0]);
    if (s && s->warning) return text(env, s->warning);
    napi_get_null(env, &ret);
    return ret;
}

/* (store) */
static napi_value js_stats(napi_env env, napi_callback_info info)
{
    napi_value argv[1], ret = NULL;
    struct addon *a = begin(env, info, 1, argv);
    struct store *s = store_of(a, argv[0]);
    hf_stats stats = {.size = sizeof stats};
    if (!s) return NULL;
    hf_get_stats(s->h, &stats);
    const struct {
        const char *name;
        double value;
    } all[] = {{"acquired", (double)stats.acquired},
               {"released", (double)stats.released},
               {"busy", (double)(stats.busy - s->looks)},
               {"timeouts", (double)stats.timeouts},
               {"canceled", (double)stats.canceled},
               {"lost", (double)stats.lost},
               {"renewals", (double)stats.renewals},
               {"unknown", (double)stats.unknown},
               {"errors", (double)stats.errors},
               {"storeOps", (double)stats.store_ops},
               {"waitMs", (double)stats.wait_us_total / 1000},
               {"held", stats.held},
               {"waiting", stats.waiting}};
    napi_create_object(env, &ret);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        napi_set_named_property(env, ret, all[i].name, number(env, all[i].value));
    return ret;
}

static int copy_info(void *arg, const hf_info *info)
{
    struct job *job = arg;
    if (!(job->info = info_copy(info))) job->code = HF_NOMEM;
    return 0;
}

static void peek_work(struct job *job)
{
    int rc = hf_peek(job->store->h, job->key, copy_info, job, &job->err);
    if (rc) job->code = rc;
}

static napi_value peeked(struct addon *a, struct job *job) { return info_value(a, &job->info->it); }

static void break_work(struct job *job)
{
    job->code = hf_break(job->store->h, job->key, job->number, &job->err);
}

static void forget_work(struct job *job)
{
    job->code = hf_forget(job->store->h, job->key, &job->err);
}

static void prune_work(struct job *job)
{
    job->code = hf_prune(job->store->h, job->ms, &job->number, &job->err);
}

static napi_value pruned(struct addon *a, struct job *job)
{
    return number(a->env, (double)job->number);
}

/* (store, key, token): key and token only for the calls that have them. */
static napi_value ask(napi_env env, napi_callback_info info, const char *doing, bool by_key,
                      void (*work)(struct job *),
                      napi_value (*result)(struct addon *, struct job *))
{
    napi_value argv[3], promise = NULL;
    struct addon *a = begin(env, info, 3, argv);
    struct store *s = store_of(a, argv[0]);
    char key[HF_KEY_CAP + 3] = "";
    double value = 0;
    if (!s || (by_key && take_key(a, argv[1], key))) return NULL;
    take_number(env, argv[by_key ? 2 : 1], &value);
    struct job *job = job_new(s, work, &promise);
    if (!job) return NULL;
    memcpy(job->key, key, sizeof key);
    job->doing = doing;
    job->number = by_key ? (uint64_t)value : 0;
    job->ms = (int64_t)value;
    job->result = result;
    job_start(job);
    return promise;
}

static napi_value js_peek(napi_env env, napi_callback_info info)
{
    return ask(env, info, "peek", true, peek_work, peeked);
}

static napi_value js_break(napi_env env, napi_callback_info info)
{
    return ask(env, info, "break", true, break_work, NULL);
}

static napi_value js_forget(napi_env env, napi_callback_info info)
{
    return ask(env, info, "forget", true, forget_work, NULL);
}

static napi_value js_prune(napi_env env, napi_callback_info info)
{
    return ask(env, info, "prune", false, prune_work, pruned);
}

void store_exports(napi_env env, napi_value exports)
{
    static const struct method methods[] = {
        {"open", js_open},  {"close", js_close}, {"closeIdle", js_close_idle},
        {"url", js_url},    {"stats", js_stats}, {"warning", js_warning},
        {"peek", js_peek},  {"break", js_break}, {"forget", js_forget},
        {"prune", js_prune}};
    ADD_METHODS(env, exports, methods);
}
