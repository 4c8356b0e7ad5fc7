/*
 * h2_session.c - see h2_session.h. nghttp2 makes HTTP/2, but this driver makes the connection and
 * carries the bytes. So it knows of each request whether a part of it was sent, and no library
 * sends a request again by itself.
 */
#include "h2_session.h"

#include "dial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    REPLY_CAP = (64 << 20) + HF_ET_FRAME,
    READ_CAP = 16384,
    WINDOW = 4 << 20 /* how many bytes the server may send before this client announces more room */
};

/* ---- what nghttp2 tells ---- */

ssize_t hf__et_h2_give_body(nghttp2_session *s, int32_t id, uint8_t *to, size_t cap,
                            uint32_t *flags, nghttp2_data_source *source, void *arg)
{
    struct hf__et_h2 *h = arg;
    struct hf__et_call_state *c = &h->call;
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

/* Reads a number of up to three digits. Returns 1; 0: it isn't one. */
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
    struct hf__et_call_state *c = &h->call;
    int n = 0;
    (void)s;
    (void)flags;
    if (frame->hd.stream_id != c->id) return 0;
    if (is(name, name_len, ":status")) {
        c->status = read_number(value, len, &n) ? n : 0;
    } else if (is(name, name_len, "grpc-status")) {
        c->grpc = read_number(value, len, &n) ? n : HF_ET_NO_STATUS;
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
    struct hf__et_call_state *c = &h->call;
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

int hf__et_h2_open_session(struct hf__et_h2 *h)
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

/* Takes what nghttp2 wants to send, and appends it to the bytes that haven't been sent yet. Returns
   1; 0: out of memory. */
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

int hf__et_h2_send_out(struct hf__et_h2 *h, char why[HF_ET_WHY])
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

int hf__et_h2_is_http1(const struct hf__et_h2 *h)
{
    return h->n_head == sizeof h->head && !memcmp(h->head, "HTTP/", sizeof h->head);
}

int hf__et_h2_read_in(struct hf__et_h2 *h, char why[HF_ET_WHY])
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
    ssize_t rc =
        hf__et_h2_is_http1(h) ? NGHTTP2_ERR_PROTO : nghttp2_session_mem_recv(h->session, bytes, n);
    if (rc >= 0) return 0;
    snprintf(why, HF_ET_WHY, "%s",
             hf__et_h2_is_http1(h) ? HF_ET_NO_HTTP2 : nghttp2_strerror((int)rc));
    return HF_ET_BROKEN;
}

int hf__et_h2_is_over(const struct hf__et_h2 *h)
{
    return !nghttp2_session_want_read(h->session) && !nghttp2_session_want_write(h->session);
}

int hf__et_h2_go_on(struct hf__et_h2 *h, const int *until, int64_t until_us, char why[HF_ET_WHY])
{
    while (!*until) {
        if (hf__et_h2_send_out(h, why)) return 1;
        if (*until) break; /* this client has ended the call, because the answer was wrong */
        if (hf__et_h2_is_over(h)) {
            snprintf(why, HF_ET_WHY, "what it says isn't HTTP/2");
            return 1;
        }
        int can = hf__et_conn_wait(h->conn, h->out_len != 0, until_us);
        if (can <= 0) {
            snprintf(why, HF_ET_WHY, "%s", can ? "it can't be waited for" : "timed out");
            return 1;
        }
        if (hf__et_h2_read_in(h, why) == HF_ET_BROKEN) return 1;
    }
    return 0;
}
