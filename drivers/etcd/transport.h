/*
 * transport.h - one exchange with one endpoint: what http.c asks of h2.c.
 */
#ifndef HF_ETCD_TRANSPORT_H
#define HF_ETCD_TRANSPORT_H

#include "http.h"
#include "proto.h"

enum { HF_ET_WHY = 256 };

#define HF_ET_NO_HTTP2 "no HTTP/2 there, which gRPC needs"

struct hf__et_exchange {
    enum hf__et_call call;
    uint8_t *body; /* the framed request, to be freed */
    size_t len;
    const char *token;     /* NULL or "": none */
    int64_t keep_until_us; /* local: when the request, which keeps a session, must be answered; 0:
                              it keeps none */
    int repeat;            /* the request changes nothing, or nothing more if it is done twice */
    /* The result. If there was no answer: `failed` is the code, which counts if nothing was
       sent. */
    int failed, sent;
    int nobody; /* no endpoint can be reached */
    char why[HF_ET_WHY];
    /* If there was an answer: gRPC's status (0: OK), the text of another status, and the message
       (NULL: none that can be read). */
    int status;
    char said[512];
    ProtobufCMessage *message;
    int nomem; /* there was a message, but no memory for it */
};

/* gRPC's codes that say by themselves that nothing was done; others are HF_ET_OTHER here. */
enum {
    HF_ET_OK = 0,
    HF_ET_OTHER = 2,
    HF_ET_PERMISSION_DENIED = 7,
    HF_ET_UNIMPLEMENTED = 12,
    HF_ET_UNAUTHENTICATED = 16
};

/* Sends the request to the endpoint in use, or, if that can't be reached, to another one. Connects
   until until_us, and then waits for the answer for share_ms at most. `number`: the connection's
   number in the pool. */
void hf__et_h2_exchange(struct hf__et_http *http, int number, struct hf__et_exchange *x,
                        int64_t until_us, int64_t share_ms);
void hf__et_h2_close(struct hf__et_http *http);

/* Asks the endpoint for its date by HTTP/1.1 on that socket, which is closed. Returns 0 or an HF_
   error. (version.c) */
int hf__et_ask_date(struct hf__et_http *http, int fd, const char *endpoint, int64_t until_us,
                    int64_t *ret_us, char why[HF_ET_WHY]);
void hf__et_version_close(struct hf__et_http *http);

#endif
