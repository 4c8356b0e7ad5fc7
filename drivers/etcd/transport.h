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
    int64_t keep_until_us; /* it keeps a session: local; 0: it doesn't */
    int repeat;            /* it changes nothing, or nothing more if it is done twice */
    /* What came of it. Without an answer `failed` is what that means if nothing was sent. */
    int failed, sent;
    int nobody; /* no endpoint can be reached */
    char why[HF_ET_WHY];
    /* Else it is this: gRPC's status (0: OK), what was said with another one, the message (NULL:
       none that can be read). */
    int status;
    char said[512];
    ProtobufCMessage *message;
    int nomem; /* there is one that there was no room for */
};

/* gRPC's codes that say by themselves that nothing was done; others are HF_ET_OTHER here. */
enum {
    HF_ET_OK = 0,
    HF_ET_OTHER = 2,
    HF_ET_PERMISSION_DENIED = 7,
    HF_ET_UNIMPLEMENTED = 12,
    HF_ET_UNAUTHENTICATED = 16
};

/* To the endpoint in use, or, if that can't be reached, to another one: connects until until_us;
   then the answer is waited for for share_ms, but not longer. `number`: of the pool's. */
void hf__et_h2_exchange(struct hf__et_http *http, int number, struct hf__et_exchange *x,
                        int64_t until_us, int64_t share_ms);
void hf__et_h2_close(struct hf__et_http *http);

/* What the endpoint's HTTP/1.1 says of the date, by that socket, which is closed. 0 or an HF_
   error. (version.c) */
int hf__et_ask_date(struct hf__et_http *http, int fd, const char *endpoint, int64_t until_us,
                    int64_t *ret_us, char why[HF_ET_WHY]);
void hf__et_version_close(struct hf__et_http *http);

#endif
