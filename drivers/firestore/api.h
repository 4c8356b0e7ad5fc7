/*
 * api.h - firestore: calls of its REST interface, and what their answers mean.
 */
#ifndef HF_FIRESTORE_API_H
#define HF_FIRESTORE_API_H

#include "auth.h"

#include <jansson.h>

struct hf__fs_api {
    struct hf__rest net;
    struct hf__fs_auth auth;
    char base[300]; /* "https://firestore.googleapis.com/v1/" */
    int emulator;
};

/* What the call says in messages: "firestore: get 'key': ...". */
struct hf__fs_call {
    const char *what, *key;
    int writes;    /* no answer is HF_UNKNOWN */
    int condition; /* out: refused because of its precondition, or of contention, so it wasn't
                      done */
    int64_t many_until_us; /* as in struct hf__rest_call */
};

/*
 * POST base/`name`:`method` with the body (whose reference is taken; NULL: no memory). 0: *ret is
 * the answer, to be json_decref'ed; else the code. `name` is percent-encoded here.
 */
int hf__fs_ask(struct hf__fs_api *api, struct hf__fs_call *call, const char *name,
               const char *method, json_t *body, json_t **ret, hf_error *err);

#endif
