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

/* A call. `what` and `key` are for errors: "firestore: get 'key': ...". */
struct hf__fs_call {
    const char *what, *key;
    int writes;    /* 1: without an answer the result is HF_UNKNOWN */
    int condition; /* out: 1: refused because of its precondition, or of another write under way; it
                      wasn't done */
    int64_t many_until_us; /* as in struct hf__rest_call */
};

/*
 * Makes a POST to base/`name`:`method`; `name` is percent-encoded here. Takes over the reference to
 * `body` (NULL: there was no memory for it). Returns 0, with the answer in *ret, to be
 * json_decref'ed; else the error.
 */
int hf__fs_ask(struct hf__fs_api *api, struct hf__fs_call *call, const char *name,
               const char *method, json_t *body, json_t **ret, hf_error *err);

#endif
