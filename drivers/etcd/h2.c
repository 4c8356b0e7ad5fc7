/*
 * h2.c - see h2.h. A connection's HTTP/2 is in h2_session.c.
 *
 * The first request is sent only after the server has sent something in HTTP/2. So a server or
 * proxy that speaks only HTTP/1.1 is noticed before. A ping is answered with the next request.
 */
#include "h2.h"

#include "dial.h"
#include "h2_session.h"
#include "kit/text.h"
#include "os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEPT_CAP = 1 << 20 }; /* a larger buffer of a reply isn't kept for the next call; in bytes */

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
    struct hf__et_h2 *h2; /* the connection that was made */
};

/* Begins HTTP/2 on a connected socket, and waits until the server has spoken; for hf__et_dial. */
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
    if (!hf__et_h2_open_session(h)) {
        snprintf(why, HF_ET_WHY, "out of memory");
        rc = HF_NOMEM;
    } else if (hf__et_h2_go_on(h, &h->settled, until_us, why)) {
        rc = hf__et_h2_is_http1(h) ? HF_UNSUPPORTED : HF_UNAVAILABLE;
    }
    if (rc)
        hf__et_h2_end(h);
    else
        g->h2 = h;
    return rc;
}

/* Connects to one of the endpoints. Returns 0 or an HF_ error. */
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

/* Reads what has come since the last call. Returns 1 if the connection can carry another call. */
static int is_alive(struct hf__et_h2 *h)
{
    char why[HF_ET_WHY];
    int rc = 0;
    while (!rc) rc = hf__et_h2_read_in(h, why);
    return rc == HF_ET_AGAIN && nghttp2_session_check_request_allowed(h->session);
}

/* ---- calls ---- */

static nghttp2_nv header(const char *name, const char *value, uint8_t flags)
{
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name),
                        strlen(value), flags};
}

/* Gives the request to nghttp2. Returns 0; 1: it can't be sent. */
static int submit(struct hf__et_h2 *h, const struct hf__et_exchange *x)
{
    const char *scheme_end = strstr(h->endpoint, "://");
    struct hf__et_call_state *c = &h->call;
    uint8_t *reply = c->reply;
    size_t cap = c->cap;
    nghttp2_data_provider body = {.read_callback = hf__et_h2_give_body};
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
    *c = (struct hf__et_call_state){
        .body = x->body, .left = x->len, .reply = reply, .cap = cap, .grpc = HF_ET_NO_STATUS};
    c->id = nghttp2_submit_request(h->session, NULL, all, n, &body, NULL);
    return c->id <= 0;
}

static int hex(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Decodes the text's percent-encoding, in place. */
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

static void refused(struct hf__et_call_state *c, struct hf__et_exchange *x)
{
    const char *text = decoded(c->message);
    x->status = c->grpc;
    if (!*text)
        snprintf(x->said, sizeof x->said, "gRPC's status %d", c->grpc);
    else if (hf__is_utf8(text, strlen(text)))
        snprintf(x->said, sizeof x->said, "%s", text);
}

/* Sets the result of an answer that has an HTTP status but none of gRPC, such as a proxy's. */
static void not_grpc(const struct hf__et_call_state *c, struct hf__et_exchange *x)
{
    x->status = c->status == 401 || c->status == 403   ? HF_ET_PERMISSION_DENIED
                : c->status == 404 || c->status == 501 ? HF_ET_UNIMPLEMENTED
                                                       : HF_ET_OTHER;
    snprintf(x->said, sizeof x->said, "HTTP status %ld, without gRPC's", c->status);
}

/* Reads the messages of the answer. Returns 0, or 1: the answer isn't whole. */
static int read_answer(struct hf__et_h2 *h, struct hf__et_exchange *x)
{
    const struct hf__et_method *method = hf__et_method(x->call);
    struct hf__et_call_state *c = &h->call;
    if (c->error || !c->status || (c->status == 200 && c->grpc == HF_ET_NO_STATUS)) {
        snprintf(x->why, sizeof x->why, "its answer broke off");
        return 1;
    }
    if (c->grpc == HF_ET_NO_STATUS) {
        not_grpc(c, x);
        return 0;
    }
    if (c->grpc) {
        refused(c, x);
        return 0;
    }
    size_t len = hf__et_frame_len(c->reply, c->len);
    if (!len || (method->streams ? len > c->len : len != c->len)) {
        snprintf(x->why, sizeof x->why, "its answer isn't one whole gRPC message");
        return 1;
    }
    x->message = hf__et_unframe(method->reply, c->reply, len, &x->nomem);
    if (x->nomem || (x->message && (!method->needs_header || hf__et_header(x->message)))) return 0;
    hf__et_free_message(x->message);
    x->message = NULL;
    snprintf(x->why, sizeof x->why, "an answer that isn't etcd's");
    return 1;
}

/* Frees the buffer of a long reply (a listing), which the connection would keep otherwise. */
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
    } else if (hf__et_h2_go_on(h, &h->call.ended, until_us, x->why) || read_answer(h, x)) {
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
    if (!submit(h, x) && !hf__et_h2_send_out(h, x->why)) return h;
    hf__et_h2_end(h);
    return NULL;
}

int hf__et_h2_fd(const struct hf__et_h2 *h, int *ret_to_write)
{
    *ret_to_write = h->out_len != 0;
    return hf__et_conn_fd(h->conn);
}

/* Calls `receive` for each answer that has come as a whole, and keeps the rest of the bytes. */
static void tell(struct hf__et_h2 *h, hf__et_receive_fn *receive, void *arg)
{
    struct hf__et_call_state *c = &h->call;
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
        rc = hf__et_h2_read_in(h, why);
        if (!rc) tell(h, receive, arg);
    }
    return h->broken || rc == HF_ET_BROKEN || hf__et_h2_send_out(h, why) || h->call.ended ||
           hf__et_h2_is_over(h);
}
