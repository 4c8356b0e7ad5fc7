/*
 * keys.c - etcd: the names of keys. See etcd.h for what they are.
 */
#include "etcd.h"

#include <stdio.h>

/* Copies a key into the request's memory. A key that is too long fails as if there were no
   memory. */
static ProtobufCBinaryData copied(struct hf__et_mem *mem, const char *key, int n)
{
    if (n >= 0 && n < HF_ET_KEY_CAP) return hf__et_copy(mem, key, (size_t)n);
    mem->failed = 1;
    return (ProtobufCBinaryData){0, NULL};
}

ProtobufCBinaryData hf__et_key(const hf_store *st, struct hf__et_mem *mem, const char *text,
                               const char *tail)
{
    char key[HF_ET_KEY_CAP];
    return copied(mem, key, snprintf(key, sizeof key, "%s%s%s", st->prefix, text, tail));
}

ProtobufCBinaryData hf__et_inbox(const hf_store *st, struct hf__et_mem *mem, const char *text,
                                 uint64_t session)
{
    char key[HF_ET_KEY_CAP];
    return copied(mem, key,
                  snprintf(key, sizeof key, "%s\t%016llx\t%s", st->prefix,
                           (unsigned long long)session, text));
}

void hf__et_range_of(const hf_store *st, struct hf__et_mem *mem, const char *text,
                     HfEt__RangeRequest *ret)
{
    ret->has_key = ret->has_range_end = 1;
    ret->key = hf__et_key(st, mem, text, "");
    ret->range_end = hf__et_key(st, mem, text, "\n");
}
