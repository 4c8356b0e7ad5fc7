/*
 * proto.h - etcd's API as messages of protobuf (etcd.proto): its calls, the memory of a request,
 * gRPC's frames.
 */
#ifndef HF_ETCD_PROTO_H
#define HF_ETCD_PROTO_H

#include "etcd.pb-c.h"

#include <stddef.h>
#include <stdint.h>

/* ---- calls ---- */

enum hf__et_call {
    HF_ET_RANGE,
    HF_ET_TXN,
    HF_ET_LEASE_GRANT,
    HF_ET_LEASE_KEEP,
    HF_ET_LEASE_LEFT,
    HF_ET_LEASE_REVOKE,
    HF_ET_WATCH,
    HF_ET_LOGIN,
    HF_ET_MEMBERS,
    HF_ET_ALARMS,
    HF_ET_STATUS,
    HF_ET_CALLS
};

struct hf__et_method {
    const char *name; /* the path of the request's URL */
    const ProtobufCMessageDescriptor *reply;
    int streams;      /* the server may answer several times */
    int needs_header; /* an answer without a header isn't a valid one */
};

const struct hf__et_method *hf__et_method(enum hf__et_call call);

/* Returns the header of an answer; NULL: it has none. */
const HfEt__Header *hf__et_header(const ProtobufCMessage *answer);

/* ---- the memory of a request ---- */

/* The memory of a request, whose pieces are freed all at once. `failed`: there was no memory for at
   least one piece, so the request isn't whole and is never sent (hf__et_post). All zero at first.
 */
struct hf__et_mem {
    struct hf__et_chunk *chunks;
    int failed;
};

/* Returns zeroed memory, or NULL. */
void *hf__et_alloc(struct hf__et_mem *mem, size_t size);
/* Returns a copy of the bytes. Without memory it is empty, and mem->failed is 1. */
ProtobufCBinaryData hf__et_copy(struct hf__et_mem *mem, const void *bytes, size_t len);
/* Returns the list of n pointers, moved if it is full, with room for one more; or NULL. */
void *hf__et_room(struct hf__et_mem *mem, void *list, size_t n);
void hf__et_mem_free(struct hf__et_mem *mem);

/* ---- frames ---- */

/* gRPC's frame: a flag, a length of four bytes, a message. */
enum { HF_ET_FRAME = 5 };

/* Makes a frame of the message, to be freed. Returns 0 or HF_NOMEM. */
int hf__et_frame(const ProtobufCMessage *m, uint8_t **ret, size_t *ret_len);

/* Returns the length of the frame that begins at `at`, its head included. 0: more bytes are needed
   to know it; SIZE_MAX: the frame is compressed, which was not asked for, or longer than any
   answer. */
size_t hf__et_frame_len(const uint8_t *at, size_t len);

/* Reads a message of that kind, to be freed with hf__et_free_message. Returns NULL if it isn't such
   a message, or if there is no memory (*ret_nomem is 1). */
ProtobufCMessage *hf__et_unpack(const ProtobufCMessageDescriptor *kind, const uint8_t *at,
                                size_t len, int *ret_nomem);
/* Reads the message of a whole frame. */
ProtobufCMessage *hf__et_unframe(const ProtobufCMessageDescriptor *kind, const uint8_t *at,
                                 size_t len, int *ret_nomem);
void hf__et_free_message(ProtobufCMessage *m);

#endif
