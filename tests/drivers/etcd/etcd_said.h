/*
 * etcd_said.h - what the tests of the driver etcd: say for a server: headers, keys, rows.
 */
#ifndef HF_ETCD_SAID_H
#define HF_ETCD_SAID_H

#include "fakes/answered.h"

#define ID      "00112233445566778899aabbccddeeff"
#define HEADER  "\"header\": {\"revision\": \"7\", \"raft_term\": \"2\"}"
#define SESSION "000000ab00060002" /* of six seconds, made in the term of the header */

/* Rows, as the message Row is in JSON, but for requests, which are hex: value_of makes one of it.
 */
#define FREE_ROW "{\"format\": 1, \"rev\": 5, \"token\": 5}"
#define PARTY    "\"owner\": \"me\", \"note\": \"\", \"request\": \"" ID "\""
#define HELD                                                          \
    "{\"format\": 1, \"rev\": 5, \"token\": 5, \"holders\": [{" PARTY \
    ", \"token\": 5, \"session\": 734439800834}]}"

extern const struct answer well;

/* This, and what isn't asked for by it is answered well. */
void are(struct answer first);
/* As answered_begin, of a server that speaks gRPC. */
int etcd_said_begin(void);
/* The driver, opened, before a server that answers well. */
hf_store *opened(void);
/* The text as etcd's value, in base64: what begins with a brace, and all behind it, is a row. Good
   for the next three calls. */
const char *value_of(const char *text);
/* A key of etcd's as a range tells it, a session's with a lease; good for the next three calls. */
const char *kv(const char *name, const char *value);

#endif
