/*
 * etcd_said.h - what the tests of the driver etcd: say for a server: headers, keys, rows.
 */
#ifndef HF_ETCD_SAID_H
#define HF_ETCD_SAID_H

#include "answered.h"

#define ID      "00112233445566778899aabbccddeeff"
#define HEADER  "\"header\": {\"revision\": \"7\", \"raft_term\": \"2\"}"
#define SESSION "000000ab00060002" /* of six seconds, made in the term of the header */

#define FREE_ROW "{\"format\": 1, \"rev\": 5, \"token\": 5, \"owner\": \"\"}"
#define HELD                                                                          \
    "{\"format\": 1, \"rev\": 5, \"token\": 5, \"owner\": \"me\", \"request\": \"" ID \
    "\", \"granted\": 5, \"session\": 734439800834}"

extern const struct answer well;

/* This, and what isn't asked for by it is answered well. */
void are(struct answer first);
/* The driver, opened, before a server that answers well. */
hf_store *opened(void);
/* A key of etcd's as a range tells it, a session's with a lease; good for the next three calls. */
const char *kv(const char *name, const char *value);

#endif
