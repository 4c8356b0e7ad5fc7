/*
 * group.h - the keys of etcd's that make one row: see etcd.h for what they are.
 */
#ifndef HF_ETCD_GROUP_H
#define HF_ETCD_GROUP_H

#include "etcd.h"

/* What the keys beside a row say of a session. */
struct hf__et_life {
    uint64_t session,
        by;    /* by: the lease under which the session's key was put back; 0: it wasn't */
    int there; /* 1: the session's key is there, under a lease */
};

/* The keys of etcd's that belong to one lock's key. */
struct hf__et_group {
    char *key;                        /* with the prefix; NULL: none */
    size_t len;                       /* of `key` */
    const ProtobufCBinaryData *value; /* the row's value, which belongs to the answer; NULL: there
                                         is no row */
    uint64_t rev;                     /* 0: there is none */
    struct hf__et_life *life;
    size_t n_lives, cap;
};

/* Adds one of etcd's keys to the group. Returns 0; 1: the key belongs to the next group;
   HF_NOMEM. */
int hf__et_group_add(struct hf__et_group *g, const HfEt__KeyValue *kv);
/* Makes the row from a group of keys, which a reply of that term brought. `row` is initialized. */
int hf__et_group_row(const struct hf__et_group *g, int64_t term, hf_row *row, const char **ret_why);
/* Finds in a range's answer the row of `key` and the keys beside it, to be freed in any case. */
int hf__et_group_read(const HfEt__RangeResponse *range, int64_t term, const hf_rowkey *key,
                      hf_row *row, struct hf__et_group *g, const char *what, hf_error *err);
void hf__et_group_free(struct hf__et_group *g);

/* Returns the session in the group; NULL: no key names it. */
struct hf__et_life *hf__et_life_of(const struct hf__et_group *g, uint64_t session);
static inline int hf__et_is_there(const struct hf__et_life *life) { return life && life->there; }

#endif
