/*
 * http.h - requests to etcd, by gRPC (h2.c): endpoints, connections, the login, what went wrong.
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
    unsigned n_endpoints, at;        /* at: the index of the one that answered last (atomic) */
    char *cafile, *cert, *key, *user, *password;
    int64_t io_timeout_ms;
    /* Sessions are kept by connections of their own, so that they don't wait behind other
       requests. */
    struct hf__pool pool, keep_pool;
    struct hf__et_h2 *h2[HF_ET_LINKS]; /* the connections of pool, then those of keep_pool */
    struct hf__et_date date;           /* gRPC's answers don't tell it */
    void *date_link;                   /* libcurl's handle for asking for the date; one thread at a
                                          time uses it */
    pthread_mutex_t token_mu;
    char *token;  /* the token of this user; NULL: none yet */
    int64_t term; /* the raft term of the last reply that had one; 0 before (atomic) */
    int ready;
};

struct hf__et_reply {
    ProtobufCMessage *message; /* a message of the call's kind; to be freed with hf__et_free */
    int64_t clock_us;          /* the server's clock, within about a second; never goes back; 0: not
                                  known */
    int64_t term;              /* the term of the last entry that this member had applied; 0: not
                                  known */
};

/* Reads the endpoints, files and user from the URL. To be closed in every case. */
int hf__et_http_open(struct hf__et_http *http, const hf_url *url, int64_t io_timeout_ms,
                     hf_error *err);
void hf__et_http_close(struct hf__et_http *http);

/*
 * One call. `mem` is the request's memory: if it has failed, so has the call, and nothing is sent
 * (NULL: it needed none). `ambiguous` is what to answer if the request was sent and no (clear)
 * answer came: HF_UNKNOWN for writes, which go on to the next endpoint only while nothing was sent,
 * else HF_UNAVAILABLE. HF_LOST: no such lease.
 */
int hf__et_post(struct hf__et_http *http, enum hf__et_call call, const ProtobufCMessage *request,
                const struct hf__et_mem *mem, int ambiguous, struct hf__et_reply *ret,
                const char *what, const char *key, hf_error *err);
/* Makes a request that keeps a session. It is to be answered by until_us, local (later by the
   time that a new connection takes). It brings no clock. Doing it twice does no more than
   doing it once. */
int hf__et_post_keep(struct hf__et_http *http, enum hf__et_call call,
                     const ProtobufCMessage *request, const struct hf__et_mem *mem,
                     int64_t until_us, struct hf__et_reply *ret, const char *what, const char *key,
                     hf_error *err);
void hf__et_free(struct hf__et_reply *reply);

/* Gives the token to send, to be freed with hf__et_free_secret: "" if the server doesn't ask for a
   user; NULL if the URL names none. Returns 0, or why there is no token. */
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
