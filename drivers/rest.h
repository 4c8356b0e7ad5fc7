/*
 * rest.h - requests over HTTP by libcurl, on a few connections that are kept. Compiled into each
 * module that uses it; it isn't part of the installed kit, which needs no libcurl.
 *
 * Thread safety: all functions by any thread, but for hf__rest_open and hf__rest_close. The threads
 * are inside of kit/fork_gate.h while they are in libcurl.
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
    CURLM *multi[2][HF_POOL_LINKS]; /* of `link` and of `many`, to make their requests by */
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
    int64_t many_until_us; /* 0; or the local time by which it has to be answered, on the
                              connections for many replaces */
    /* Signed by this account, if `sign` isn't NULL: see CURLOPT_AWS_SIGV4. libcurl signs all
       headers, so none of them may be one that it then leaves out. */
    const char *sign, *user, *password;
};

/* What came back. */
struct hf__rest_reply {
    long status; /* HTTP's status; 0: no reply came, or not a whole one */
    int whole;   /* the empty line after the header has come */
    int sent;    /* the server may have received the request's body */
    int code;    /* if status is 0: the code that counts if nothing was sent */
    char *body;  /* ended by a NUL */
    size_t len, cap;
    int64_t date_us;       /* the header Date; 0: there was none */
    char tag[HF_REST_TAG]; /* the header ETag; "": there was none, or a longer one */
    char why[HF_REST_WHY];
};

/* Opens the connections; the caller has set `store` and io_timeout_ms. Returns 0 or an HF_
   error. */
int hf__rest_open(struct hf__rest *rest, hf_error *err);
void hf__rest_close(struct hf__rest *rest);

/* Makes one request. Free the reply by hf__rest_reply_free, which wipes it. */
void hf__rest_ask(struct hf__rest *rest, const struct hf__rest_call *call,
                  struct hf__rest_reply *reply);
void hf__rest_reply_free(struct hf__rest_reply *reply);
/*
 * n requests side by side, HF_REST_AT_ONCE at a time, on connections for many replaces; each gets
 * its own reply, to be freed. A request that isn't answered by until_us (local time), or that takes
 * much longer than others, has status 0; one that wasn't begun by then wasn't sent. Their
 * many_until_us means nothing.
 */
void hf__rest_ask_many(struct hf__rest *rest, const struct hf__rest_call *call,
                       struct hf__rest_reply *reply, size_t n, int64_t until_us);
void hf__rest_lanes_free(struct hf__rest_lanes *lanes); /* may be NULL */

/* Wipes and frees a secret. */
void hf__rest_forget(char *secret);
/* Returns 1 if the URL has TLS, or names a server on this machine. */
int hf__rest_url_safe(const char *url);

#endif
