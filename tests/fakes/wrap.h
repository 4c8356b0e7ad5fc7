/*
 * wrap.h - a driver around a driver: every call goes through two hooks, before and after.
 *
 * Not hooked, because they ask nothing of the store: now, session_fd, told, death_fd,
 * death_read.
 */
#ifndef HF_WRAP_H
#define HF_WRAP_H

#include "holdfast_driver.h"

/* Operations that carry rows come first: a plan of faults calls these "any". */
enum hf__op {
    HF__OP_GET,
    HF__OP_SWAP,
    HF__OP_ACQUIRE,
    HF__OP_UPDATE,
    HF__OP_SCAN,
    HF__OP_SYNC,
    HF__OP_ENTER,
    HF__OP_SESSION,
    HF__OP_ALIVE,
    HF__OP_LEASE,
    HF__OP_KEEP,
    HF__OP_LEFT,
    HF__OP_END,
    HF__OP_LISTEN,
    HF__OP_WATCH,
    HF__OP_INTERRUPT,
    HF__OP_INSPECT,
    HF__OP_CLOSE,
    HF__OPS
};

const char *hf__op_name(enum hf__op op);

/* One call under way. */
struct hf__call {
    enum hf__op op;
    const hf_rowkey *key; /* get, replace, acquire, update, sync, enter; else NULL */
    const hf_row *row;    /* after get, replace, acquire, update: the row that it left, if known */
    uint64_t seen;        /* replace */
    uint64_t session;     /* alive, keep, left, end; after lease */
    const char *prefix;   /* scan */
    int64_t start_us;     /* local */
    int late_ms;          /* for the hooks */
    int lose;             /* set by before: make the call, but keep its results from the caller */
};

struct hf__wrap {
    hf_driver shown; /* first: the driver that the caller sees */
    const hf_driver *base;
    hf_caps base_caps; /* the capabilities of the store within; and the groups as they are shown: */
    hf_notify_ops notify;
    hf_local_ops local;
    hf_liveness_ops liveness;
    hf_session_ops sessions;
    hf_store *st;
    /* 0: go on; else the call is not made and answers this. */
    int (*before)(struct hf__wrap *w, struct hf__call *call, hf_error *err);
    /* returns the result, given what the store has returned */
    int (*after)(struct hf__wrap *w, struct hf__call *call, int rc, hf_error *err);
    /* frees what follows this struct, not the struct */
    void (*end)(struct hf__wrap *w);
    int give_clock; /* the store's clock goes with every reply, as a server's does; there is no now
                     */
};

/* Puts *w around *drv, *st and *caps. The caller has allocated w, and set its hooks; close frees
   it. */
void hf__wrap(struct hf__wrap *w, const hf_driver **drv, hf_store **st, hf_caps *caps);

#endif
