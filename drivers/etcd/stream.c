/*
 * stream.c - see stream.h. libcurl waits for its own connections and for those of gRPC.
 */
#include "stream.h"

#include "h2.h"
#include "os.h"

#include <stdlib.h>
#include <string.h>

enum { STREAMS_CAP = 16 };

struct hf__et_stream {
    struct hf__et_exchange x; /* its body, and its path */
    void (*hear)(void *arg, const json_t *said);
    void *arg;
    int ended;
    struct hf__et_h2 *h2; /* by gRPC */
    CURL *curl;           /* by JSON */
    struct curl_slist *headers;
    struct hf__et_reach reach;
    char *line; /* what came of the next one */
    size_t len, cap;
};

/* ---- by JSON: a line each ---- */

static size_t take_in(char *bytes, size_t size, size_t n, void *arg)
{
    struct hf__et_stream *s = arg;
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
        int nomem;
        json_t *said = hf__et_gateway_read(s->x.method, from, (size_t)(end - from), &nomem);
        s->hear(s->arg, said);
        json_decref(said);
        from = end + 1;
    }
    s->len -= (size_t)(from - s->line);
    memmove(s->line, from, s->len);
    return n;
}

static int begin_json(struct hf__et_http *http, CURLM *multi, struct hf__et_stream *s,
                      const char *endpoint, const json_t *body)
{
    s->reach =
        (struct hf__et_reach){endpoint, hf__local_us() + http->io_timeout_ms * 1000, -1, NULL};
    s->curl = curl_easy_init();
    s->headers = s->curl ? hf__et_gateway_headers(s->x.token) : NULL;
    if (s->headers && !hf__et_gateway_body(&s->x, body) &&
        hf__et_gateway_set(http, s->curl, &s->reach, s->x.path) &&
        !curl_easy_setopt(s->curl, CURLOPT_HTTPHEADER, s->headers) &&
        !curl_easy_setopt(s->curl, CURLOPT_POSTFIELDS, s->x.body) &&
        !curl_easy_setopt(s->curl, CURLOPT_CONNECTTIMEOUT_MS, (long)http->io_timeout_ms) &&
        !curl_easy_setopt(s->curl, CURLOPT_WRITEFUNCTION, take_in) &&
        !curl_easy_setopt(s->curl, CURLOPT_WRITEDATA, s) && !curl_multi_add_handle(multi, s->curl))
        return 1;
    curl_easy_cleanup(s->curl); /* nobody is to remove it */
    s->curl = NULL;
    return 0;
}

/* ---- by either ---- */

static int begin_grpc(struct hf__et_http *http, struct hf__et_stream *s, const json_t *body)
{
    int64_t until_us = hf__local_us() + http->io_timeout_ms * 1000;
    if (!hf__et_h2_body(&s->x, body)) s->h2 = hf__et_h2_begin(http, &s->x, until_us);
    return s->h2 != NULL;
}

struct hf__et_stream *hf__et_stream_begin(struct hf__et_http *http, CURLM *multi, const char *path,
                                          const json_t *body,
                                          void (*hear)(void *arg, const json_t *said), void *arg)
{
    unsigned at = __atomic_load_n(&http->at, __ATOMIC_RELAXED) % http->n_endpoints;
    struct hf__et_stream *s = body ? calloc(1, sizeof *s) : NULL;
    char *token = NULL;
    if (!s) return NULL;
    s->hear = hear;
    s->arg = arg;
    s->x.path = path;
    int ok = !hf__et_token(http, &token, NULL);
    s->x.token = token;
    if (ok)
        ok = http->by_json ? begin_json(http, multi, s, http->endpoint[at], body)
                           : begin_grpc(http, s, body);
    hf__et_free_secret(token);
    s->x.token = NULL;
    if (ok) return s;
    hf__et_stream_end(multi, s);
    return NULL;
}

void hf__et_stream_end(CURLM *multi, struct hf__et_stream *s)
{
    if (!s) return;
    hf__et_h2_end(s->h2);
    if (s->curl) curl_multi_remove_handle(multi, s->curl);
    curl_easy_cleanup(s->curl);
    hf__et_free_headers(s->headers);
    curl_slist_free_all(s->reach.addresses);
    free(s->x.body);
    free(s->line);
    free(s);
}

int hf__et_stream_ended(const struct hf__et_stream *s) { return s->ended; }

int hf__et_streams_perform(CURLM *multi, struct hf__et_stream *const *all, size_t n)
{
    int running, left, broken = curl_multi_perform(multi, &running) != CURLM_OK;
    CURLMsg *m;
    while ((m = curl_multi_info_read(multi, &left)))
        for (size_t i = 0; i < n; i++)
            if (m->msg == CURLMSG_DONE && all[i] && all[i]->curl == m->easy_handle)
                all[i]->ended = 1;
    for (size_t i = 0; i < n; i++)
        if (all[i] && all[i]->h2 && !all[i]->ended)
            all[i]->ended = hf__et_h2_hear(all[i]->h2, all[i]->hear, all[i]->arg);
    return broken;
}

int hf__et_streams_wait(CURLM *multi, struct hf__et_stream *const *all, size_t n, int ms)
{
    struct curl_waitfd fds[STREAMS_CAP];
    unsigned n_fds = 0;
    for (size_t i = 0; i < n; i++) {
        int to_write;
        if (!all[i] || !all[i]->h2 || n_fds == STREAMS_CAP) continue;
        fds[n_fds].fd = hf__et_h2_fd(all[i]->h2, &to_write);
        fds[n_fds].events =
            (short)(to_write ? CURL_WAIT_POLLIN | CURL_WAIT_POLLOUT : CURL_WAIT_POLLIN);
        fds[n_fds++].revents = 0;
    }
    return curl_multi_poll(multi, fds, n_fds, ms, NULL) != CURLM_OK;
}
