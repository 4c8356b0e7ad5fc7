/*
 * etcd_text.h - messages of etcd's API as JSON texts, so that a test can write them down: names
 * stay as they are, 64 bits are a text of digits, an enum is its value's name, bytes are base64.
 */
#ifndef HF_ETCD_TEXT_H
#define HF_ETCD_TEXT_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>

/* A call: its path by gRPC, and the one of etcd's JSON gateway, by which tests name it. */
struct etcd_call {
    const char *grpc, *path;
    const ProtobufCMessageDescriptor *request, *reply;
};

/* NULL: there is none of that path. */
const struct etcd_call *etcd_call(const char *grpc);

/* To be freed; NULL: the bytes aren't such a message. */
char *etcd_text(const ProtobufCMessageDescriptor *d, const uint8_t *at, size_t len);
/* To be freed; NULL: the text is no such message. An answer without a header gets an empty one. */
uint8_t *etcd_message(const ProtobufCMessageDescriptor *d, const char *text, size_t len,
                      size_t *ret_len);

#endif
