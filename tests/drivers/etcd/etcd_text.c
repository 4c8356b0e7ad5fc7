/*
 * etcd_text.c - see etcd_text.h. Messages are walked by their descriptors. A test that
 * runs out of memory here has failed anyway.
 */
#include "etcd_text.h"

#include "etcd.pb-c.h"
#include "fakes/answers.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DESCRIBED(name) &hf_et__##name##__descriptor

const struct etcd_call *etcd_call(const char *grpc)
{
    static const struct etcd_call all[] = {
        {"/etcdserverpb.KV/Range", "/v3/kv/range", DESCRIBED(range_request),
         DESCRIBED(range_response)},
        {"/etcdserverpb.KV/Txn", "/v3/kv/txn", DESCRIBED(txn_request), DESCRIBED(txn_response)},
        {"/etcdserverpb.Lease/LeaseGrant", "/v3/lease/grant", DESCRIBED(lease_grant_request),
         DESCRIBED(lease_grant_response)},
        {"/etcdserverpb.Lease/LeaseKeepAlive", "/v3/lease/keepalive", DESCRIBED(lease_request),
         DESCRIBED(lease_response)},
        {"/etcdserverpb.Lease/LeaseTimeToLive", "/v3/lease/timetolive", DESCRIBED(lease_request),
         DESCRIBED(lease_response)},
        {"/etcdserverpb.Lease/LeaseRevoke", "/v3/lease/revoke", DESCRIBED(lease_request),
         DESCRIBED(header_response)},
        {"/etcdserverpb.Watch/Watch", "/v3/watch", DESCRIBED(watch_request),
         DESCRIBED(watch_response)},
        {"/etcdserverpb.Auth/Authenticate", "/v3/auth/authenticate",
         DESCRIBED(authenticate_request), DESCRIBED(authenticate_response)},
        {"/etcdserverpb.Cluster/MemberList", "/v3/cluster/member/list", DESCRIBED(empty_request),
         DESCRIBED(member_list_response)},
        {"/etcdserverpb.Maintenance/Alarm", "/v3/maintenance/alarm", DESCRIBED(alarm_request),
         DESCRIBED(alarm_response)},
        {"/etcdserverpb.Maintenance/Status", "/v3/maintenance/status", DESCRIBED(empty_request),
         DESCRIBED(status_response)},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i].grpc, grpc)) return &all[i];
    return NULL;
}

typedef ProtobufCMessage message;
typedef ProtobufCFieldDescriptor field;

static size_t size_of(const field *f)
{
    switch (f->type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_UINT64: return sizeof(uint64_t);
    case PROTOBUF_C_TYPE_BOOL: return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_ENUM: return sizeof(int);
    case PROTOBUF_C_TYPE_BYTES: return sizeof(ProtobufCBinaryData);
    default: return sizeof(void *); /* a text, a message */
    }
}

static int is_pointer(const field *f)
{
    return f->type == PROTOBUF_C_TYPE_STRING || f->type == PROTOBUF_C_TYPE_MESSAGE;
}

/* ---- texts to messages ---- */

static message *to_message(const ProtobufCMessageDescriptor *d, const json_t *j);

static int to_bytes(const char *text, ProtobufCBinaryData *to)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n = strlen(text);
    if (n % 4) return 0;
    to->data = malloc(n + 1);
    to->len = 0;
    for (size_t i = 0; i < n; i += 4) {
        unsigned v = 0, k = 0, some = 0;
        for (; k < 4 && text[i + k] != '='; k++, some++) {
            const char *at = strchr(digit, text[i + k]);
            if (!at) return 0;
            v |= (unsigned)(at - digit) << (18 - 6 * k);
        }
        for (k = 0; k + 1 < some; k++) to->data[to->len++] = (uint8_t)(v >> (16 - 8 * k));
    }
    return 1;
}

static int to_value(const field *f, const json_t *j, void *at)
{
    const char *text = json_string_value(j);
    const ProtobufCEnumValue *value;
    switch (f->type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_UINT64:
        *(int64_t *)at = text ? (int64_t)strtoull(text, NULL, 10) : json_integer_value(j);
        return text || json_is_integer(j);
    case PROTOBUF_C_TYPE_BOOL:
        *(protobuf_c_boolean *)at = json_is_true(j);
        return json_is_boolean(j);
    case PROTOBUF_C_TYPE_ENUM:
        value = text ? protobuf_c_enum_descriptor_get_value_by_name(f->descriptor, text) : NULL;
        if (value) *(int *)at = value->value;
        return value != NULL;
    case PROTOBUF_C_TYPE_BYTES: return text && to_bytes(text, at);
    case PROTOBUF_C_TYPE_STRING: *(char **)at = text ? strdup(text) : NULL; return text != NULL;
    default: return (*(message **)at = to_message(f->descriptor, j)) != NULL;
    }
}

static int to_field(const field *f, const json_t *j, message *m)
{
    char *at = (char *)m;
    size_t n = json_array_size(j), size = size_of(f);
    if (f->label != PROTOBUF_C_LABEL_REPEATED) {
        if (!to_value(f, j, at + f->offset)) return 0;
        if (!is_pointer(f)) *(protobuf_c_boolean *)(void *)(at + f->quantifier_offset) = 1;
        return 1;
    }
    if (!json_is_array(j)) return 0;
    char *list = n ? calloc(n, size) : NULL;
    memcpy(at + f->offset, &list, sizeof list);
    for (size_t i = 0; i < n; i++) {
        if (!to_value(f, json_array_get(j, i), list + i * size)) return 0;
        *(size_t *)(void *)(at + f->quantifier_offset) = i + 1;
    }
    return 1;
}

static message *to_message(const ProtobufCMessageDescriptor *d, const json_t *j)
{
    const char *name;
    json_t *value;
    if (!json_is_object(j)) return NULL;
    message *m = malloc(d->sizeof_message);
    d->message_init(m);
    json_object_foreach((json_t *)(uintptr_t)j, name, value)
    {
        const field *f = protobuf_c_message_descriptor_get_field_by_name(d, name);
        if (f && to_field(f, value, m)) continue;
        protobuf_c_message_free_unpacked(m, NULL);
        return NULL;
    }
    return m;
}

uint8_t *etcd_message(const ProtobufCMessageDescriptor *d, const char *text, size_t len,
                      size_t *ret_len)
{
    json_t *j = json_loadb(text, len, 0, NULL);
    if (json_is_object(j) && protobuf_c_message_descriptor_get_field_by_name(d, "header") &&
        !json_object_get(j, "header"))
        json_object_set_new(j, "header", json_object());
    message *m = to_message(d, j);
    uint8_t *packed = m ? malloc(protobuf_c_message_get_packed_size(m) + 1) : NULL;
    if (packed) *ret_len = protobuf_c_message_pack(m, packed);
    if (m) protobuf_c_message_free_unpacked(m, NULL);
    json_decref(j);
    return packed;
}

/* ---- messages to texts ---- */

static json_t *of_message(const message *m);

static json_t *of_value(const field *f, const void *at)
{
    const ProtobufCBinaryData *bytes = at;
    const ProtobufCEnumValue *value;
    switch (f->type) {
    case PROTOBUF_C_TYPE_INT64: return json_sprintf("%lld", *(const long long *)at);
    case PROTOBUF_C_TYPE_UINT64: return json_sprintf("%llu", *(const unsigned long long *)at);
    case PROTOBUF_C_TYPE_BOOL: return json_boolean(*(const protobuf_c_boolean *)at);
    case PROTOBUF_C_TYPE_ENUM:
        value = protobuf_c_enum_descriptor_get_value(f->descriptor, *(const int *)at);
        return json_string(value ? value->name : "?");
    case PROTOBUF_C_TYPE_BYTES:
        if (bytes->len > 3000) abort(); /* more than answers_base64 takes */
        return json_string(answers_base64((const char *)bytes->data, bytes->len));
    case PROTOBUF_C_TYPE_STRING: return json_string(*(char *const *)at);
    default: return of_message(*(message *const *)at);
    }
}

static json_t *of_list(const field *f, const message *m)
{
    const char *list;
    size_t n = *(const size_t *)(const void *)((const char *)m + f->quantifier_offset);
    json_t *all = json_array();
    memcpy(&list, (const char *)m + f->offset, sizeof list);
    for (size_t i = 0; i < n; i++) json_array_append_new(all, of_value(f, list + i * size_of(f)));
    return all;
}

static int is_there(const field *f, const message *m)
{
    const char *at = (const char *)m;
    if (f->label == PROTOBUF_C_LABEL_REPEATED)
        return *(const size_t *)(const void *)(at + f->quantifier_offset) != 0;
    if (is_pointer(f)) return *(void *const *)(const void *)(at + f->offset) != NULL;
    return *(const protobuf_c_boolean *)(const void *)(at + f->quantifier_offset) != 0;
}

static json_t *of_message(const message *m)
{
    json_t *j = json_object();
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const field *f = &m->descriptor->fields[i];
        if (!is_there(f, m)) continue;
        json_object_set_new(j, f->name,
                            f->label == PROTOBUF_C_LABEL_REPEATED
                                ? of_list(f, m)
                                : of_value(f, (const char *)m + f->offset));
    }
    return j;
}

char *etcd_text(const ProtobufCMessageDescriptor *d, const uint8_t *at, size_t len)
{
    message *m = protobuf_c_message_unpack(d, NULL, len, at);
    if (!m) return NULL;
    json_t *j = of_message(m);
    char *text = json_dumps(j, 0);
    json_decref(j);
    protobuf_c_message_free_unpacked(m, NULL);
    return text;
}
