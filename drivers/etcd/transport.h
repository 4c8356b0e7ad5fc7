/*
 * transport.h - one exchange with one endpoint, by the gateway (gateway.c) or by gRPC (h2.c): what
 * http.c asks of either.
 */
#ifndef HF_ETCD_TRANSPORT_H
#define HF_ETCD_TRANSPORT_H

#include "http.h"
#include "proto.h"

enum { HF_ET_WHY = CURL_ERROR_SIZE };

#define HF_ET_NO_GRPC "no HTTP/2 there, as gRPC needs it; ?api=json goes by HTTP/1.1"

struct hf__et_exchange {
    const char *path;
    const struct hf__et_method *method; /* of that path */
    char *body;                         /* as it is sent, to be freed */
    size_t len;
    const char *token; /* NULL or "": none */
    int repeat;        /* it changes nothing, or nothing more if it is done twice */
    /* What came of it. Without an answer `failed` is what that means if nothing was sent. */
    int failed, sent;
    int nobody; /* no endpoint can be reached */
    char why[HF_ET_WHY];
    /* Else it is this: */
    long status; /* as in HTTP */
    json_t *json;
    int nomem; /* there is one that there was no room for */
    int64_t date_us;
};

/* The body. 0 or an HF_ error. */
int hf__et_gateway_body(struct hf__et_exchange *x, const json_t *body);
int hf__et_h2_body(struct hf__et_exchange *x, const json_t *body);

/* By the connection of that number in the pool: connects for share_ms at most, takes left_ms. */
void hf__et_gateway_exchange(struct hf__et_http *http, int number, const char *endpoint,
                             struct hf__et_exchange *x, int64_t left_ms, int64_t share_ms);
/* To the endpoint in use, or, if that can't be reached, to another one: connects until until_us;
   then the answer is waited for for share_ms, but not longer. */
void hf__et_h2_exchange(struct hf__et_http *http, int number, struct hf__et_exchange *x,
                        int64_t until_us, int64_t share_ms);
void hf__et_gateway_close(struct hf__et_http *http);
void hf__et_h2_close(struct hf__et_http *http);

/* What the endpoint's HTTP/1.1 says of the date, by that socket, which is closed. 0 or an HF_
   error. */
int hf__et_gateway_date(struct hf__et_http *http, int fd, const char *endpoint, int64_t until_us,
                        int64_t *ret_us, char why[HF_ET_WHY]);

/*
 * How libcurl's requests reach an endpoint: by a socket that is connected already, or by one that
 * kit/dial.h connects when libcurl asks for one. libcurl itself looks up no names: it may wait
 * longer for them than it is told to.
 */
struct hf__et_reach {
    const char *endpoint;
    int64_t until_us;             /* of connecting */
    int fd;                       /* -1: to be connected */
    struct curl_slist *addresses; /* to be freed behind the request */
};

/* What all requests by libcurl have in common; `reach` has to stay. 0: no memory. */
int hf__et_gateway_set(const struct hf__et_http *http, CURL *c, struct hf__et_reach *reach,
                       const char *path);

/* All of them, a token of any length, too; NULL: no memory. */
struct curl_slist *hf__et_gateway_headers(const char *token);
void hf__et_free_headers(struct curl_slist *all); /* a secret may be among them */

/* The answer that the text is, or the first of several: a lease that is kept is a stream of them,
   one a line. */
json_t *hf__et_gateway_read(const struct hf__et_method *m, const char *text, size_t len,
                            int *ret_nomem);

#endif
