/*
 * rows.c - etcd: reads a row, and puts back the keys of sessions in doubt (leases.c).
 */
#include "group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns 1 if a holder's session is missing, but the holder may still believe that it holds: see
   leases.c. */
static int in_doubt(const struct hf__et_group *g, const hf_party *p)
{
    return p->session && !(p->flags & HF_PARTY_DEAD) &&
           !hf__et_is_there(hf__et_life_of(g, p->session));
}

/* Returns 1 for a note (K \t SESSION ".") about a session that the row doesn't name any more. */
static int is_stale_note(const struct hf__et_life *life, const hf_row *row)
{
    return life->by && !hf__et_names(row, life->session);
}

/* Returns how many seconds holders in doubt may go on believing at most; 0: there are none. */
static int64_t longest_doubt_s(const struct hf__et_group *g, const hf_row *row)
{
    int64_t s = 0;
    for (uint32_t i = 0; i < row->n_holders; i++) {
        if (!in_doubt(g, &row->party[i])) continue;
        int64_t own = hf__et_session_s(row->party[i].session);
        int64_t lease = ((int64_t)row->party[i].lease_ms + 999) / 1000;
        s = s > own ? s : own;
        s = s > lease ? s : lease;
        s = s ? s : 1;
    }
    return s;
}

/* Adds to the transaction: the keys of the sessions in doubt, under the lease `by`, which isn't
   kept alive, and the notes that name `by`. */
static void add_doubts(struct hf__et_txn *t, const hf_store *st, const hf_rowkey *key,
                       const hf_row *row, const struct hf__et_group *g, uint64_t by)
{
    char tail[HF_ET_TAIL_CAP], name[20];
    int n = snprintf(name, sizeof name, "%016llx", (unsigned long long)by);
    for (uint32_t i = 0; i < row->n_holders; i++) {
        if (!in_doubt(g, &row->party[i])) continue;
        if (t->msg.n_success + t->msg.n_compare > HF_ET_OPS_CAP) break;
        hf__et_tail(row->party[i].session, "", tail);
        ProtobufCBinaryData its = hf__et_key(st, &t->mem, key->text, tail);
        hf__et_add_unbound(t, its);
        hf__et_add_put(t, its, (ProtobufCBinaryData){0, NULL}, by);
        hf__et_tail(row->party[i].session, ".", tail);
        hf__et_add_put(t, hf__et_key(st, &t->mem, key->text, tail),
                       hf__et_copy(&t->mem, name, (size_t)n), 0);
    }
}

static void delete_stale_notes(struct hf__et_txn *t, const hf_store *st, const hf_rowkey *key,
                               const hf_row *row, const struct hf__et_group *g)
{
    char tail[HF_ET_TAIL_CAP];
    for (size_t i = 0; i < g->n_lives; i++) {
        if (!is_stale_note(&g->life[i], row)) continue;
        if (t->msg.n_success > HF_ET_OPS_CAP) break;
        hf__et_tail(g->life[i].session, ".", tail);
        hf__et_add_delete(t, hf__et_key(st, &t->mem, key->text, tail));
    }
}

/* Puts back the keys of sessions in doubt and deletes stale notes, if the stored row still is this
   one. A failure is ignored, because the next reader does the same. The new lease isn't revoked
   even if the write seems to have failed: the write may have landed, and the end of the lease would
   then say that those sessions are over. */
static void settle(hf_store *st, const hf_rowkey *key, const hf_row *row,
                   const struct hf__et_group *g)
{
    int64_t s = longest_doubt_s(g, row);
    uint64_t by = 0;
    int stale_notes = 0;
    for (size_t i = 0; i < g->n_lives; i++) stale_notes |= is_stale_note(&g->life[i], row);
    if ((!s && !stale_notes) || (s && hf__et_lease_unkept(st, s, &by))) return;
    struct hf__et_txn t;
    struct hf__et_reply reply = {NULL, 0, 0};
    hf__et_txn_open(&t);
    hf__et_add_compare(&t, st, key, row->rev);
    if (s) add_doubts(&t, st, key, row, g, by);
    delete_stale_notes(&t, st, key, row, g);
    (void)hf__et_post(&st->http, HF_ET_TXN, &t.msg.base, &t.mem, HF_UNKNOWN, &reply, "get",
                      key->text, NULL);
    hf__et_free(&reply);
    hf__et_txn_close(&t);
}

int hf__et_take_range(hf_store *st, const HfEt__RangeResponse *range, int64_t term,
                      const hf_rowkey *key, hf_row *row, const char *what, hf_error *err)
{
    struct hf__et_group g = {0};
    int rc = hf__et_group_read(range, term, key, row, &g, what, err);
    if (!rc && row->rev) settle(st, key, row, &g);
    hf__et_group_free(&g);
    return rc;
}

int hf__et_look(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
                hf_error *err)
{
    struct hf__et_reply reply = {NULL, 0, 0};
    struct hf__et_mem mem = {NULL, 0};
    HfEt__RangeRequest request = HF_ET__RANGE_REQUEST__INIT;
    hf__et_range_of(st, &mem, key->text, &request);
    int rc = hf__et_post(&st->http, HF_ET_RANGE, &request.base, &mem, HF_UNAVAILABLE, &reply, "get",
                         key->text, err);
    hf__et_mem_free(&mem);
    if (rc) return rc;
    *ret_clock_us = reply.clock_us;
    rc = hf__et_take_range(st, (HfEt__RangeResponse *)reply.message, reply.term, key, row, "get",
                           err);
    hf__et_free(&reply);
    return rc;
}

int hf__et_get(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
               hf_error *err)
{
    int rc = hf__et_look(st, key, row, ret_clock_us, err);
    if (!rc) *ret_clock_us = hf__et_date_of_row(&st->http, row->rev, *ret_clock_us);
    return rc;
}
