/*
 * ops.c - adds the parts of a transaction: comparisons, and the operations if these succeed.
 */
#include "etcd.h"

#include <stdio.h>

void hf__et_txn_open(struct hf__et_txn *t)
{
    static const HfEt__TxnRequest empty = HF_ET__TXN_REQUEST__INIT;
    t->mem = (struct hf__et_mem){NULL, 0};
    t->msg = empty;
}

void hf__et_txn_close(struct hf__et_txn *t) { hf__et_mem_free(&t->mem); }

HfEt__RequestOp *hf__et_op(struct hf__et_mem *mem, HfEt__TxnRequest *to)
{
    HfEt__RequestOp *op = hf__et_alloc(mem, sizeof *op);
    HfEt__RequestOp **all = hf__et_room(mem, to->success, to->n_success);
    if (!op || !all) return NULL;
    hf_et__request_op__init(op);
    to->success = all;
    return all[to->n_success++] = op;
}

HfEt__PutRequest *hf__et_put(struct hf__et_mem *mem, HfEt__TxnRequest *to, ProtobufCBinaryData key,
                             ProtobufCBinaryData value)
{
    HfEt__PutRequest *put = hf__et_alloc(mem, sizeof *put);
    HfEt__RequestOp *op = hf__et_op(mem, to);
    if (!put || !op) return NULL;
    hf_et__put_request__init(put);
    put->has_key = put->has_value = 1;
    put->key = key;
    put->value = value;
    return op->request_put = put;
}

static HfEt__DeleteRangeRequest *add_delete(struct hf__et_txn *t, ProtobufCBinaryData key)
{
    HfEt__DeleteRangeRequest *gone = hf__et_alloc(&t->mem, sizeof *gone);
    HfEt__RequestOp *op = hf__et_op(&t->mem, &t->msg);
    if (!gone || !op) return NULL;
    hf_et__delete_range_request__init(gone);
    gone->has_key = 1;
    gone->key = key;
    return op->request_delete_range = gone;
}

HfEt__Compare *hf__et_compare(struct hf__et_mem *mem, HfEt__TxnRequest *to, ProtobufCBinaryData key,
                              HfEt__Compare__Target target)
{
    HfEt__Compare *c = hf__et_alloc(mem, sizeof *c);
    HfEt__Compare **all = hf__et_room(mem, to->compare, to->n_compare);
    if (!c || !all) return NULL;
    hf_et__compare__init(c);
    c->has_key = c->has_target = c->has_result = 1;
    c->key = key;
    c->target = target;
    c->result = HF_ET__COMPARE__RESULT__EQUAL;
    to->compare = all;
    return all[to->n_compare++] = c;
}

void hf__et_add_put(struct hf__et_txn *t, ProtobufCBinaryData key, ProtobufCBinaryData value,
                    uint64_t lease)
{
    HfEt__PutRequest *put = hf__et_put(&t->mem, &t->msg, key, value);
    if (!put || !lease) return;
    put->has_lease = 1;
    put->lease = (int64_t)lease;
}

void hf__et_add_delete(struct hf__et_txn *t, ProtobufCBinaryData key) { (void)add_delete(t, key); }

void hf__et_add_delete_all(struct hf__et_txn *t, ProtobufCBinaryData key, ProtobufCBinaryData end)
{
    HfEt__DeleteRangeRequest *gone = add_delete(t, key);
    if (!gone) return;
    gone->has_range_end = 1;
    gone->range_end = end;
}

static void add_absent(struct hf__et_txn *t, ProtobufCBinaryData key)
{
    HfEt__Compare *c = hf__et_compare(&t->mem, &t->msg, key, HF_ET__COMPARE__TARGET__VERSION);
    if (c) c->has_version = 1; /* version 0: the key is absent */
}

void hf__et_add_unbound(struct hf__et_txn *t, ProtobufCBinaryData key)
{
    HfEt__Compare *c = hf__et_compare(&t->mem, &t->msg, key, HF_ET__COMPARE__TARGET__LEASE);
    if (c) c->has_lease = 1; /* lease 0: the key has none */
}

void hf__et_add_compare(struct hf__et_txn *t, const hf_store *st, const hf_rowkey *key,
                        uint64_t seen)
{
    char text[24];
    int n = snprintf(text, sizeof text, "%llu", (unsigned long long)seen);
    ProtobufCBinaryData rev = hf__et_key(st, &t->mem, key->text, "\trev");
    if (!seen) {
        add_absent(t, rev);
        /* the row must be absent, too: another program may have put it without a rev */
        add_absent(t, hf__et_key(st, &t->mem, key->text, ""));
        return;
    }
    HfEt__Compare *c = hf__et_compare(&t->mem, &t->msg, rev, HF_ET__COMPARE__TARGET__VALUE);
    if (!c) return;
    c->has_value = 1;
    c->value = hf__et_copy(&t->mem, text, (size_t)n);
}
