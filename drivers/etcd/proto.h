/*
 * proto.h - what is said to etcd, and what it answers, as JSON in the form of its gateway (but for
 * bytes, which are as they are) and as the messages of its gRPC.
 */
#ifndef HF_ETCD_PROTO_H
#define HF_ETCD_PROTO_H

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>
#include <stdint.h>

/* A request by its path at the gateway. */
struct hf__et_method {
    const char *path, *name;
    const ProtobufCMessageDescriptor *request, *reply;
    int streams; /* the gateway puts each reply into {"result": ...} */
};

/* NULL: there is none of that path. */
const struct hf__et_method *hf__et_method(const char *path);

/* gRPC's frame: a flag, a length of four bytes, a message. */
enum { HF_ET_FRAME = 5 };

/* The framed request, to be freed. 0; HF_NOMEM; HF_INVALID: the message has no such field. */
int hf__et_frame(const struct hf__et_method *m, const json_t *body, uint8_t **ret, size_t *ret_len);

/* For a ProtobufCAllocator whose data is an int that is 0: tells a message that isn't one from one
   that there was no room for, when it is 1. */
void *hf__et_take(void *failed, size_t size);
void hf__et_give(void *failed, void *at);

/* How long the frame is that begins there, with its head; 0: it can't be told yet; SIZE_MAX: it is
   compressed, which nobody asked for, or longer than any answer. */
size_t hf__et_frame_len(const uint8_t *at, size_t len);

/* The message as the gateway would tell it. NULL: it isn't one, or *ret_nomem is 1. */
json_t *hf__et_unframe(const struct hf__et_method *m, const uint8_t *at, size_t len,
                       int *ret_nomem);

/* ---- bytes: as they are, in a JSON string that needn't be UTF-8; by the gateway as base64 ---- */

/* NULL: out of memory. */
json_t *hf__et_bytes(const char *bytes, size_t len);
/* The bytes of a JSON string, NUL-terminated, to be freed: 0; HF_CORRUPT: it isn't that, HF_NOMEM
   (*ret is NULL). A missing one is "". */
int hf__et_read_bytes(const json_t *from, char **ret, size_t *ret_len);

/* Replaces all bytes of such a message, in place, by what `code` makes of them (NULL: out of
   memory). What is no such message is left alone. 0 or HF_NOMEM. */
int hf__et_recode(const ProtobufCMessageDescriptor *d, json_t *j,
                  json_t *(*code)(const char *bytes, size_t len));

#endif
