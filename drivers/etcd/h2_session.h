/*
 * h2_session.h - the HTTP/2 of one connection: what h2.c asks of h2_session.c.
 */
#ifndef HF_ETCD_H2_SESSION_H
#define HF_ETCD_H2_SESSION_H

#include "transport.h"

#include <nghttp2/nghttp2.h>

enum { HF_ET_MESSAGE_CAP = 512, HF_ET_NO_STATUS = -1 };

/* The call that is under way on a connection, which carries one at a time. */
struct hf__et_call_state {
    int32_t id; /* the id of its stream; 0: no call is under way */
    const uint8_t *body;
    size_t left;                     /* how many bytes of the body are still to be sent */
    long status;                     /* HTTP's status; 0: none yet */
    int grpc;                        /* gRPC's status, or HF_ET_NO_STATUS */
    char message[HF_ET_MESSAGE_CAP]; /* gRPC's message, percent-encoded */
    uint8_t *reply;
    size_t len, cap;
    int ended;
    uint32_t error; /* HTTP/2's error code of the stream */
};

struct hf__et_h2 {
    struct hf__et_conn *conn;
    nghttp2_session *session;
    const char *endpoint;
    int settled, broken;
    char head[5]; /* the first bytes that the server sent */
    size_t n_head;
    uint8_t *out; /* bytes that are still to be sent */
    size_t out_len, out_cap;
    struct hf__et_call_state call;
    const struct hf__et_method *method; /* what kind of call it is, if it goes on answering */
};

/* Begins HTTP/2 on the connection. Returns 1; 0: out of memory. */
int hf__et_h2_open_session(struct hf__et_h2 *h);
/* Gives nghttp2 the next bytes of the call's body; for nghttp2_submit_request. */
ssize_t hf__et_h2_give_body(nghttp2_session *s, int32_t id, uint8_t *to, size_t cap,
                            uint32_t *flags, nghttp2_data_source *source, void *arg);
/* Sends as many waiting bytes as the connection takes without a wait. Returns 0; 1: the connection
   broke. */
int hf__et_h2_send_out(struct hf__et_h2 *h, char why[HF_ET_WHY]);
/* Reads once, without a wait, and gives the bytes to nghttp2. Returns 0; HF_ET_AGAIN: nothing has
   come; HF_ET_BROKEN. */
int hf__et_h2_read_in(struct hf__et_h2 *h, char why[HF_ET_WHY]);
/* Returns 1 if the first bytes that came are those of an answer by HTTP/1.1. */
int hf__et_h2_is_http1(const struct hf__et_h2 *h);
/* Returns 1 if the connection has nothing left to read or to write. */
int hf__et_h2_is_over(const struct hf__et_h2 *h);
/* Sends and reads until *until isn't 0. Returns 0; 1: until_us has passed, or the connection
   failed. */
int hf__et_h2_go_on(struct hf__et_h2 *h, const int *until, int64_t until_us, char why[HF_ET_WHY]);

#endif
