/*
 * observe.c - mongodb: keeps the last reply of a connection, for the code in it.
 *
 * libmongoc reports every failure of a login as one error of its own, without the server's error
 * code. But that code tells a wrong password from a server that is shutting down. So libmongoc gets
 * an outer stream around the real one (with TLS: around the one with plain bytes), which keeps what
 * is read after each write.
 */
#include "stream.h"

#include <stdlib.h>
#include <string.h>

enum { OBSERVER_TYPE = 101, MOST_PIECES = 8 };
/* The wire protocol: offsets of the kind of a message and of its document; kinds of messages. */
enum { AT_KIND = 12, KIND_REPLY = 1, KIND_MSG = 2013, REPLY_DOCUMENT = 36, MSG_DOCUMENT = 21 };

struct observer {
    mongoc_stream_t is; /* first: libmongoc's view of it */
    mongoc_stream_t *inner;
    struct hf__mg_link *link;
};

static struct observer *of(mongoc_stream_t *is) { return (struct observer *)is; }

static ssize_t ob_writev(mongoc_stream_t *is, mongoc_iovec_t *iov, size_t n, int32_t timeout_ms)
{
    of(is)->link->n_reply = 0;
    return of(is)->inner->writev(of(is)->inner, iov, n, timeout_ms);
}

static void note(struct hf__mg_link *link, const mongoc_iovec_t *piece, size_t n, size_t len)
{
    for (size_t i = 0; i < n && len; i++) {
        size_t here = piece[i].iov_len < len ? piece[i].iov_len : len;
        size_t room = sizeof link->reply - link->n_reply, most = here < room ? here : room;
        memcpy(link->reply + link->n_reply, piece[i].iov_base, most);
        link->n_reply += most;
        len -= here;
    }
}

static ssize_t ob_readv(mongoc_stream_t *is, mongoc_iovec_t *iov, size_t n, size_t min_bytes,
                        int32_t timeout_ms)
{
    mongoc_iovec_t piece[MOST_PIECES]; /* the inner stream advances its own copy of iov */
    size_t pieces = n <= MOST_PIECES ? n : 0;
    memcpy(piece, iov, pieces * sizeof *piece);
    ssize_t got = of(is)->inner->readv(of(is)->inner, iov, n, min_bytes, timeout_ms);
    if (got > 0) note(of(is)->link, piece, pieces, (size_t)got);
    return got;
}

static void ob_destroy(mongoc_stream_t *is)
{
    mongoc_stream_destroy(of(is)->inner);
    free(is);
}

static void ob_failed(mongoc_stream_t *is)
{
    mongoc_stream_failed(of(is)->inner); /* this also destroys the inner stream */
    free(is);
}

static int ob_close(mongoc_stream_t *is) { return mongoc_stream_close(of(is)->inner); }
static int ob_flush(mongoc_stream_t *is) { return mongoc_stream_flush(of(is)->inner); }

static int ob_setsockopt(mongoc_stream_t *is, int level, int name, void *value,
                         mongoc_socklen_t len)
{
    return mongoc_stream_setsockopt(of(is)->inner, level, name, value, len);
}

/* Returns the inner stream, because libmongoc polls the innermost one. */
static mongoc_stream_t *ob_base(mongoc_stream_t *is) { return of(is)->inner; }
static bool ob_check_closed(mongoc_stream_t *is)
{
    return mongoc_stream_check_closed(of(is)->inner);
}
static bool ob_timed_out(mongoc_stream_t *is) { return mongoc_stream_timed_out(of(is)->inner); }
static bool ob_should_retry(mongoc_stream_t *is)
{
    return mongoc_stream_should_retry(of(is)->inner);
}

mongoc_stream_t *hf__mg_observe(struct hf__mg_link *link, mongoc_stream_t *inner)
{
    struct observer *o = inner ? calloc(1, sizeof *o) : NULL;
    /* out of memory: works without; then every refused login is DENIED */
    if (!o) return inner;
    o->is = (mongoc_stream_t){.type = OBSERVER_TYPE,
                              .destroy = ob_destroy,
                              .close = ob_close,
                              .flush = ob_flush,
                              .writev = ob_writev,
                              .readv = ob_readv,
                              .setsockopt = ob_setsockopt,
                              .get_base_stream = ob_base,
                              .check_closed = ob_check_closed,
                              .failed = ob_failed,
                              .timed_out = ob_timed_out,
                              .should_retry = ob_should_retry};
    o->inner = inner;
    o->link = link;
    link->n_reply = 0;
    return &o->is;
}

/* Reads a number of a message (little-endian). */
static uint32_t number_at(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

int hf__mg_reply_code(const struct hf__mg_link *link)
{
    bson_t doc;
    bson_iter_t it;
    if (link->n_reply < REPLY_DOCUMENT + 4) return 0;
    uint32_t kind = number_at(link->reply + AT_KIND);
    size_t at = kind == KIND_MSG ? MSG_DOCUMENT : kind == KIND_REPLY ? REPLY_DOCUMENT : 0;
    size_t len = at ? number_at(link->reply + at) : 0;
    if (!at || len > link->n_reply - at || !bson_init_static(&doc, link->reply + at, len)) return 0;
    return bson_iter_init_find(&it, &doc, "code") && BSON_ITER_HOLDS_INT32(&it)
               ? bson_iter_int32(&it)
               : 0;
}
