/*
 * http.h - requests to etcd, by gRPC (h2.c): endpoints, connections, login, errors.
 */
#ifndef HF_ETCD_HTTP_H
#define HF_ETCD_HTTP_H

#include "date.h"
#include "holdfast_driver.h"
#include "pool.h"
#include "proto.h"

#include <pthread.h>

enum { HF_ET_ENDPOINTS = 16, HF_ET_HOST_CAP = 256, HF_ET_PORT_CAP = 8 };
enum { HF_ET_LINKS = 2 * HF_POOL_LINKS };

struct hf__et_h2; /* h2_session.h */

struct hf__et_http {
    char *endpoint[HF_ET_ENDPOINTS]; /* http://host:port */
    unsigned n_endpoints, at;        /* at: the endpoint in use, which answered last (atomic) */
    char *cafile, *cert, *key, *user, *password;
    int64_t io_timeout_ms;
    /* Sessions are kept by connections of their own, so that they don't wait behind other
       requests. */
    struct hf__pool pool, keep_pool;
    struct hf__et_h2 *h2[HF_ET_LINKS]; /* the connections of pool, then those of keep_pool */
    struct hf__et_date date;           /* the server's date; gRPC's answers don't have it */
    void *date_link;                   /* libcurl's handle for asking for the date; one thread at a
                                          time uses it */
    pthread_mutex_t token_mu;
    char *token;  /* the token of this user; NULL: none yet */
    int64_t term; /* the raft term of the last reply that had one; 0 before (atomic) */
    int ready;
};

struct hf__et_reply {
    ProtobufCMessage *message; /* a message of the call's kind; to be freed with hf__et_free */
    int64_t clock_us;          /* the server's clock, up to about a second late; 0: not known */
    int64_t term;              /* the raft term of the last log entry that this member had applied;
                                  0: not known */
};

/* Reads the endpoints, files and user from the URL. The caller calls hf__et_http_close even if this
   fails. */
int hf__et_http_open(struct hf__et_http *http, const hf_url *url, int64_t io_timeout_ms,
                     hf_error *err);
void hf__et_http_close(struct hf__et_http *http);

/*
 * Makes one call. `mem` is the request's memory (NULL: it needed none); if mem->failed, nothing is
 * sent, and the result is HF_NOMEM. `ambiguous` is the code if the request was sent and no clear
 * answer came: HF_UNKNOWN for a write, which isn't made again on another endpoint once a part of it
 * was sent; HF_UNAVAILABLE for a read. Returns 0, or an error; HF_LOST: there is no such lease.
 */
int hf__et_post(struct hf__et_http *http, enum hf__et_call call, const ProtobufCMessage *request,
                const struct hf__et_mem *mem, int ambiguous, struct hf__et_reply *ret,
                const char *what, const char *key, hf_error *err);
/* Makes a request that keeps a session, on a connection of keep_pool. The request ends by local
   time until_us, or later by the time that a new connection takes. The request may be sent twice.
   Its reply has no clock. */
int hf__et_post_keep(struct hf__et_http *http, enum hf__et_call call,
                     const ProtobufCMessage *request, const struct hf__et_mem *mem,
                     int64_t until_us, struct hf__et_reply *ret, const char *what, const char *key,
                     hf_error *err);
void hf__et_free(struct hf__et_reply *reply);

/* Returns in *ret the token to send, to be freed with hf__et_free_secret; "": the server doesn't
   ask for a user; NULL: the URL names none. Returns 0, or the error of a login. */
int hf__et_token(struct hf__et_http *http, char **ret, hf_error *err);
void hf__et_free_secret(char *secret);
/* Adds one host or host:port of the URL's list; without a port it gets `port`, or etcd's. Returns
   0, HF_INVALID or HF_NOMEM. */
int hf__et_add_endpoint(struct hf__et_http *http, const char *host_port, size_t len, int port,
                        int tls);
/* Moves on to the next endpoint, because the one in use can't be used. */
void hf__et_next(struct hf__et_http *http);
/* Returns the host of an endpoint, without brackets, and its port. */
void hf__et_split(const char *endpoint, char host[HF_ET_HOST_CAP], char port[HF_ET_PORT_CAP]);

#endif
