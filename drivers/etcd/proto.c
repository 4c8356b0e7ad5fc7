/*
 * proto.c - see proto.h.
 */
#include "proto.h"

#include "holdfast_driver.h"

#include <stdlib.h>
#include <string.h>

enum { MESSAGE_CAP = 64 << 20, CHUNK = 4096, LIST = 8 };

#define DESCRIBED(name) &hf_et__##name##__descriptor

const struct hf__et_method *hf__et_method(enum hf__et_call call)
{
    static const struct hf__et_method all[HF_ET_CALLS] = {
        [HF_ET_RANGE] = {"/etcdserverpb.KV/Range", DESCRIBED(range_response), 0, 1},
        [HF_ET_TXN] = {"/etcdserverpb.KV/Txn", DESCRIBED(txn_response), 0, 1},
        [HF_ET_LEASE_GRANT] = {"/etcdserverpb.Lease/LeaseGrant", DESCRIBED(lease_grant_response), 0,
                               1},
        [HF_ET_LEASE_KEEP] = {"/etcdserverpb.Lease/LeaseKeepAlive", DESCRIBED(lease_response), 1,
                              1},
        [HF_ET_LEASE_LEFT] = {"/etcdserverpb.Lease/LeaseTimeToLive", DESCRIBED(lease_response), 0,
                              1},
        [HF_ET_LEASE_REVOKE] = {"/etcdserverpb.Lease/LeaseRevoke", DESCRIBED(header_response), 0,
                                1},
        [HF_ET_WATCH] = {"/etcdserverpb.Watch/Watch", DESCRIBED(watch_response), 1, 0},
        [HF_ET_LOGIN] = {"/etcdserverpb.Auth/Authenticate", DESCRIBED(authenticate_response), 0, 0},
        [HF_ET_MEMBERS] = {"/etcdserverpb.Cluster/MemberList", DESCRIBED(member_list_response), 0,
                           0},
        [HF_ET_ALARMS] = {"/etcdserverpb.Maintenance/Alarm", DESCRIBED(alarm_response), 0, 0},
        [HF_ET_STATUS] = {"/etcdserverpb.Maintenance/Status", DESCRIBED(status_response), 0, 0},
    };
    return &all[call];
}

/* The first field of each answer is its header, so hf__et_header can read it from any answer. */
#define HEADED(type)                                                                         \
    _Static_assert(offsetof(HfEt__##type, header) == offsetof(HfEt__HeaderResponse, header), \
                   "the header comes first")
HEADED(RangeResponse);
HEADED(TxnResponse);
HEADED(LeaseResponse);
HEADED(LeaseGrantResponse);
HEADED(WatchResponse);
HEADED(AuthenticateResponse);
HEADED(MemberListResponse);
HEADED(StatusResponse);
HEADED(AlarmResponse);

const HfEt__Header *hf__et_header(const ProtobufCMessage *answer)
{
    const HfEt__Header *header;
    memcpy(&header, (const char *)answer + offsetof(HfEt__HeaderResponse, header), sizeof header);
    return header;
}

/* ---- the memory of a request ---- */

struct hf__et_chunk {
    struct hf__et_chunk *next;
    size_t used, cap;
    max_align_t bytes[];
};

void *hf__et_alloc(struct hf__et_mem *mem, size_t size)
{
    struct hf__et_chunk *c = mem->chunks;
    size = (size + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
    if (!c || c->cap - c->used < size) {
        size_t cap = size > CHUNK ? size : CHUNK;
        c = malloc(sizeof *c + cap);
        if (!c) {
            mem->failed = 1;
            return NULL;
        }
        *c = (struct hf__et_chunk){.next = mem->chunks, .cap = cap};
        mem->chunks = c;
    }
    void *at = (char *)c->bytes + c->used;
    c->used += size;
    return memset(at, 0, size);
}

ProtobufCBinaryData hf__et_copy(struct hf__et_mem *mem, const void *bytes, size_t len)
{
    uint8_t *to = len ? hf__et_alloc(mem, len) : NULL;
    if (to) memcpy(to, bytes, len);
    return (ProtobufCBinaryData){to ? len : 0, to};
}

/* A list has room for LIST entries at first, and is copied to twice its room when `n` is LIST,
   2 * LIST, 4 * LIST and so on. */
void *hf__et_room(struct hf__et_mem *mem, void *list, size_t n)
{
    if (n && (n < LIST || (n & (n - 1)))) return list;
    void *more = hf__et_alloc(mem, (n ? 2 * n : LIST) * sizeof(void *));
    if (more && n) memcpy(more, list, n * sizeof(void *));
    return more;
}

void hf__et_mem_free(struct hf__et_mem *mem)
{
    while (mem->chunks) {
        struct hf__et_chunk *next = mem->chunks->next;
        free(mem->chunks);
        mem->chunks = next;
    }
}

/* ---- frames ---- */

int hf__et_frame(const ProtobufCMessage *m, uint8_t **ret, size_t *ret_len)
{
    size_t len = protobuf_c_message_get_packed_size(m);
    uint8_t *frame = len < MESSAGE_CAP ? malloc(HF_ET_FRAME + len) : NULL;
    *ret = frame;
    if (!frame) return HF_NOMEM;
    frame[0] = 0;
    for (int i = 0; i < 4; i++) frame[1 + i] = (uint8_t)(len >> (24 - 8 * i));
    protobuf_c_message_pack(m, frame + HF_ET_FRAME);
    *ret_len = HF_ET_FRAME + len;
    return 0;
}

size_t hf__et_frame_len(const uint8_t *at, size_t len)
{
    size_t n = 0;
    if (len && at[0]) return SIZE_MAX;
    if (len < HF_ET_FRAME) return 0;
    for (int i = 0; i < 4; i++) n = n << 8 | at[1 + i];
    return n < MESSAGE_CAP ? HF_ET_FRAME + n : SIZE_MAX;
}

/* Allocates memory, and notes a failure: protobuf-c doesn't say whether a message was malformed or
   there was no memory for it. */
static void *take(void *failed, size_t size)
{
    void *at = malloc(size);
    if (!at) *(int *)failed = 1;
    return at;
}

static void give(void *failed, void *at)
{
    (void)failed;
    free(at);
}

ProtobufCMessage *hf__et_unpack(const ProtobufCMessageDescriptor *kind, const uint8_t *at,
                                size_t len, int *ret_nomem)
{
    ProtobufCAllocator memory = {take, give, ret_nomem};
    *ret_nomem = 0;
    return protobuf_c_message_unpack(kind, &memory, len, at);
}

ProtobufCMessage *hf__et_unframe(const ProtobufCMessageDescriptor *kind, const uint8_t *at,
                                 size_t len, int *ret_nomem)
{
    *ret_nomem = 0;
    if (hf__et_frame_len(at, len) != len) return NULL;
    return hf__et_unpack(kind, at + HF_ET_FRAME, len - HF_ET_FRAME, ret_nomem);
}

void hf__et_free_message(ProtobufCMessage *m)
{
    int failed;
    ProtobufCAllocator memory = {take, give, &failed};
    if (m) protobuf_c_message_free_unpacked(m, &memory);
}
