/*
 * etcd_serve.c - see etcd_serve.h. HTTP/2 is nghttp2's; a connection carries one call at a time.
 */
#include "etcd_serve.h"

#include "etcd_text.h"
#include "fakes/answers.h"

#include <jansson.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

enum { ASKED = 1 << 16, FRAME = 5, NONE = -1 };

struct serving {
    nghttp2_session *session;
    /* The call that is made. */
    char path[100], token[4096];
    uint8_t *body, *reply;
    size_t body_len, len, sent;
    int is_open, cuts, closes, id;
};

/* ---- what is said ---- */

static nghttp2_nv header(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name),
                        strlen(value), NGHTTP2_NV_FLAG_NONE};
}

static void put(struct serving *s, const void *bytes, size_t len)
{
    s->reply = realloc(s->reply, s->len + len + 1);
    if (len) memcpy(s->reply + s->len, bytes, len);
    s->len += len;
}

static void put_message(struct serving *s, const struct etcd_call *call, const char *text,
                        size_t len)
{
    size_t n = 0;
    uint8_t *m = etcd_message(call->reply, text, len, &n);
    const uint8_t *bytes = m ? m : (const uint8_t *)text;
    if (!m) n = len;
    const uint8_t head[FRAME] = {0, 0, (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n};
    put(s, head, sizeof head);
    put(s, bytes, n);
    free(m);
}

static void put_body(struct serving *s, const struct etcd_call *call, const char *body)
{
    while (*body) {
        size_t line = strcmp(call->path, "/v3/watch") != 0 ? strlen(body) : strcspn(body, "\n");
        put_message(s, call, body, line);
        body += line;
        if (*body) body++;
    }
}

static ssize_t give(nghttp2_session *session, int32_t id, uint8_t *to, size_t cap, uint32_t *flags,
                    nghttp2_data_source *source, void *arg)
{
    struct serving *s = arg;
    size_t end = s->cuts ? s->len / 2 : s->len, n = end - s->sent < cap ? end - s->sent : cap;
    (void)source;
    if (!n && (s->is_open || s->cuts)) {
        s->closes = s->cuts;
        return NGHTTP2_ERR_DEFERRED;
    }
    if (n) memcpy(to, s->reply + s->sent, n);
    s->sent += n;
    if (s->sent == s->len && !s->is_open && !s->cuts) {
        const nghttp2_nv ok = header("grpc-status", "0");
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        nghttp2_submit_trailer(session, id, &ok, 1);
    }
    return (ssize_t)n;
}

/* Encodes a text as gRPC does in its headers. */
static void encode(const char *text, char *to, size_t cap)
{
    for (*to = 0; *text; text++) {
        int plain = *text >= ' ' && *text < 0x7f && *text != '%';
        size_t n = strlen(to);
        snprintf(to + n, cap - n, plain ? "%c" : "%%%02X", (unsigned char)*text);
    }
}

static void refuse(struct serving *s, const struct answer *a)
{
    char status[12], code[24] = "2", message[1500];
    json_t *j = json_loads(a->body, 0, NULL);
    const char *error = json_string_value(json_object_get(j, "error"));
    const json_t *number = json_object_get(j, "code");
    if (number) snprintf(code, sizeof code, "%d", (int)json_integer_value(number));
    snprintf(status, sizeof status, "%d", error ? 200 : a->status);
    encode(error ? error : "", message, sizeof message);
    const nghttp2_nv all[] = {header(":status", status), header("grpc-status", code),
                              header("grpc-message", message)};
    nghttp2_submit_response(s->session, s->id, all, error ? 3 : 1, NULL);
    json_decref(j);
}

static void answer(struct serving *s)
{
    static const nghttp2_data_provider from = {.read_callback = give};
    const struct etcd_call *call = etcd_call(s->path);
    const nghttp2_nv good[] = {header(":status", "200"),
                               header("content-type", "application/grpc")};
    char *text = call && s->body_len >= FRAME
                     ? etcd_text(call->request, s->body + FRAME, s->body_len - FRAME)
                     : NULL;
    char *asked = malloc(ASKED);
    if (!text) abort(); /* the driver makes a call that etcd doesn't have */
    snprintf(asked, ASKED, "%s\r\ntoken: %s\r\n\r\n%s", call->path, s->token, text);
    struct answer a = answers_find(call->path, asked);
    free(asked);
    free(text);
    s->len = s->sent = 0;
    s->is_open = a.status == ANSWER_OPEN;
    s->cuts = a.status == ANSWER_CUT;
    s->closes = a.status == ANSWER_CLOSED;
    if (s->closes) return;
    if (a.status <= ANSWER_NO_HEAD) {
        char status[12];
        snprintf(status, sizeof status, "%d", ANSWER_NO_HEAD - a.status);
        const nghttp2_nv alone = header(":status", status);
        nghttp2_submit_headers(s->session, NGHTTP2_FLAG_NONE, s->id, NULL, &alone, 1, NULL);
        s->closes = 1;
        return;
    }
    if (a.status > 0 && a.status != 200) {
        refuse(s, &a);
        return;
    }
    put_body(s, call, a.body);
    nghttp2_submit_response(s->session, s->id, good, 2, &from);
}

/* ---- what is asked ---- */

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t len, uint8_t flags, void *arg)
{
    struct serving *s = arg;
    (void)session;
    (void)flags;
    if (s->id != frame->hd.stream_id) s->token[0] = 0;
    if (s->id != frame->hd.stream_id) s->body_len = 0;
    s->id = frame->hd.stream_id;
    if (name_len == 5 && !memcmp(name, ":path", 5))
        snprintf(s->path, sizeof s->path, "%.*s", (int)len, value);
    if (name_len == 5 && !memcmp(name, "token", 5))
        snprintf(s->token, sizeof s->token, "%.*s", (int)len, value);
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                   size_t len, void *arg)
{
    struct serving *s = arg;
    (void)session;
    (void)flags;
    (void)id;
    s->body = realloc(s->body, s->body_len + len + 1);
    memcpy(s->body + s->body_len, data, len);
    s->body_len += len;
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    (void)session;
    if (frame->hd.type == NGHTTP2_DATA && frame->hd.flags & NGHTTP2_FLAG_END_STREAM) answer(arg);
    return 0;
}

/* 0: the client has gone. */
static int send_all(struct serving *s, int fd)
{
    const uint8_t *bytes;
    ssize_t n;
    while ((n = nghttp2_session_mem_send(s->session, &bytes)) > 0)
        if (send(fd, bytes, (size_t)n, MSG_NOSIGNAL) != n) return 0;
    return n == 0 && !s->closes;
}

static void serve_http2(int fd)
{
    static const nghttp2_settings_entry window = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 1 << 20};
    struct serving s = {.id = NONE};
    nghttp2_session_callbacks *all;
    uint8_t bytes[16384];
    ssize_t n;
    if (nghttp2_session_callbacks_new(&all)) abort();
    nghttp2_session_callbacks_set_on_header_callback(all, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(all, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(all, on_frame);
    if (nghttp2_session_server_new(&s.session, all, &s)) abort();
    nghttp2_session_callbacks_del(all);
    nghttp2_submit_settings(s.session, NGHTTP2_FLAG_NONE, &window, 1);
    while (send_all(&s, fd) && (n = recv(fd, bytes, sizeof bytes, 0)) > 0)
        if (nghttp2_session_mem_recv(s.session, bytes, (size_t)n) < 0) break;
    nghttp2_session_del(s.session);
    free(s.body);
    free(s.reply);
}

static void serve_date(int fd)
{
    static const char said[] =
        "HTTP/1.1 200 OK\r\nDate: " ANSWERS_DATE "\r\nContent-Length: 0\r\n\r\n";
    char text[4096] = "";
    for (size_t n = 0; !strstr(text, "\r\n\r\n");) {
        ssize_t k = recv(fd, text + n, sizeof text - 1 - n, 0);
        if (k <= 0) return;
        n += (size_t)k;
        text[n] = 0;
    }
    send(fd, said, sizeof said - 1, MSG_NOSIGNAL);
}

void etcd_serve(int fd)
{
    char first[3];
    if (recv(fd, first, sizeof first, MSG_PEEK | MSG_WAITALL) != sizeof first) return;
    (memcmp(first, "PRI", 3) ? serve_date : serve_http2)(fd);
}
