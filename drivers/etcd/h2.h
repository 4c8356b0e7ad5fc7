/*
 * h2.h - gRPC over HTTP/2: a connection that carries one call at a time, or a call that goes on
 * answering. A call with one answer is made by hf__et_h2_exchange (transport.h).
 */
#ifndef HF_ETCD_H2_H
#define HF_ETCD_H2_H

#include "transport.h"

/* Begins a call that goes on answering, on a new connection, and returns when the call was sent.
   `x` has the body, which has to stay until the call ends. Returns NULL if it failed. */
struct hf__et_h2 *hf__et_h2_begin(struct hf__et_http *http, struct hf__et_exchange *x,
                                  int64_t until_us);
void hf__et_h2_end(struct hf__et_h2 *h);

/* Called for each answer. `said` is a message of the call's kind; NULL: what came isn't one. */
typedef void hf__et_receive_fn(void *arg, const ProtobufCMessage *said);

/* Calls `receive` for each answer that has come by now. Returns 0; 1: the call has ended. */
int hf__et_h2_receive(struct hf__et_h2 *h, hf__et_receive_fn *receive, void *arg);
/* Returns the descriptor to wait for, and whether to wait until it can be written. */
int hf__et_h2_fd(const struct hf__et_h2 *h, int *ret_to_write);

#endif
