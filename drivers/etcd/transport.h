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
    int64_t keep_until_us; /* for a request that keeps a session: the local time by which it must
                              be answered; 0: another request */
    int repeat;            /* 1: the request may be carried out twice without harm */
    /* The result if there was no answer. `failed`: the code, provided that nothing was sent. */
    int failed, sent;
    int nobody; /* 1: no endpoint can be reached */
    char why[HF_ET_WHY];
    /* If there was an answer: gRPC's status (0: OK), the text of another status, and the message
       (NULL: none that can be read). */
    int status;
    char said[512];
    ProtobufCMessage *message;
    int nomem; /* 1: a message came, but there was no memory for it */
};

/* Status codes of gRPC: OK, and those which say that nothing was done. All others are HF_ET_OTHER
   here. */
enum {
    HF_ET_OK = 0,
    HF_ET_OTHER = 2,
    HF_ET_PERMISSION_DENIED = 7,
    HF_ET_UNIMPLEMENTED = 12,
    HF_ET_UNAUTHENTICATED = 16
};

/* Sends the request on the connection `number`. If that isn't connected, connects to the endpoint
   in use or another one, until local time until_us at most. Then waits for the answer for share_ms
   at most. */
void hf__et_h2_exchange(struct hf__et_http *http, int number, struct hf__et_exchange *x,
                        int64_t until_us, int64_t share_ms);
void hf__et_h2_close(struct hf__et_http *http);

/* Asks the endpoint for its date by HTTP/1.1 on that socket, which is closed. Returns 0 or an HF_
   error. (version.c) */
int hf__et_ask_date(struct hf__et_http *http, int fd, const char *endpoint, int64_t until_us,
                    int64_t *ret_us, char why[HF_ET_WHY]);
void hf__et_version_close(struct hf__et_http *http);

#endif
