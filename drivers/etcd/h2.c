/*
 * h2.c - see h2.h. HTTP/2 is nghttp2's, the connection ours. So this file knows of each request
 * whether any of it has left, and no library sends a request again on its own.
 *
 * A request is sent only when the server has said something in HTTP/2: a server or proxy that
 * carries HTTP/1.1 only is noticed before. A ping is answered with the next request.
 */
#include "h2.h"

#include "dial.h"
#include "kit/text.h"
#include "os.h"

#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    REPLY_CAP = (64 << 20) + HF_ET_FRAME,
    READ_CAP = 16384,
    KEPT_CAP = 1 << 20, /* of a reply's room */
    WINDOW = 4 << 20,   /* what may come before we have said that there is room again */
    MESSAGE_CAP = 512,
    NO_STATUS = -1
};

struct call {
    int32_t id; /* of its stream; 0: none */
    const uint8_t *body;
    size_t left; /* of it, to send */
    long status; /* of HTTP, and of gRPC */
    int grpc;
    char message[MESSAGE_CAP]; /* of gRPC, percent-encoded */
    uint8_t *reply;
    size_t len, cap;
    int ended;
    uint32_t error; /* of HTTP/2 */
};

struct hf__et_h2 {
    struct hf__et_conn *conn;
    nghttp2_session *session;
    const char *endpoint;
    int settled, broken;
    char head[5]; /* the first bytes that came */
    size_t n_head;
    uint8_t *out; /* what has to leave */
    size_t out_len, out_cap;
    struct call call;
    const struct hf__et_method *method; /* of a call that goes on */
};

/* ---- what nghttp2 tells ---- */

static ssize_t give_body(nghttp2_session *s, int32_t id, uint8_t *to, size_t cap, uint32_t *flags,
                         nghttp2_data_source *source, void *arg)
{
    struct hf__et_h2 *h = arg;
    struct call *c = &h->call;
    (void)s;
    (void)source;
    if (id != c->id) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    size_t n = c->left < cap ? c->left : cap;
    memcpy(to, c->body, n);
    c->body += n;
    c->left -= n;
    if (!c->left) *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)n;
}

static int is(const uint8_t *name, size_t len, const char *what)
{
    return len == strlen(what) && !memcmp(name, what, len);
}

/* 0 of no number. */
static int read_number(const uint8_t *value, size_t len, int *ret)
{
    int n = 0;
    if (!len || len > 3) return 0;
    for (size_t i = 0; i < len; i++) {
        if (value[i] < '0' || value[i] > '9') return 0;
        n = n * 10 + value[i] - '0';
    }
    *ret = n;
    return 1;
}

static int on_header(nghttp2_session *s, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t len, uint8_t flags, void *arg)
{
    struct hf__et_h2 *h = arg;
    struct call *c = &h->call;
    int n = 0;
    (void)s;
    (void)flags;
    if (frame->hd.stream_id != c->id) return 0;
    if (is(name, name_len, ":status")) {
        c->status = read_number(value, len, &n) ? n : 0;
    } else if (is(name, name_len, "grpc-status")) {
        c->grpc = read_number(value, len, &n) ? n : NO_STATUS;
    } else if (is(name, name_len, "grpc-message")) {
        if (len >= sizeof c->message) len = sizeof c->message - 1;
        memcpy(c->message, value, len);
        c->message[len] = 0;
    }
    return 0;
}

static int on_data(nghttp2_session *s, uint8_t flags, int32_t id, const uint8_t *data, size_t len,
                   void *arg)
{
    struct hf__et_h2 *h = arg;
    struct call *c = &h->call;
    (void)s;
    (void)flags;
    if (id != c->id) return 0;
    if (c->len + len > c->cap) {
        size_t cap = (c->len + len) * 2;
        uint8_t *more = c->len + len <= REPLY_CAP ? realloc(c->reply, cap) : NULL;
        if (!more) return NGHTTP2_ERR_CALLBACK_FAILURE;
        c->reply = more;
        c->cap = cap;
    }
    memcpy(c->reply + c->len, data, len);
    c->len += len;
    return 0;
}

static int on_close(nghttp2_session *s, int32_t id, uint32_t error, void *arg)
{
    struct hf__et_h2 *h = arg;
    (void)s;
    if (id != h->call.id) return 0;
    h->call.ended = 1;
    h->call.error = error;
    return 0;
}

static int on_frame(nghttp2_session *s, const nghttp2_frame *frame, void *arg)
{
    struct hf__et_h2 *h = arg;
    (void)s;
    if (frame->hd.type == NGHTTP2_SETTINGS && !(frame->hd.flags & NGHTTP2_FLAG_ACK)) h->settled = 1;
    return 0;
}

/* 0: no memory. */
static int open_session(struct hf__et_h2 *h)
{
    static const nghttp2_settings_entry ours[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW},
    };
    nghttp2_session_callbacks *all;
    if (nghttp2_session_callbacks_new(&all)) return 0;
    nghttp2_session_callbacks_set_on_header_callback(all, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(all, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(all, on_close);
    nghttp2_session_callbacks_set_on_frame_recv_callback(all, on_frame);
    int ok = !nghttp2_session_client_new(&h->session, all, h) &&
             !nghttp2_submit_settings(h->session, NGHTTP2_FLAG_NONE, ours, 2) &&
             !nghttp2_session_set_local_window_size(h->session, NGHTTP2_FLAG_NONE, 0, WINDOW);
    nghttp2_session_callbacks_del(all);
    return ok;
}

/* ---- bytes ---- */

/* Puts what is to be sent behind what hasn't left. 0: no memory. */
static int collect(struct hf__et_h2 *h)
{
    const uint8_t *more;
    ssize_t n;
    while ((n = nghttp2_session_mem_send(h->session, &more)) > 0) {
        if (h->out_len + (size_t)n > h->out_cap) {
            size_t cap = (h->out_len + (size_t)n) * 2;
            uint8_t *grown = realloc(h->out, cap);
            if (!grown) return 0;
            h->out = grown;
            h->out_cap = cap;
        }
        memcpy(h->out + h->out_len, more, (size_t)n);
        h->out_len += (size_t)n;
    }
    return n == 0;
}

/* 0, or 1: broken. */
static int send_out(struct hf__et_h2 *h, char why[HF_ET_WHY])
{
    if (!collect(h)) {
        snprintf(why, HF_ET_WHY, "out of memory");
        return 1;
    }
    while (h->out_len) {
        long n = hf__et_conn_write(h->conn, h->out, h->out_len);
        if (n == HF_ET_AGAIN) break;
        if (n <= 0) {
            snprintf(why, HF_ET_WHY, "the connection broke");
            return 1;
        }
        h->out_len -= (size_t)n;
        memmove(h->out, h->out + n, h->out_len);
    }
    return 0;
}

static int is_http1(const struct hf__et_h2 *h)
{
    return h->n_head == sizeof h->head && !memcmp(h->head, "HTTP/", sizeof h->head);
}

/* What has come, once. 0; HF_ET_AGAIN: nothing; HF_ET_BROKEN. */
static int read_in(struct hf__et_h2 *h, char why[HF_ET_WHY])
{
    uint8_t bytes[READ_CAP];
    long n = hf__et_conn_read(h->conn, bytes, sizeof bytes);
    if (n == HF_ET_AGAIN) return HF_ET_AGAIN;
    if (n <= 0) {
        const char *reason = n ? hf__et_conn_reason(h->conn) : NULL;
        snprintf(why, HF_ET_WHY, "%s%s%s", n ? "the connection broke" : "the connection was closed",
                 reason ? ": " : "",
                 reason       ? reason
                 : h->settled ? ""
                              : " before HTTP/2 began");
        return HF_ET_BROKEN;
    }
    for (long i = 0; i < n && h->n_head < sizeof h->head; i++)
        h->head[h->n_head++] = (char)bytes[i];
    ssize_t rc = is_http1(h) ? NGHTTP2_ERR_PROTO : nghttp2_session_mem_recv(h->session, bytes, n);
    if (rc >= 0) return 0;
    snprintf(why, HF_ET_WHY, "%s", is_http1(h) ? HF_ET_NO_HTTP2 : nghttp2_strerror((int)rc));
    return HF_ET_BROKEN;
}

/* Returns 1 if the connection has nothing left to read or to write. */
static int is_over(const struct hf__et_h2 *h)
{
    return !nghttp2_session_want_read(h->session) && !nghttp2_session_want_write(h->session);
}

/* Goes on until the flag is set, or something is wrong. */
static int go_on(struct hf__et_h2 *h, const int *until, int64_t until_us, char why[HF_ET_WHY])
{
    while (!*until) {
        if (send_out(h, why)) return 1;
        if (*until) break; /* we have ended it, for it was wrong */
        if (is_over(h)) {
            snprintf(why, HF_ET_WHY, "what it says isn't HTTP/2");
            return 1;
        }
        int can = hf__et_conn_wait(h->conn, h->out_len != 0, until_us);
        if (can <= 0) {
            snprintf(why, HF_ET_WHY, "%s", can ? "it can't be waited for" : "timed out");
            return 1;
        }
        if (read_in(h, why) == HF_ET_BROKEN) return 1;
    }
    return 0;
}

/* ---- connections ---- */

void hf__et_h2_end(struct hf__et_h2 *h)
{
    if (!h) return;
    if (h->session) nghttp2_session_del(h->session);
    hf__et_hang_up(h->conn);
    if (h->out) explicit_bzero(h->out, h->out_cap); /* a secret may be in it */
    free(h->out);
    free(h->call.reply);
    free(h);
}

struct greeting {
    const struct hf__et_http *http;
    struct hf__et_h2 *h2; /* what has come of it */
};

/* Until the server has spoken. */
static int settle(void *arg, int fd, const char *endpoint, int64_t until_us, char why[HF_ET_WHY])
{
    struct greeting *g = arg;
    struct hf__et_conn *c;
    int rc = hf__et_conn_begin(g->http, fd, endpoint, until_us, &c, why);
    struct hf__et_h2 *h = rc ? NULL : calloc(1, sizeof *h);
    if (rc) return rc;
    if (!h) {
        hf__et_hang_up(c);
        snprintf(why, HF_ET_WHY, "out of memory");
        return HF_NOMEM;
    }
    h->conn = c;
    h->endpoint = endpoint;
    if (!open_session(h)) {
        snprintf(why, HF_ET_WHY, "out of memory");
        rc = HF_NOMEM;
    } else if (go_on(h, &h->settled, until_us, why)) {
        rc = is_http1(h) ? HF_UNSUPPORTED : HF_UNAVAILABLE;
    }
    if (rc)
        hf__et_h2_end(h);
    else
        g->h2 = h;
    return rc;
}

/* 0 or an HF_ error. */
static int connect_any(struct hf__et_http *http, int64_t until_us, struct hf__et_h2 **ret,
                       char why[HF_ET_WHY])
{
    struct greeting g = {http, NULL};
    int rc = hf__et_dial(http, until_us, settle, &g, why);
    *ret = g.h2;
    /* A new connection may reach another server, whose date differs. */
    if (!rc) hf__et_date_doubt(&http->date);
    return rc;
}

/* Is it still to be had? What came meanwhile says so. */
static int is_alive(struct hf__et_h2 *h)
{
    char why[HF_ET_WHY];
    int rc = 0;
    while (!rc) rc = read_in(h, why);
    return rc == HF_ET_AGAIN && nghttp2_session_check_request_allowed(h->session);
}

/* ---- calls ---- */

static nghttp2_nv header(const char *name, const char *value, uint8_t flags)
{
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name),
                        strlen(value), flags};
}

/* 0, or 1: it can't be said. */
static int submit(struct hf__et_h2 *h, const struct hf__et_exchange *x)
{
    const char *scheme_end = strstr(h->endpoint, "://");
    struct call *c = &h->call;
    uint8_t *reply = c->reply;
    size_t cap = c->cap;
    nghttp2_data_provider body = {.read_callback = give_body};
    const nghttp2_nv all[] = {
        header(":method", "POST", NGHTTP2_NV_FLAG_NONE),
        header(":scheme", strncmp(h->endpoint, "https:", 6) ? "http" : "https",
               NGHTTP2_NV_FLAG_NONE),
        header(":path", hf__et_method(x->call)->name, NGHTTP2_NV_FLAG_NONE),
        header(":authority", scheme_end + 3, NGHTTP2_NV_FLAG_NONE),
        header("content-type", "application/grpc", NGHTTP2_NV_FLAG_NONE),
        header("te", "trailers", NGHTTP2_NV_FLAG_NONE),
        header("token", x->token ? x->token : "", NGHTTP2_NV_FLAG_NO_INDEX),
    };
    size_t n = sizeof all / sizeof *all - !(x->token && *x->token);
    *c = (struct call){
        .body = x->body, .left = x->len, .reply = reply, .cap = cap, .grpc = NO_STATUS};
    c->id = nghttp2_submit_request(h->session, NULL, all, n, &body, NULL);
    return c->id <= 0;
}

static int hex(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* In place. */
static const char *decoded(char *text)
{
    char *to = text;
    for (const char *s = text; *s; s++) {
        int hi = *s == '%' ? hex(s[1]) : -1, lo = hi >= 0 ? hex(s[2]) : -1;
        *to++ = (char)(lo >= 0 ? hi << 4 | lo : *s);
        if (lo >= 0) s += 2;
    }
    *to = 0;
    return text;
}

static void refused(struct call *c, struct hf__et_exchange *x)
{
    const char *text = decoded(c->message);
    x->status = c->grpc;
    if (!*text)
        snprintf(x->said, sizeof x->said, "gRPC's status %d", c->grpc);
    else if (hf__is_utf8(text, strlen(text)))
        snprintf(x->said, sizeof x->said, "%s", text);
}

/* Translates the HTTP status of an answer without a status of gRPC, such as a proxy's. */
static void not_grpc(const struct call *c, struct hf__et_exchange *x)
{
    x->status = c->status == 401 || c->status == 403   ? HF_ET_PERMISSION_DENIED
                : c->status == 404 || c->status == 501 ? HF_ET_UNIMPLEMENTED
                                                       : HF_ET_OTHER;
    snprintf(x->said, sizeof x->said, "HTTP status %ld, without gRPC's", c->status);
}

/* 0, or 1: the answer isn't whole. */
static int read_answer(struct hf__et_h2 *h, struct hf__et_exchange *x)
{
    const struct hf__et_method *method = hf__et_method(x->call);
    struct call *c = &h->call;
    if (c->error || !c->status || (c->status == 200 && c->grpc == NO_STATUS)) {
        snprintf(x->why, sizeof x->why, "its answer broke off");
        return 1;
    }
    if (c->grpc == NO_STATUS) {
        not_grpc(c, x);
        return 0;
    }
    if (c->grpc) {
        refused(c, x);
        return 0;
    }
    size_t len = hf__et_frame_len(c->reply, c->len);
    if (!len || (method->streams ? len > c->len : len != c->len)) {
        snprintf(x->why, sizeof x->why, "its answer has no form");
        return 1;
    }
    x->message = hf__et_unframe(method->reply, c->reply, len, &x->nomem);
    if (x->nomem || (x->message && (!method->needs_header || hf__et_header(x->message)))) return 0;
    hf__et_free_message(x->message);
    x->message = NULL;
    snprintf(x->why, sizeof x->why, "an answer that isn't etcd's");
    return 1;
}

/* A long listing isn't kept room for. */
static void shrink(struct hf__et_h2 *h)
{
    if (h->call.cap <= KEPT_CAP) return;
    free(h->call.reply);
    h->call.reply = NULL;
    h->call.cap = 0;
}

void hf__et_h2_exchange(struct hf__et_http *http, int number, struct hf__et_exchange *x,
                        int64_t until_us, int64_t share_ms)
{
    struct hf__et_h2 **link = &http->h2[number], *h = *link;
    unsigned at = __atomic_load_n(&http->at, __ATOMIC_RELAXED) % http->n_endpoints;
    if (h && (h->endpoint != http->endpoint[at] || !is_alive(h))) {
        hf__et_h2_end(h);
        *link = h = NULL;
    }
    x->failed = x->nobody = 0;
    if (!h) x->failed = connect_any(http, until_us, &h, x->why);
    if (x->failed) {
        x->nobody = 1;
        return;
    }
    int64_t share_us = hf__local_us() + share_ms * 1000;
    if (share_us < until_us) until_us = share_us;
    *link = h;
    uint64_t before = hf__et_conn_left(h->conn);
    if (submit(h, x)) {
        snprintf(x->why, sizeof x->why, "%s", nghttp2_strerror(h->call.id));
        x->failed = h->call.id == NGHTTP2_ERR_NOMEM ? HF_NOMEM : HF_UNAVAILABLE;
    } else if (go_on(h, &h->call.ended, until_us, x->why) || read_answer(h, x)) {
        x->failed = HF_UNAVAILABLE;
    }
    x->sent = hf__et_conn_left(h->conn) != before;
    if (!x->failed) {
        shrink(h);
        return;
    }
    hf__et_h2_end(h);
    *link = NULL;
}

void hf__et_h2_close(struct hf__et_http *http)
{
    for (int i = 0; i < HF_ET_LINKS; i++) hf__et_h2_end(http->h2[i]);
}

/* ---- calls that go on ---- */

struct hf__et_h2 *hf__et_h2_begin(struct hf__et_http *http, struct hf__et_exchange *x,
                                  int64_t until_us)
{
    struct hf__et_h2 *h;
    if (connect_any(http, until_us, &h, x->why)) return NULL;
    h->method = hf__et_method(x->call);
    if (!submit(h, x) && !send_out(h, x->why)) return h;
    hf__et_h2_end(h);
    return NULL;
}

int hf__et_h2_fd(const struct hf__et_h2 *h, int *ret_to_write)
{
    *ret_to_write = h->out_len != 0;
    return hf__et_conn_fd(h->conn);
}

/* The answers that are whole. */
static void tell(struct hf__et_h2 *h, hf__et_receive_fn *receive, void *arg)
{
    struct call *c = &h->call;
    size_t at = 0;
    while (at < c->len) {
        size_t len = hf__et_frame_len(c->reply + at, c->len - at);
        int nomem;
        if (len == SIZE_MAX) {
            h->broken = 1;
            break;
        }
        if (!len || len > c->len - at) break;
        ProtobufCMessage *said = hf__et_unframe(h->method->reply, c->reply + at, len, &nomem);
        receive(arg, said);
        hf__et_free_message(said);
        at += len;
    }
    c->len -= at;
    if (at && c->len) memmove(c->reply, c->reply + at, c->len);
}

int hf__et_h2_receive(struct hf__et_h2 *h, hf__et_receive_fn *receive, void *arg)
{
    char why[HF_ET_WHY];
    int rc = 0;
    while (!rc && !h->broken) {
        rc = read_in(h, why);
        if (!rc) tell(h, receive, arg);
    }
    return h->broken || rc == HF_ET_BROKEN || send_out(h, why) || h->call.ended || is_over(h);
}
