/*
 * etcd_grpc.c - fuzz: any bytes as an answer of etcd's gRPC, told as its gateway would; any JSON as
 * a request of ours.
 */
#include "fuzz.h"

#include "../../drivers/etcd/proto.h"
#include "json.h"

static const char *const paths[] = {"/v3/kv/range",
                                    "/v3/kv/txn",
                                    "/v3/lease/grant",
                                    "/v3/lease/keepalive",
                                    "/v3/lease/timetolive",
                                    "/v3/lease/revoke",
                                    "/v3/watch",
                                    "/v3/auth/authenticate",
                                    "/v3/cluster/member/list",
                                    "/v3/maintenance/alarm",
                                    "/v3/maintenance/status"};
enum { PATHS = sizeof paths / sizeof *paths, FRAME_CAP = 1 << 16 };

static json_t *as_text(const char *bytes, size_t len)
{
    MUST(bytes && !bytes[len]);
    return json_string("");
}

/* An answer is an object that can be written, but for its bytes, or none. */
static void read_answer(const struct hf__et_method *m, struct fuzz *f)
{
    static uint8_t frame[FRAME_CAP];
    size_t len = f->left < FRAME_CAP - HF_ET_FRAME ? f->left : FRAME_CAP - HF_ET_FRAME;
    int nomem;
    json_t *j = hf__et_unframe(m, f->at, f->left, &nomem); /* by a length of its own */
    MUST(!nomem && (!j || f->left == hf__et_frame_len(f->at, f->left)));
    json_decref(j);
    memset(frame, 0, HF_ET_FRAME);
    frame[3] = (uint8_t)(len >> 8);
    frame[4] = (uint8_t)len;
    if (len) memcpy(frame + HF_ET_FRAME, f->at, len);
    j = hf__et_unframe(m, frame, HF_ET_FRAME + len, &nomem);
    MUST(!nomem && (!j || json_is_object(j)));
    MUST(!j || !hf__et_recode(m->reply, m->streams ? json_object_get(j, "result") : j, as_text));
    char *text = j ? hf__json_text(j) : NULL;
    MUST(!j || text);
    free(text);
    json_decref(j);
}

/* A request is whole, or none. */
static void write_request(const struct hf__et_method *m, const struct fuzz *f)
{
    int nomem;
    uint8_t *frame;
    size_t len = 0;
    json_t *j = hf__json_read((const char *)f->at, f->left, 0, &nomem);
    int rc = hf__et_frame(m, j, &frame, &len);
    MUST(rc ? rc == HF_INVALID && !frame : hf__et_frame_len(frame, len) == len);
    if (!rc) {
        ProtobufCMessage *back =
            protobuf_c_message_unpack(m->request, NULL, len - HF_ET_FRAME, frame + HF_ET_FRAME);
        MUST(back && !back->n_unknown_fields);
        protobuf_c_message_free_unpacked(back, NULL);
    }
    free(frame);
    json_decref(j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz f = {data, size};
    uint8_t how = fuzz_byte(&f);
    const struct hf__et_method *m = hf__et_method(paths[how / 2 % PATHS]);
    MUST(m);
    if (how % 2)
        write_request(m, &f);
    else
        read_answer(m, &f);
    return 0;
}
