/*
 * watch.c - waking who waits: watches of etcd's, as a request that goes on answering.
 *
 * The gateway reads a request to its end before it answers, so the watches of a stream are named
 * when it is begun. Keys that come later get a further stream; when there are too many of these all
 * keys get a new one. What is watched of a key is its rev and its sessions, not the row, which may
 * be long.
 */
#include "etcd.h"

#include "json.h"
#include "os.h"

#include <stdlib.h>
#include <string.h>

enum { STREAMS = 4, DEAF_MS = 5000, IDLE_MS = 5000, POLL_MS = 60000 };

struct stream {
    CURL *curl; /* NULL: unused */
    struct curl_slist *headers;
    char *body;
    uint64_t *hash; /* of the keys that it watches */
    size_t n, created;
    char *line; /* what came of the next line */
    size_t len, cap;
    int broken;
    struct hf__et_ear *ear;
};

struct hf__et_ear {
    const hf_store *st;
    CURLM *multi;
    struct stream stream[STREAMS];
    uint64_t *wanted; /* the hashes of the keys that are listened for */
    size_t n_wanted;
    uint64_t heard;
    int woken; /* atomic */
    int64_t deaf_until_us, used_at_us;
};

static int has(const uint64_t *hash, size_t n, uint64_t h)
{
    for (size_t i = 0; i < n; i++)
        if (hash[i] == h) return 1;
    return 0;
}

static void end_stream(struct stream *s)
{
    if (!s->curl) return;
    curl_multi_remove_handle(s->ear->multi, s->curl);
    curl_easy_cleanup(s->curl);
    hf__et_free_headers(s->headers);
    free(s->body);
    free(s->hash);
    free(s->line);
    memset(s, 0, sizeof *s);
}

static void end_streams(struct hf__et_ear *ear)
{
    for (int i = 0; i < STREAMS; i++) end_stream(&ear->stream[i]);
}

/* ---- what they say ---- */

static void hear_event(struct hf__et_ear *ear, const json_t *event)
{
    size_t len = 0, n = ear->st->n_prefix;
    char *key;
    (void)hf__et_read_bytes(json_object_get(json_object_get(event, "kv"), "key"), &key, &len);
    char *tab = key ? memchr(key, '\t', len) : NULL;
    if (!key || !tab || (size_t)(tab - key) < n)
        ear->heard++; /* whatever it is */
    else if (has(ear->wanted, ear->n_wanted, hf_key_hash(key + n, (size_t)(tab - key) - n)))
        ear->heard++;
    free(key);
}

static void hear_line(struct stream *s, const char *line, size_t len)
{
    int nomem;
    json_t *j = hf__json_read(line, len, 0, &nomem), *result = json_object_get(j, "result");
    const json_t *events = json_object_get(result, "events");
    if (!result || json_is_true(json_object_get(result, "canceled"))) {
        s->broken = 1;
    } else if (json_is_true(json_object_get(result, "created"))) {
        s->created++;
    }
    for (size_t i = 0; i < json_array_size(events); i++)
        hear_event(s->ear, json_array_get(events, i));
    json_decref(j);
}

static size_t hear(char *bytes, size_t size, size_t n, void *arg)
{
    struct stream *s = arg;
    n *= size;
    if (s->len + n > s->cap) {
        size_t cap = (s->len + n) * 2;
        char *more = realloc(s->line, cap);
        if (!more) return 0;
        s->line = more;
        s->cap = cap;
    }
    memcpy(s->line + s->len, bytes, n);
    s->len += n;
    char *end, *from = s->line;
    while ((end = memchr(from, '\n', s->len - (size_t)(from - s->line)))) {
        hear_line(s, from, (size_t)(end - from));
        from = end + 1;
    }
    s->len -= (size_t)(from - s->line);
    memmove(s->line, from, s->len);
    return n;
}

/* Lets them go on. 0; or one of them has ended, and is gone. */
static int perform(struct hf__et_ear *ear)
{
    int running, left, ended = 0;
    CURLMsg *m;
    if (curl_multi_perform(ear->multi, &running)) ended = 1;
    while ((m = curl_multi_info_read(ear->multi, &left)))
        for (int i = 0; i < STREAMS; i++)
            if (m->msg == CURLMSG_DONE && ear->stream[i].curl == m->easy_handle)
                ear->stream[i].broken = 1;
    for (int i = 0; i < STREAMS; i++)
        if (ear->stream[i].curl && ear->stream[i].broken) {
            end_stream(&ear->stream[i]);
            ended = 1;
        }
    /* What it would have told isn't known. */
    if (ended) ear->heard++;
    return ended;
}

/* ---- what is asked ---- */

/* "{create_request...}{create_request...}", to be freed. */
static char *requests(const hf_store *st, const hf_rowkey *const *keys, const uint8_t *take,
                      size_t n)
{
    char *all = NULL;
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        if (!take[i]) continue;
        json_t *j = json_pack("{s:{s:o, s:o}}", "create_request", "key",
                              hf__et_key(st, keys[i]->text, "\t"), "range_end",
                              hf__et_key(st, keys[i]->text, "\n"));
        char *one = j ? hf__json_text(j) : NULL;
        size_t more = one ? strlen(one) : 0;
        char *bigger = one ? realloc(all, len + more + 1) : NULL;
        if (bigger) {
            memcpy(bigger + len, one, more + 1);
            all = bigger;
            len += more;
        }
        free(one);
        json_decref(j);
        if (bigger) continue;
        free(all);
        return NULL;
    }
    return all;
}

/* A stream that watches those of the keys that are to be taken. */
static int begin_stream(hf_store *st, struct stream *s, const hf_rowkey *const *keys,
                        const uint8_t *take, size_t n)
{
    struct hf__et_ear *ear = st->ear;
    s->ear = ear;
    s->hash = calloc(n, sizeof *s->hash);
    s->body = s->hash ? requests(st, keys, take, n) : NULL;
    for (size_t i = 0; i < n && s->hash; i++)
        if (take[i]) s->hash[s->n++] = keys[i]->hash;
    s->curl = s->body ? hf__et_stream(&st->http, "/v3/watch", s->body, &s->headers) : NULL;
    if (s->curl && !curl_easy_setopt(s->curl, CURLOPT_WRITEFUNCTION, hear) &&
        !curl_easy_setopt(s->curl, CURLOPT_WRITEDATA, s) &&
        !curl_multi_add_handle(ear->multi, s->curl))
        return 0;
    if (s->curl) curl_easy_cleanup(s->curl);
    hf__et_free_headers(s->headers);
    free(s->body);
    free(s->hash);
    memset(s, 0, sizeof *s);
    return HF_UNAVAILABLE;
}

/* Until etcd has said that it watches all of them. */
static int await_created(hf_store *st, const struct stream *s)
{
    int64_t until_us = hf__local_us() + st->http.io_timeout_ms * 1000;
    while (s->created < s->n) {
        int64_t left = (until_us - hf__local_us()) / 1000;
        if (perform(st->ear) || left <= 0) return HF_UNAVAILABLE;
        if (s->created < s->n) curl_multi_poll(st->ear->multi, NULL, 0, (int)left + 1, NULL);
    }
    return 0;
}

static int deaf(hf_store *st, const char *why, hf_error *err)
{
    end_streams(st->ear);
    st->ear->heard++;
    st->ear->deaf_until_us = hf__local_us() + DEAF_MS * INT64_C(1000);
    hf__et_next(&st->http);
    return hf_fail(err, HF_UNAVAILABLE, 0, "etcd: listen: %s", why);
}

/* Does a stream watch it? They are asked for in the order in which streams have them, mostly:
   next[k] is what comes next in stream k. */
static int watched(const struct hf__et_ear *ear, uint64_t hash, size_t next[STREAMS])
{
    for (int k = 0; k < STREAMS; k++) {
        const struct stream *s = &ear->stream[k];
        if (!s->curl || next[k] >= s->n || s->hash[next[k]] != hash) continue;
        next[k]++;
        return 1;
    }
    for (int k = 0; k < STREAMS; k++)
        for (size_t i = 0; ear->stream[k].curl && i < ear->stream[k].n; i++)
            if (ear->stream[k].hash[i] == hash) {
                next[k] = i + 1;
                return 1;
            }
    return 0;
}

/* Which keys no stream watches; how many. */
static size_t unwatched(const struct hf__et_ear *ear, const hf_rowkey *const *keys, size_t n,
                        uint8_t *take)
{
    size_t count = 0, next[STREAMS] = {0};
    for (size_t i = 0; i < n; i++) {
        take[i] = !watched(ear, keys[i]->hash, next);
        count += take[i];
    }
    return count;
}

static int watch_more(hf_store *st, const hf_rowkey *const *keys, size_t n, hf_error *err)
{
    struct hf__et_ear *ear = st->ear;
    struct stream *s = NULL;
    uint8_t *take = calloc(n ? n : 1, 1);
    if (!take) return hf_fail(err, HF_NOMEM, 0, "etcd: listen: out of memory");
    int rc = 0;
    if (unwatched(ear, keys, n, take)) {
        if (hf__local_us() < ear->deaf_until_us) {
            free(take);
            return hf_fail(err, HF_UNAVAILABLE, 0, "etcd: listen: not heard lately");
        }
        for (int i = 0; i < STREAMS && !s; i++)
            if (!ear->stream[i].curl) s = &ear->stream[i];
        if (!s) {
            end_streams(ear);
            ear->heard++;
            s = &ear->stream[0];
            memset(take, 1, n);
        }
        rc = begin_stream(st, s, keys, take, n);
        if (!rc) rc = await_created(st, s);
        if (rc) rc = deaf(st, "no watch", err);
    }
    free(take);
    return rc;
}

int hf__et_listen(hf_store *st, uint8_t bell, const hf_rowkey *const *keys, size_t n, hf_ear *ret,
                  hf_error *err)
{
    struct hf__et_ear *ear = st->ear;
    (void)bell;
    uint64_t *wanted = realloc(ear->wanted, (n ? n : 1) * sizeof *wanted);
    if (!wanted) return hf_fail(err, HF_NOMEM, 0, "etcd: listen: out of memory");
    ear->wanted = wanted;
    /* What came for the keys of the last time counts for them. */
    perform(ear);
    ear->n_wanted = n;
    for (size_t i = 0; i < n; i++) wanted[i] = keys[i]->hash;
    if (n) ear->used_at_us = hf__local_us();
    int rc = watch_more(st, keys, n, err);
    if (rc) return rc;
    ret->heard[0] = ear->heard;
    ret->heard[1] = 0;
    return 0;
}

int hf__et_watch(hf_store *st, uint8_t bell, const hf_ear *from, int64_t until_us, hf_error *err)
{
    struct hf__et_ear *ear = st->ear;
    (void)bell;
    while (!__atomic_exchange_n(&ear->woken, 0, __ATOMIC_ACQUIRE)) {
        int64_t now = hf__local_us(), left = (until_us - now) / 1000 + 1;
        if (perform(ear)) return deaf(st, "the connection broke", err);
        if (ear->heard != from->heard[0] || until_us <= now) return 0;
        /* Nobody waits any more: the next one may, soon. */
        if (!ear->n_wanted && now - ear->used_at_us >= IDLE_MS * INT64_C(1000))
            end_streams(ear);
        else if (!ear->n_wanted && left > IDLE_MS)
            left = IDLE_MS;
        if (curl_multi_poll(ear->multi, NULL, 0, left > POLL_MS ? POLL_MS : (int)left, NULL))
            return deaf(st, "it can't be waited for", err);
    }
    return 0;
}

void hf__et_interrupt(hf_store *st, uint8_t bell)
{
    (void)bell;
    __atomic_store_n(&st->ear->woken, 1, __ATOMIC_RELEASE);
    curl_multi_wakeup(st->ear->multi);
}

int hf__et_ear_open(hf_store *st)
{
    st->ear = calloc(1, sizeof *st->ear);
    if (!st->ear) return HF_NOMEM;
    st->ear->st = st;
    st->ear->multi = curl_multi_init();
    return st->ear->multi ? 0 : HF_NOMEM;
}

void hf__et_ear_close(hf_store *st)
{
    if (!st->ear) return;
    end_streams(st->ear);
    if (st->ear->multi) curl_multi_cleanup(st->ear->multi);
    free(st->ear->wanted);
    free(st->ear);
}
