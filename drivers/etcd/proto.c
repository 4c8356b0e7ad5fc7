/*
 * proto.c - see proto.h. Messages are walked by their descriptors: names stay as they are, 64 bits
 * are a text of digits, an enum is its value's name, what isn't there is left out.
 */
#include "proto.h"

#include "columns.h"
#include "etcd.pb-c.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE_CAP = 64 << 20 };

#define DESCRIBED(name) &hf_et__##name##__descriptor

const struct hf__et_method *hf__et_method(const char *path)
{
    static const struct hf__et_method all[] = {
        {"/v3/kv/range", "/etcdserverpb.KV/Range", DESCRIBED(range_request),
         DESCRIBED(range_response), 0},
        {"/v3/kv/txn", "/etcdserverpb.KV/Txn", DESCRIBED(txn_request), DESCRIBED(txn_response), 0},
        {"/v3/lease/grant", "/etcdserverpb.Lease/LeaseGrant", DESCRIBED(lease_grant_request),
         DESCRIBED(lease_grant_response), 0},
        {"/v3/lease/keepalive", "/etcdserverpb.Lease/LeaseKeepAlive", DESCRIBED(lease_request),
         DESCRIBED(lease_response), 1},
        {"/v3/lease/timetolive", "/etcdserverpb.Lease/LeaseTimeToLive", DESCRIBED(lease_request),
         DESCRIBED(lease_response), 0},
        {"/v3/lease/revoke", "/etcdserverpb.Lease/LeaseRevoke", DESCRIBED(lease_request),
         DESCRIBED(header_response), 0},
        {"/v3/watch", "/etcdserverpb.Watch/Watch", DESCRIBED(watch_request),
         DESCRIBED(watch_response), 1},
        {"/v3/auth/authenticate", "/etcdserverpb.Auth/Authenticate",
         DESCRIBED(authenticate_request), DESCRIBED(authenticate_response), 0},
        {"/v3/cluster/member/list", "/etcdserverpb.Cluster/MemberList", DESCRIBED(empty_request),
         DESCRIBED(member_list_response), 0},
        {"/v3/maintenance/alarm", "/etcdserverpb.Maintenance/Alarm", DESCRIBED(alarm_request),
         DESCRIBED(alarm_response), 0},
        {"/v3/maintenance/status", "/etcdserverpb.Maintenance/Status", DESCRIBED(empty_request),
         DESCRIBED(status_response), 0},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i].path, path)) return &all[i];
    return NULL;
}

/* ---- bytes ---- */

/* A message that is read has none at all where there are none. */
json_t *hf__et_bytes(const char *bytes, size_t len)
{
    return json_stringn_nocheck(len ? bytes : "", len);
}

int hf__et_read_bytes(const json_t *from, char **ret, size_t *ret_len)
{
    size_t len = json_string_length(from);
    *ret = NULL;
    if (from && !json_is_string(from)) return HF_CORRUPT;
    char *to = malloc(len + 1);
    if (!to) return HF_NOMEM;
    if (len) memcpy(to, json_string_value(from), len);
    to[len] = 0;
    *ret = to;
    *ret_len = len;
    return 0;
}

/* ---- fields ---- */

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

/* ---- JSON to messages ---- */

static int to_message(const ProtobufCMessageDescriptor *d, const json_t *j, message **ret);

static int64_t number(const json_t *j)
{
    if (json_is_integer(j)) return json_integer_value(j);
    return (int64_t)strtoull(json_string_value(j), NULL, 10);
}

static int to_value(const field *f, const json_t *j, void *at)
{
    int rc = 0;
    const ProtobufCEnumValue *value;
    switch (f->type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_UINT64:
        if (!json_is_integer(j) && !json_is_string(j)) return HF_INVALID;
        *(int64_t *)at = number(j);
        return 0;
    case PROTOBUF_C_TYPE_BOOL:
        if (!json_is_boolean(j)) return HF_INVALID;
        *(protobuf_c_boolean *)at = json_is_true(j);
        return 0;
    case PROTOBUF_C_TYPE_ENUM:
        value =
            json_is_string(j)
                ? protobuf_c_enum_descriptor_get_value_by_name(f->descriptor, json_string_value(j))
                : NULL;
        if (!value) return HF_INVALID;
        *(int *)at = value->value;
        return 0;
    case PROTOBUF_C_TYPE_BYTES: {
        ProtobufCBinaryData *bytes = at;
        rc = hf__et_read_bytes(j, (char **)&bytes->data, &bytes->len);
        return rc == HF_CORRUPT ? HF_INVALID : rc;
    }
    case PROTOBUF_C_TYPE_STRING:
        if (!json_is_string(j)) return HF_INVALID;
        *(char **)at = strdup(json_string_value(j));
        return *(char **)at ? 0 : HF_NOMEM;
    default: return to_message(f->descriptor, j, at);
    }
}

/* A list is all zero at first, and each message in it is whole or NULL: so it can be freed. */
static int to_list(const field *f, const json_t *j, message *m)
{
    size_t n = json_array_size(j), size = size_of(f), *count;
    char *list;
    if (!json_is_array(j)) return HF_INVALID;
    if (!n) return 0;
    list = calloc(n, size);
    if (!list) return HF_NOMEM;
    memcpy((char *)m + f->offset, &list, sizeof list);
    count = (size_t *)(void *)((char *)m + f->quantifier_offset);
    for (size_t i = 0; i < n; i++) {
        int rc = to_value(f, json_array_get(j, i), list + i * size);
        if (rc) return rc;
        *count = i + 1;
    }
    return 0;
}

static int to_field(const field *f, const json_t *j, message *m)
{
    char *at = (char *)m;
    if (f->label == PROTOBUF_C_LABEL_REPEATED) return to_list(f, j, m);
    int rc = to_value(f, j, at + f->offset);
    if (!rc && !is_pointer(f)) *(protobuf_c_boolean *)(void *)(at + f->quantifier_offset) = 1;
    return rc;
}

static int to_message(const ProtobufCMessageDescriptor *d, const json_t *j, message **ret)
{
    const char *name;
    json_t *value;
    if (!json_is_object(j)) return HF_INVALID;
    message *m = malloc(d->sizeof_message);
    if (!m) return HF_NOMEM;
    d->message_init(m);
    json_object_foreach((json_t *)(uintptr_t)j, name, value)
    {
        const field *f = protobuf_c_message_descriptor_get_field_by_name(d, name);
        int rc = f ? to_field(f, value, m) : HF_INVALID;
        if (!rc) continue;
        protobuf_c_message_free_unpacked(m, NULL);
        return rc;
    }
    *ret = m;
    return 0;
}

int hf__et_frame(const struct hf__et_method *m, const json_t *body, uint8_t **ret, size_t *ret_len)
{
    message *msg;
    *ret = NULL;
    int rc = to_message(m->request, body, &msg);
    if (rc) return rc;
    size_t len = protobuf_c_message_get_packed_size(msg);
    uint8_t *frame = len < MESSAGE_CAP ? malloc(HF_ET_FRAME + len) : NULL;
    if (frame) {
        frame[0] = 0;
        for (int i = 0; i < 4; i++) frame[1 + i] = (uint8_t)(len >> (24 - 8 * i));
        protobuf_c_message_pack(msg, frame + HF_ET_FRAME);
        *ret = frame;
        *ret_len = HF_ET_FRAME + len;
    } else {
        rc = HF_NOMEM;
    }
    protobuf_c_message_free_unpacked(msg, NULL);
    return rc;
}

/* ---- messages to JSON ---- */

static json_t *of_message(const message *m, int *bad);

static json_t *of_number(const char *form, unsigned long long n)
{
    char text[24];
    snprintf(text, sizeof text, form[0] == 'u' ? "%llu" : "%lld", n);
    return json_string(text);
}

static json_t *of_value(const field *f, const void *at, int *bad)
{
    const ProtobufCEnumValue *value;
    switch (f->type) {
    case PROTOBUF_C_TYPE_INT64: return of_number("signed", *(const uint64_t *)at);
    case PROTOBUF_C_TYPE_UINT64: return of_number("unsigned", *(const uint64_t *)at);
    case PROTOBUF_C_TYPE_BOOL: return json_boolean(*(const protobuf_c_boolean *)at);
    case PROTOBUF_C_TYPE_ENUM:
        value = protobuf_c_enum_descriptor_get_value(f->descriptor, *(const int *)at);
        return value ? json_string(value->name) : json_integer(*(const int *)at);
    case PROTOBUF_C_TYPE_BYTES: {
        const ProtobufCBinaryData *bytes = at;
        return hf__et_bytes((const char *)bytes->data, bytes->len);
    }
    case PROTOBUF_C_TYPE_STRING: {
        const char *text = *(char *const *)at;
        json_t *j = json_string(text);
        if (!j) *bad = !hf__is_utf8(text, strlen(text));
        return j;
    }
    default: return of_message(*(message *const *)at, bad);
    }
}

static json_t *of_list(const field *f, const message *m, int *bad)
{
    const char *list;
    size_t n = *(const size_t *)(const void *)((const char *)m + f->quantifier_offset);
    memcpy(&list, (const char *)m + f->offset, sizeof list);
    json_t *all = json_array();
    for (size_t i = 0; all && i < n; i++) {
        if (!json_array_append_new(all, of_value(f, list + i * size_of(f), bad))) continue;
        json_decref(all);
        return NULL;
    }
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

static json_t *of_message(const message *m, int *bad)
{
    json_t *j = json_object();
    for (unsigned i = 0; j && i < m->descriptor->n_fields; i++) {
        const field *f = &m->descriptor->fields[i];
        if (!is_there(f, m)) continue;
        json_t *value = f->label == PROTOBUF_C_LABEL_REPEATED
                            ? of_list(f, m, bad)
                            : of_value(f, (const char *)m + f->offset, bad);
        if (!json_object_set_new(j, f->name, value)) continue;
        json_decref(j);
        return NULL;
    }
    return j;
}

/* ---- bytes that JSON can hold ---- */

/* *j stands in the field; *ret: what is to stand there instead (NULL: it does). */
static int recode_value(const field *f, json_t *j, json_t *(*code)(const char *, size_t),
                        json_t **ret)
{
    *ret = NULL;
    if (f->type == PROTOBUF_C_TYPE_MESSAGE) return hf__et_recode(f->descriptor, j, code);
    if (f->type != PROTOBUF_C_TYPE_BYTES || !json_is_string(j)) return 0;
    *ret = code(json_string_value(j), json_string_length(j));
    return *ret ? 0 : HF_NOMEM;
}

int hf__et_recode(const ProtobufCMessageDescriptor *d, json_t *j,
                  json_t *(*code)(const char *, size_t))
{
    int rc = 0;
    for (unsigned i = 0; i < d->n_fields && !rc; i++) {
        const field *f = &d->fields[i];
        json_t *value = json_object_get(j, f->name), *anew = NULL;
        for (size_t n = 0; n < json_array_size(value) && !rc; n++) {
            rc = recode_value(f, json_array_get(value, n), code, &anew);
            if (anew) rc = json_array_set_new(value, n, anew) ? HF_NOMEM : rc;
        }
        if (value && !json_is_array(value)) rc = recode_value(f, value, code, &anew);
        if (value && !json_is_array(value) && anew)
            rc = json_object_set_new(j, f->name, anew) ? HF_NOMEM : rc;
    }
    return rc;
}

size_t hf__et_frame_len(const uint8_t *at, size_t len)
{
    size_t n = 0;
    if (len && at[0]) return SIZE_MAX;
    if (len < HF_ET_FRAME) return 0;
    for (int i = 0; i < 4; i++) n = n << 8 | at[1 + i];
    return n < MESSAGE_CAP ? HF_ET_FRAME + n : SIZE_MAX;
}

void *hf__et_take(void *failed, size_t size)
{
    void *at = malloc(size);
    if (!at) *(int *)failed = 1;
    return at;
}

void hf__et_give(void *failed, void *at)
{
    (void)failed;
    free(at);
}

json_t *hf__et_unframe(const struct hf__et_method *m, const uint8_t *at, size_t len, int *ret_nomem)
{
    int failed = 0, bad = 0;
    ProtobufCAllocator memory = {hf__et_take, hf__et_give, &failed};
    *ret_nomem = 0;
    if (hf__et_frame_len(at, len) != len) return NULL;
    message *msg =
        protobuf_c_message_unpack(m->reply, &memory, len - HF_ET_FRAME, at + HF_ET_FRAME);
    if (!msg) {
        *ret_nomem = failed;
        return NULL;
    }
    json_t *j = of_message(msg, &bad);
    protobuf_c_message_free_unpacked(msg, &memory);
    if (j && m->streams) {
        json_t *whole = json_object();
        if (json_object_set_new(whole, "result", j)) {
            json_decref(whole);
            whole = NULL;
        }
        j = whole;
    }
    if (!j) *ret_nomem = !bad;
    return j;
}
