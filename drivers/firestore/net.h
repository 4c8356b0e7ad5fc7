/*
 * net.h - firestore: requests over HTTPS by libcurl, on a few connections that are kept.
 */
#ifndef HF_FIRESTORE_NET_H
#define HF_FIRESTORE_NET_H

#include "holdfast_driver.h"
#include "pool.h"

#include <curl/curl.h>
#include <pthread.h>

enum { HF_FS_WHY_CAP = 300 };

struct hf__fs_net {
    struct hf__pool pool;
    CURL *link[HF_POOL_LINKS]; /* NULL: not made */
    /* For many replaces at once: none of them is kept waiting by other requests. */
    struct hf__pool many_pool;
    CURL *many[HF_POOL_LINKS];
    int64_t io_timeout_ms;
    char *cafile;  /* NULL: the system's */
    int straight;  /* without a proxy: the server is here */
    uint64_t sent; /* requests (atomic) */
};

/* What came back. */
struct hf__fs_reply {
    long status; /* of HTTP; 0: no reply came, or not the whole of one */
    int whole;   /* its header has come to its end */
    int sent;    /* the request may have been seen there */
    int code;    /* status 0: of enum hf_code, as if it hadn't been sent */
    char *body;  /* ended by a NUL */
    size_t len, cap;
    char why[HF_FS_WHY_CAP];
};

int hf__fs_net_open(struct hf__fs_net *net, hf_error *err); /* 0, or HF_NOMEM */
void hf__fs_net_close(struct hf__fs_net *net);

/* One POST there and back. `headers` is NULL at its end. `harmless`: libcurl may send it anew where
   a connection that it kept turns out to be dead. `many_until_us`: 0; or the local time until which
   it has to be answered, by the connections for many replaces. Free the reply by hf__fs_reply_free,
   which wipes it. */
void hf__fs_post(struct hf__fs_net *net, const char *url, const char *const *headers,
                 const char *body, size_t len, int harmless, int64_t many_until_us,
                 struct hf__fs_reply *reply);
void hf__fs_reply_free(struct hf__fs_reply *reply);

/* Wipes and frees a secret. */
void hf__fs_forget(char *secret);
/* http: without TLS is for servers on this machine only. */
int hf__fs_url_safe(const char *url);

#endif
