/*
 * etcd_grpc.c - fuzz: any bytes as an answer of etcd's gRPC: a message of the kind that was asked
 * for, or none.
 */
#include "fuzz.h"

#include "../../drivers/etcd/proto.h"

enum { FRAME_CAP = 1 << 16 };

static void is_whole(const ProtobufCMessageDescriptor *kind, ProtobufCMessage *m)
{
    MUST(!m || m->descriptor == kind);
    MUST(!m || protobuf_c_message_check(m));
    if (m && kind != &hf_et__row__descriptor) (void)hf__et_header(m);
    hf__et_free_message(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t frame[FRAME_CAP];
    struct fuzz f = {data, size};
    uint8_t how = fuzz_byte(&f);
    const ProtobufCMessageDescriptor *kind = hf__et_method(how / 2 % HF_ET_CALLS)->reply;
    size_t len = f.left < FRAME_CAP - HF_ET_FRAME ? f.left : FRAME_CAP - HF_ET_FRAME;
    int nomem;
    ProtobufCMessage *m = hf__et_unframe(kind, f.at, f.left, &nomem); /* by a length of its own */
    MUST(!nomem && (!m || f.left == hf__et_frame_len(f.at, f.left)));
    is_whole(kind, m);
    memset(frame, 0, HF_ET_FRAME);
    frame[3] = (uint8_t)(len >> 8);
    frame[4] = (uint8_t)len;
    if (len) memcpy(frame + HF_ET_FRAME, f.at, len);
    m = hf__et_unframe(kind, frame, HF_ET_FRAME + len, &nomem);
    MUST(!nomem);
    is_whole(kind, m);
    return 0;
}
