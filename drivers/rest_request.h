/*
 * rest_request.h - one HTTP request on an easy handle of libcurl: what rest.c and rest_many.c
 * share.
 */
#ifndef HF_KIT_REST_REQUEST_H
#define HF_KIT_REST_REQUEST_H

#include "rest.h"

struct hf__rest_upload {
    const char *from, *at;
    size_t len, left;
    int touched, harmless; /* touched: libcurl has read some of the body, and may have sent it */
};

/* What a request needs while it is under way. */
struct hf__rest_request {
    struct hf__rest_upload up;
    struct curl_slist *list;
    int64_t limit_ms;
    char told[CURL_ERROR_SIZE];
};

/* Makes the handle (if *link is NULL), and sets up the request, which may take limit_ms. Returns 1:
   the caller ends it by hf__rest_end, and doesn't move *q and *r before; or 0: it can't be made,
   and the reply says why. */
int hf__rest_begin(const struct hf__rest *rest, CURL **link, const struct hf__rest_call *call,
                   int64_t limit_ms, struct hf__rest_request *q, struct hf__rest_reply *r);
/* Fills in the reply. Frees what the request needed. */
void hf__rest_end(struct hf__rest *rest, CURL *e, CURLcode rc, struct hf__rest_request *q,
                  struct hf__rest_reply *r);
/* Frees what the request needed, and wipes it. */
void hf__rest_forget_call(CURL *e, struct hf__rest_request *q);
/* Called before this thread makes requests: forgets about the sockets that it closed before. The
   message of a timeout says whether a socket was connected. */
void hf__rest_socket_anew(void);

#endif
