/*
 * rest.h - requests over HTTP by libcurl, on a few connections that are kept. Compiled into each
 * module that uses it; it isn't part of the installed kit, which needs no libcurl.
 *
 * Thread safety: all functions by any thread, but for hf__rest_open and hf__rest_close. A thread is
 * inside the fork gate (kit/fork_gate.h) while it is in libcurl.
 */
#ifndef HF_KIT_REST_H
#define HF_KIT_REST_H

#include "holdfast_driver.h"
#include "pool.h"

#include <curl/curl.h>

enum { HF_REST_WHY = 300, HF_REST_TAG = 128, HF_REST_AT_ONCE = 32 };

struct hf__rest_lanes;

struct hf__rest {
    const char *store; /* the driver's name, for messages */
    struct hf__pool pool;
    CURL *link[HF_POOL_LINKS]; /* NULL: not made */
    /* Connections for many replaces at once, so that other requests don't delay them. */
    struct hf__pool many_pool;
    CURL *many[HF_POOL_LINKS];
    CURLM *multi[2][HF_POOL_LINKS]; /* [0] drives the requests of `link`, [1] those of `many` */
    struct hf__rest_lanes *lanes[HF_POOL_LINKS]; /* NULL: not made */
    int64_t io_timeout_ms;
    char *cafile;  /* NULL: the system's */
    int straight;  /* don't use a proxy: the server is on this machine */
    uint64_t sent; /* requests (atomic) */
};

struct hf__rest_call {
    const char *method; /* POST, PUT or GET */
    const char *url;
    const char *const *headers; /* NULL at its end */
    const char *body;           /* none: len 0 */
    size_t len;
    int harmless; /* libcurl may send it again if a connection that it kept turns out to be dead */
    int64_t many_until_us; /* not 0: it is made on a connection for many replaces, and has to be
                              answered by this local time */
    /* If `sign` isn't NULL, the request is signed for this account; `sign` is the value of
       CURLOPT_AWS_SIGV4. libcurl signs all `headers`, so there may be none that it doesn't send. */
    const char *sign, *user, *password;
};

/* What came back. */
struct hf__rest_reply {
    long status; /* HTTP's status; 0: no reply came, or not a whole one */
    int whole;   /* the empty line after the header has come */
    int sent;    /* the server may have received the request's body */
    int code;    /* if status is 0: the error, provided that nothing was sent */
    char *body;  /* ended by a NUL */
    size_t len, cap;
    int64_t date_us;       /* the header Date; 0: there was none */
    char tag[HF_REST_TAG]; /* the header ETag; "": there was none, or a longer one */
    char why[HF_REST_WHY];
};

/* Sets up the pools and starts libcurl; connects to nothing yet. The caller has set `store` and
   io_timeout_ms, and calls hf__rest_close even if this fails. Returns 0 or an HF_ error. */
int hf__rest_open(struct hf__rest *rest, hf_error *err);
void hf__rest_close(struct hf__rest *rest);

/* Makes one request. Free the reply by hf__rest_reply_free, which wipes it. */
void hf__rest_ask(struct hf__rest *rest, const struct hf__rest_call *call,
                  struct hf__rest_reply *reply);
void hf__rest_reply_free(struct hf__rest_reply *reply);
/*
 * Makes n requests, HF_REST_AT_ONCE side by side, on connections for many replaces. Each gets its
 * own reply, to be freed. A request that isn't answered by until_us (local time), or that takes
 * much longer than others, has status 0. A request not begun by until_us was not sent. The
 * many_until_us of the calls is ignored.
 */
void hf__rest_ask_many(struct hf__rest *rest, const struct hf__rest_call *call,
                       struct hf__rest_reply *reply, size_t n, int64_t until_us);
void hf__rest_lanes_free(struct hf__rest_lanes *lanes); /* may be NULL */

/* Wipes and frees a secret. */
void hf__rest_forget(char *secret);
/* Returns 1 if the URL has TLS, or names a server on this machine. */
int hf__rest_url_safe(const char *url);

#endif
