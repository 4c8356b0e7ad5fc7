/*
 * raw_etcd.c - a conditional write by nghttp2 and protobuf-c alone: a transaction that compares one
 * key and puts two, as a row of Holdfast is two.
 */
#include "bench.h"
#include "etcd.pb-c.h"
#include "raw.h"

#include <stdio.h>
#include <string.h>

enum { ROW_CAP = 2048 };

#define ROW_KEY "bench/raw"
#define REV_KEY "bench/raw\trev"

static unsigned long long rev;

static void make_row(char row[ROW_CAP], const char *next)
{
    size_t n = 0;
    for (int i = 0; i < HF_FIELDS; i++) {
        const char *quote = raw_kind[i] == HF_NUMBER ? "" : "\"";
        n += (size_t)snprintf(row + n, ROW_CAP - n, "%s\"%s\": %s%s%s", i ? ", " : "{", raw_name[i],
                              quote, i == HF_FIELD_REV ? next : raw_value[i], quote);
    }
    snprintf(row + n, ROW_CAP - n, "}");
}

static ProtobufCBinaryData bytes(const char *text)
{
    return (ProtobufCBinaryData){strlen(text), (uint8_t *)(uintptr_t)text};
}

static const unsigned char *call(const char *path, const ProtobufCMessage *m, size_t *ret_len)
{
    protobuf_c_message_pack(m, raw_grpc_message(protobuf_c_message_get_packed_size(m)));
    return raw_grpc(path, ret_len);
}

static void replace(const char *row, const char *seen, const char *next)
{
    HfEt__Compare compare = HF_ET__COMPARE__INIT, *compares = &compare;
    HfEt__PutRequest put[2] = {HF_ET__PUT_REQUEST__INIT, HF_ET__PUT_REQUEST__INIT};
    HfEt__RequestOp op[2] = {HF_ET__REQUEST_OP__INIT, HF_ET__REQUEST_OP__INIT};
    HfEt__RequestOp *ops[2] = {&op[0], &op[1]};
    HfEt__TxnRequest all = HF_ET__TXN_REQUEST__INIT;
    size_t len;
    compare.has_target = compare.has_key = compare.has_value = 1;
    compare.target = HF_ET__COMPARE__TARGET__VALUE;
    compare.key = bytes(REV_KEY);
    compare.value = bytes(seen);
    for (int i = 0; i < 2; i++) {
        put[i].has_key = put[i].has_value = 1;
        put[i].key = bytes(i ? REV_KEY : ROW_KEY);
        put[i].value = bytes(i ? next : row);
        op[i].request_put = &put[i];
    }
    all.n_compare = 1;
    all.compare = &compares;
    all.n_success = 2;
    all.success = ops;
    const unsigned char *answer = call("/etcdserverpb.KV/Txn", &all.base, &len);
    HfEt__TxnResponse *is = hf_et__txn_response__unpack(NULL, len, answer);
    if (!is || !is->succeeded) bench_die("etcd: not replaced");
    hf_et__txn_response__free_unpacked(is, NULL);
}

static void begin(const char *url)
{
    HfEt__PutRequest put = HF_ET__PUT_REQUEST__INIT;
    size_t len;
    raw_grpc_open(url);
    put.has_key = put.has_value = 1;
    put.key = bytes(REV_KEY);
    put.value = bytes("0");
    call("/etcdserverpb.KV/Put", &put.base, &len);
}

static void write_it(void)
{
    static char row[ROW_CAP];
    char seen[24], next[24];
    snprintf(seen, sizeof seen, "%llu", rev++);
    snprintf(next, sizeof next, "%llu", rev);
    make_row(row, next);
    replace(row, seen, next);
}

/* Of the server's own memory: it asks no other. */
static void trip(void)
{
    HfEt__RangeRequest any = HF_ET__RANGE_REQUEST__INIT;
    size_t len;
    any.has_key = any.has_serializable = any.serializable = 1;
    any.key = (ProtobufCBinaryData){1, (uint8_t *)(uintptr_t) ""};
    call("/etcdserverpb.KV/Range", &any.base, &len);
}

/* etcd doesn't say whether it syncs its writes; the script that starts it has to know. */
static void open_it(const char *url, int durable)
{
    (void)durable;
    begin(url);
    write_it();
}

const struct raw raw_etcd = {"etcd", open_it, write_it, trip};
