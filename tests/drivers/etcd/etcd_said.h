/*
 * etcd_said.h - what the tests of the driver etcd: say for a server: headers, keys, rows.
 */
#ifndef HF_ETCD_SAID_H
#define HF_ETCD_SAID_H

#include "fakes/answered.h"

#define ID      "00112233445566778899aabbccddeeff"
#define HEADER  "\"header\": {\"revision\": \"7\", \"raft_term\": \"2\"}"
#define SESSION "000000ab00060002" /* A session of six seconds, made in the term of the header. */

/* Rows as the JSON of the message Row, except for request ids, which are hex; value_of encodes
   them. */
#define FREE_ROW "{\"format\": 1, \"rev\": 5, \"token\": 5}"
#define PARTY    "\"owner\": \"me\", \"note\": \"\", \"request\": \"" ID "\""
#define HELD                                                          \
    "{\"format\": 1, \"rev\": 5, \"token\": 5, \"holders\": [{" PARTY \
    ", \"token\": 5, \"session\": 734439800834}]}"

extern const struct answer well;

/* Answers this first; any other request gets a good answer. */
void are(struct answer first);
/* Starts a server, as answered_begin, that speaks gRPC. */
int etcd_said_begin(void);
/* The driver, opened, before a server that answers well. */
hf_store *opened(void);
/* Returns the text as etcd's value, in base64; what begins with a brace is encoded as a row. Good
   for the next three calls. */
const char *value_of(const char *text);
/* Returns a key of etcd's as a range has it, a session's with a lease; good for the next three
   calls. */
const char *kv(const char *name, const char *value);

#endif
