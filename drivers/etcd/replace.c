/*
 * replace.c - writes a row. Two of etcd's errors say too little, and need a further request: "lease
 * not found" doesn't say which lease; "no space" doesn't say whether the write was done before.
 */
#include "etcd.h"

#include <string.h>

/* The arguments of a replace. */
struct replace {
    hf_store *st;
    const hf_rowkey *key;
    uint64_t seen;
    const hf_row *row; /* NULL: the row is to be deleted */
    hf_row *cur;
    int64_t *ret_clock_us;
    hf_error *err;
};

/* Finds out whether a write that was refused for lack of space has landed. etcd checks for space
   before the write and once more after it, and gives the same error for both. A write that was
   answered doesn't land later. So the stored row shows whether it has landed, unless another client
   has written since. Returns 0, HF_FULL or HF_UNKNOWN. */
static int without_room(const struct replace *s)
{
    hf_row there;
    hf_row_init(&there);
    int rc = hf__et_look(s->st, s->key, &there, s->ret_clock_us, NULL);
    if (!rc && there.rev == s->seen)
        rc = HF_FULL;
    else if (rc || (s->row ? !hf_row_equal(&there, s->row) : there.rev != 0))
        rc = HF_UNKNOWN;
    hf_row_clear(&there);
    if (rc && s->err) s->err->code = rc;
    return rc;
}

static int carry(const struct replace *s, const struct hf__et_dead *dead)
{
    struct hf__et_reply reply = {NULL, 0, 0};
    struct hf__et_dead put;
    struct hf__et_txn t;
    hf__et_replace_txn(&t, s->st, s->key, s->seen, s->row, dead, &put);
    if (t.msg.n_success > HF_ET_OPS_CAP) {
        hf__et_txn_close(&t);
        return hf_fail(s->err, HF_FULL, 0, "etcd: replace '%s': too many sessions of one process",
                       s->key->text);
    }
    int rc = hf__et_post(&s->st->http, HF_ET_TXN, &t.msg.base, &t.mem, HF_UNKNOWN, &reply,
                         "replace", s->key->text, s->err);
    hf__et_txn_close(&t);
    if (rc == HF_FULL) rc = without_room(s);
    if (rc == HF_UNKNOWN || !reply.message) hf__et_written(s->st, s->key, s->row, dead, &put, 0);
    if (rc || !reply.message) return rc;
    *s->ret_clock_us = reply.clock_us;
    const HfEt__TxnResponse *is = (HfEt__TxnResponse *)reply.message;
    if (!is->succeeded) {
        const HfEt__RangeResponse *there =
            is->n_responses ? is->responses[0]->response_range : NULL;
        if (s->cur)
            rc = hf__et_take_range(s->st, there, reply.term, s->key, s->cur, "replace", s->err);
        if (!rc && s->cur)
            *s->ret_clock_us = hf__et_date_of_row(&s->st->http, s->cur->rev, reply.clock_us);
        if (!rc) rc = HF_CONFLICT;
    } else {
        hf__et_written(s->st, s->key, s->row, dead, &put, 1);
    }
    hf__et_free(&reply);
    return rc;
}

/* ---- a lease is gone ---- */

/* Returns 1 if the row that is replaced has this party already, with the same session and token:
   the write gives the party no grant and no claim. */
static int stood(const hf_row *was, const hf_party *p, int holds)
{
    for (uint32_t i = 0; i < was->n_holders + was->n_queue; i++) {
        const hf_party *q = &was->party[i];
        if (q->session == p->session && q->token == p->token && !memcmp(q->id, p->id, 16) &&
            (i < was->n_holders) == holds &&
            (q->flags | HF_PARTY_DEAD) == (p->flags | HF_PARTY_DEAD))
            return 1;
    }
    return 0;
}

static int all_stood(const hf_row *was, const hf_row *row, uint64_t session)
{
    for (uint32_t i = 0; i < row->n_holders + row->n_queue; i++)
        if (row->party[i].session == session && !stood(was, &row->party[i], i < row->n_holders))
            return 0;
    return 1;
}

/* Lists own sessions that the new row names only for parties that the old row has already. */
static void find_old(hf_store *st, const hf_row *was, const hf_row *row, struct hf__et_dead *ret)
{
    ret->n = 0;
    pthread_mutex_lock(&st->mu);
    for (size_t i = 0; i < st->n_own && ret->n < HF_ET_OPS_CAP; i++)
        if (hf__et_names(row, st->own[i].session) && all_stood(was, row, st->own[i].session))
            ret->session[ret->n++] = st->own[i].session;
    pthread_mutex_unlock(&st->mu);
}

/* Asks etcd for the lease of each session in the list, and removes those that live. Returns 0 or an
   error. */
static int keep_dead(hf_store *st, struct hf__et_dead *of, hf_error *err)
{
    size_t n = of->n;
    of->n = 0;
    for (size_t i = 0; i < n; i++) {
        int64_t ms;
        int rc = hf__et_session_left(st, of->session[i], &ms, err);
        if (rc == HF_LOST)
            of->session[of->n++] = of->session[i];
        else if (rc)
            return rc;
    }
    return 0;
}

/*
 * Makes a write again that was refused because a session of this handle has ended. If the stored
 * row names that session already, the write is made without the session's key; otherwise every
 * write of this handle would fail while the row names the session. (Readers of the row find out
 * whether the session's holder may still believe that it holds: leases.c.) A write that gives a
 * party with that session a grant or a place in the queue stays refused.
 */
static int without_the_dead(const struct replace *s)
{
    struct hf__et_dead dead;
    hf_row was;
    hf_row_init(&was);
    int rc = hf__et_get(s->st, s->key, &was, s->ret_clock_us, s->err);
    if (!rc && was.rev != s->seen) {
        rc = s->cur ? hf_row_copy(s->cur, &was) : 0;
        rc = rc ? hf_fail(s->err, rc, 0, "etcd: replace '%s': out of memory", s->key->text)
                : HF_CONFLICT;
    }
    if (!rc) {
        find_old(s->st, &was, s->row, &dead);
        rc = keep_dead(s->st, &dead, s->err);
        if (!rc && !dead.n) rc = HF_LOST;
    }
    hf_row_clear(&was);
    return rc ? rc : carry(s, &dead);
}

int hf__et_replace(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                   hf_row *cur, int64_t *ret_clock_us, hf_error *err)
{
    static const struct hf__et_dead none = {.n = 0};
    struct replace s = {st, key, seen, row, cur, ret_clock_us, err};
    int rc = carry(&s, &none);
    if (rc == HF_LOST && row) rc = without_the_dead(&s);
    return rc;
}
