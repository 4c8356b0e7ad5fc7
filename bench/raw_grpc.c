/*
 * raw_grpc.c - calls by nghttp2 alone, on one connection that is kept; see raw.h.
 */
#include "bench.h"
#include "raw.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ANSWER_CAP = 1 << 16, HEAD = 5 };

static nghttp2_session *session;
static int fd = -1, ended, status;
static int32_t stream;
static char authority[256];
static unsigned char question[ANSWER_CAP], answer[ANSWER_CAP];
static size_t asked, left, length;

static ssize_t give(nghttp2_session *s, int32_t id, uint8_t *to, size_t cap, uint32_t *flags,
                    nghttp2_data_source *source, void *arg)
{
    size_t n = left < cap ? left : cap;
    (void)s;
    (void)id;
    (void)source;
    (void)arg;
    memcpy(to, question + asked - left, n);
    left -= n;
    if (!left) *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)n;
}

static int on_data(nghttp2_session *s, uint8_t flags, int32_t id, const uint8_t *data, size_t n,
                   void *arg)
{
    (void)s;
    (void)flags;
    (void)id;
    (void)arg;
    if (length + n > ANSWER_CAP) return NGHTTP2_ERR_CALLBACK_FAILURE;
    memcpy(answer + length, data, n);
    length += n;
    return 0;
}

static int on_header(nghttp2_session *s, const nghttp2_frame *frame, const uint8_t *name, size_t n,
                     const uint8_t *value, size_t len, uint8_t flags, void *arg)
{
    (void)s;
    (void)frame;
    (void)flags;
    (void)arg;
    if (n == 11 && !memcmp(name, "grpc-status", n)) status = len == 1 ? *value - '0' : -1;
    return 0;
}

static int on_close(nghttp2_session *s, int32_t id, uint32_t error, void *arg)
{
    (void)s;
    (void)error;
    (void)arg;
    if (id == stream) ended = 1;
    return 0;
}

static void dial(const char *url)
{
    struct addrinfo *all, hints = {.ai_socktype = SOCK_STREAM};
    char host[200], port[16] = "2379";
    int yes = 1;
    const char *at = strstr(url, "://");
    if (!at || sscanf(at + 3, "%199[^:/?,]:%15[0-9]", host, port) < 1)
        bench_die("'%s': no host", url);
    snprintf(authority, sizeof authority, "%s:%s", host, port);
    if (getaddrinfo(host, port, &hints, &all)) bench_die("%s: no such host", host);
    fd = socket(all->ai_family, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, all->ai_addr, all->ai_addrlen)) bench_die("%s: not there", authority);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    freeaddrinfo(all);
}

void raw_grpc_open(const char *url)
{
    nghttp2_session_callbacks *all;
    dial(url);
    if (nghttp2_session_callbacks_new(&all)) bench_die("nghttp2: out of memory");
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(all, on_data);
    nghttp2_session_callbacks_set_on_header_callback(all, on_header);
    nghttp2_session_callbacks_set_on_stream_close_callback(all, on_close);
    if (nghttp2_session_client_new(&session, all, NULL) ||
        nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, NULL, 0))
        bench_die("nghttp2: out of memory");
    nghttp2_session_callbacks_del(all);
}

static void flush(void)
{
    static unsigned char out[2 * ANSWER_CAP];
    const uint8_t *more;
    size_t n = 0;
    ssize_t k;
    while ((k = nghttp2_session_mem_send(session, &more)) > 0) {
        if (n + (size_t)k > sizeof out) bench_die("gRPC: too long");
        memcpy(out + n, more, (size_t)k);
        n += (size_t)k;
    }
    if (n && send(fd, out, n, MSG_NOSIGNAL) != (ssize_t)n) bench_die("gRPC: the connection broke");
}

static nghttp2_nv header(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name),
                        strlen(value), NGHTTP2_NV_FLAG_NONE};
}

unsigned char *raw_grpc_message(size_t len)
{
    if (len > sizeof question - HEAD) bench_die("gRPC: too long");
    question[0] = question[1] = question[2] = 0;
    question[3] = (unsigned char)(len >> 8);
    question[4] = (unsigned char)len;
    asked = HEAD + len;
    return question + HEAD;
}

const unsigned char *raw_grpc(const char *path, size_t *ret_len)
{
    const nghttp2_nv all[] = {header(":method", "POST"),
                              header(":scheme", "http"),
                              header(":path", path),
                              header(":authority", authority),
                              header("content-type", "application/grpc"),
                              header("te", "trailers")};
    nghttp2_data_provider body = {.read_callback = give};
    unsigned char bytes[16384];
    left = asked;
    length = 0;
    ended = 0;
    status = -1;
    stream = nghttp2_submit_request(session, NULL, all, 6, &body, NULL);
    flush();
    while (!ended) {
        ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        if (n <= 0 || nghttp2_session_mem_recv(session, bytes, (size_t)n) < 0)
            bench_die("gRPC: the connection broke");
        if (!ended) flush();
    }
    if (status || length < HEAD) bench_die("gRPC: %s: status %d", path, status);
    *ret_len = length - HEAD;
    return answer + HEAD;
}
