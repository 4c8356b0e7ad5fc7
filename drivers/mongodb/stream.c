/*
 * stream.c - mongodb: the connections that libmongoc reads and writes. See stream.h.
 *
 * Contents: the streams of this process; waiting; what libmongoc calls; making one.
 */
#include "stream.h"

#include "kit/fork_gate.h"
#include "os.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* STREAM_TYPE: not one of libmongoc's types, because libmongoc casts those to its own structures.
 */
enum { STREAM_TYPE = 100, KEEP_IDLE_S = 15, KEEP_INTERVAL_S = 5 };

struct stream {
    mongoc_stream_t is; /* first: libmongoc's view of it */
    struct hf__mg_link *link;
    struct stream *next, **prev; /* in `all` */
    int fd;                      /* -1: closed */
    int sys;                     /* the errno of the last call */
};

/* ---- the streams of this process ---- */

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static struct stream *all;

/* No thread held the mutex at the fork: threads take it only inside the fork gate. */
void hf__mg_streams_forget(void)
{
    mu = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    for (struct stream *s = all; s; s = s->next) s->prev = NULL;
    all = NULL;
}

void hf__mg_streams_stop(void)
{
    pthread_mutex_lock(&mu);
    for (struct stream *s = all; s; s = s->next) shutdown(s->fd, SHUT_RDWR);
    pthread_mutex_unlock(&mu);
}

static void list(struct stream *s)
{
    pthread_mutex_lock(&mu);
    s->next = all;
    s->prev = &all;
    if (all) all->prev = &s->next;
    all = s;
    pthread_mutex_unlock(&mu);
}

static void unlist(struct stream *s)
{
    pthread_mutex_lock(&mu);
    if (s->prev) {
        *s->prev = s->next;
        if (s->next) s->next->prev = s->prev;
    }
    s->prev = NULL;
    pthread_mutex_unlock(&mu);
}

/* ---- waiting ---- */

/* Returns the local time at which a call with this time limit (negative: none) has to end, or
   link->until_us if that is earlier; INT64_MAX: there is no limit. */
static int64_t end_of(const struct hf__mg_link *link, int32_t timeout_ms)
{
    int64_t until_us = timeout_ms < 0 ? INT64_MAX : hf__local_us() + timeout_ms * INT64_C(1000);
    return link->until_us && link->until_us < until_us ? link->until_us : until_us;
}

/* Calls poll until local time until_us, at least once. Returns what poll returns. */
static int poll_on(struct pollfd *fds, nfds_t n, int64_t until_us)
{
    for (;;) {
        int64_t left_us = until_us == INT64_MAX ? 60000000 : until_us - hf__local_us();
        int rc = poll(fds, n,
                      left_us <= 0         ? 0
                      : left_us > 60000000 ? 60000
                                           : (int)((left_us + 999) / 1000));
        if (rc > 0 || (rc < 0 && errno != EINTR)) return rc;
        if (until_us != INT64_MAX && hf__local_us() >= until_us) return 0;
    }
}

static int poll_until(struct pollfd *fds, nfds_t n, int64_t until_us)
{
    hf__gate_wait();
    int rc = poll_on(fds, n, until_us);
    hf__gate_go_on();
    return rc;
}

/* Waits until the stream may be ready. Returns 1; 0: errno says why not. */
static int wait_for(const struct stream *s, short events, int32_t timeout_ms, int64_t until_us)
{
    struct pollfd p = {s->fd, events, 0};
    int n = timeout_ms ? poll_until(&p, 1, until_us) : 0;
    if (!n) errno = timeout_ms ? ETIMEDOUT : EAGAIN;
    return n > 0;
}

/* ---- what libmongoc calls ---- */

static ssize_t failed(struct stream *s, int sys)
{
    errno = s->sys = sys;
    if (sys != EAGAIN) s->link->broken = sys;
    return -1;
}

/* Advances the buffers by that many bytes. Returns 0 if nothing is left of them. */
static int move_on(mongoc_iovec_t **iov, size_t *n, size_t by)
{
    while (*n && by >= (*iov)->iov_len) {
        by -= (*iov)->iov_len;
        ++*iov;
        --*n;
    }
    if (!*n) return 0;
    (*iov)->iov_base = (char *)(*iov)->iov_base + by;
    (*iov)->iov_len -= by;
    return 1;
}

/* Writes all bytes, or fewer if the time is over. Returns how many; -1: the stream is broken. */
static ssize_t st_writev(mongoc_stream_t *is, mongoc_iovec_t *iov, size_t n, int32_t timeout_ms)
{
    struct stream *s = (struct stream *)is;
    int64_t until_us = end_of(s->link, timeout_ms);
    ssize_t all_of = 0;
    while (move_on(&iov, &n, 0)) {
        struct msghdr message = {.msg_iov = iov, .msg_iovlen = (int)n};
        ssize_t sent = sendmsg(s->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR) continue;
        int sys = sent < 0 ? errno : 0;
        if (sys == EAGAIN && wait_for(s, POLLOUT, timeout_ms, until_us)) continue;
        if (sys == EAGAIN) sys = errno;
        if (sys) {
            failed(s, sys);
            return all_of ? all_of : -1;
        }
        all_of += sent;
        move_on(&iov, &n, (size_t)sent);
    }
    s->sys = 0;
    return all_of;
}

/* Reads at least min_bytes; with min_bytes 0, only what has come already. */
static ssize_t st_readv(mongoc_stream_t *is, mongoc_iovec_t *iov, size_t n, size_t min_bytes,
                        int32_t timeout_ms)
{
    struct stream *s = (struct stream *)is;
    int64_t until_us = end_of(s->link, timeout_ms);
    ssize_t got = 0;
    while (move_on(&iov, &n, 0)) {
        struct msghdr message = {.msg_iov = iov, .msg_iovlen = (int)n};
        ssize_t more = recvmsg(s->fd, &message, MSG_DONTWAIT);
        int sys = more < 0 ? errno : more ? 0 : ECONNRESET; /* closed by the server */
        if (sys == EINTR) continue;
        if (sys == EAGAIN && wait_for(s, POLLIN, timeout_ms, until_us)) continue;
        if (sys == EAGAIN) sys = errno;
        if (sys) {
            failed(s, sys);
            return got >= (ssize_t)min_bytes && (got || sys == EAGAIN) ? got : -1;
        }
        got += more;
        move_on(&iov, &n, (size_t)more);
        if (got >= (ssize_t)min_bytes) break;
    }
    s->sys = 0;
    return got;
}

/* Does what poll does, for streams of this file. A stream whose time is up has failed. */
static ssize_t st_poll(mongoc_stream_poll_t *polled, size_t n, int32_t timeout_ms)
{
    struct pollfd *fds = calloc(n ? n : 1, sizeof *fds);
    int64_t until_us = INT64_MAX;
    ssize_t ready = -1;
    if (!fds) return -1;
    for (size_t i = 0; i < n; i++) {
        struct stream *s = (struct stream *)polled[i].stream;
        int64_t end_us = end_of(s->link, timeout_ms);
        if (end_us < until_us) until_us = end_us;
        if (s->fd < 0) until_us = 0; /* a broken stream counts as ready, so this doesn't wait */
        fds[i] = (struct pollfd){s->fd, (short)polled[i].events, 0};
    }
    ready = poll_until(fds, (nfds_t)n, until_us);
    int none = !ready;
    for (size_t i = 0; i < n && ready >= 0; i++) {
        struct stream *s = (struct stream *)polled[i].stream;
        polled[i].revents = fds[i].revents;
        if (s->fd < 0) {
            polled[i].revents = POLLERR | POLLHUP;
            ready++;
            continue;
        }
        if (!none || !s->link->until_us || hf__local_us() < s->link->until_us) continue;
        failed(s, ETIMEDOUT);
        polled[i].revents = POLLERR | POLLHUP;
        ready++;
    }
    free(fds);
    return ready;
}

static int st_close(mongoc_stream_t *is)
{
    struct stream *s = (struct stream *)is;
    unlist(s);
    int rc = s->fd < 0 ? 0 : close(s->fd);
    s->fd = -1;
    return rc;
}

static void st_destroy(mongoc_stream_t *is)
{
    st_close(is);
    free(is);
}

static int st_flush(mongoc_stream_t *is)
{
    (void)is;
    return 0;
}

static int st_setsockopt(mongoc_stream_t *is, int level, int name, void *value,
                         mongoc_socklen_t len)
{
    return setsockopt(((struct stream *)is)->fd, level, name, value, len);
}

static bool st_check_closed(mongoc_stream_t *is)
{
    char byte;
    ssize_t n = recv(((struct stream *)is)->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

static bool st_timed_out(mongoc_stream_t *is) { return ((struct stream *)is)->sys == ETIMEDOUT; }
static bool st_should_retry(mongoc_stream_t *is) { return ((struct stream *)is)->sys == EAGAIN; }

/* ---- making one ---- */

static void set_options(int fd)
{
    const struct {
        int level, name, value;
    } of[] = {{SOL_SOCKET, SO_KEEPALIVE, 1},
              {IPPROTO_TCP, TCP_NODELAY, 1}, /* the options of TCP fail for a Unix socket */
              {IPPROTO_TCP, TCP_KEEPIDLE, KEEP_IDLE_S},
              {IPPROTO_TCP, TCP_KEEPINTVL, KEEP_INTERVAL_S}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        setsockopt(fd, of[i].level, of[i].name, &of[i].value, sizeof of[i].value);
}

mongoc_stream_t *hf__mg_stream(struct hf__mg_link *link, int fd)
{
    struct stream *s = calloc(1, sizeof *s);
    if (!s) {
        if (fd >= 0) close(fd);
        return NULL;
    }
    if (fd >= 0) set_options(fd);
    s->is = (mongoc_stream_t){.type = STREAM_TYPE,
                              .destroy = st_destroy,
                              .close = st_close,
                              .flush = st_flush,
                              .writev = st_writev,
                              .readv = st_readv,
                              .setsockopt = st_setsockopt,
                              .check_closed = st_check_closed,
                              .poll = st_poll,
                              .failed = st_destroy,
                              .timed_out = st_timed_out,
                              .should_retry = st_should_retry};
    s->link = link;
    s->fd = fd;
    list(s);
    return &s->is;
}
