/*
 * txn.c - builds the transaction that writes a row. See etcd.h for the keys.
 *
 * Queued waiters don't watch the row, because each write would wake all of them. Instead each
 * waiter has an inbox: a key under the lease of its session, which the waiter puts when it joins
 * the queue, and watches. A write puts a notification into the inboxes of the waiters that it
 * concerns. (In etcd's own lock, and in Curator's, each waiter watches a key of its own, too.) A
 * write makes no inbox for another client: if the inbox is gone, it puts nothing.
 */
#include "etcd.h"

#include "addresses.h"
#include "tidies.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WHOLE_CAP = 4096, /* a longer row isn't put into a notification; in bytes */
    BUNDLE = 60,      /* this many inboxes in one operation; etcd takes 128 operations, nested ones
                         included */
    GAPS = 30,        /* one write deletes at most this many ranges of unused keys */
    BESIDE = 20,      /* a write with more sessions than this deletes no such ranges */
    PAYLOAD_CAP = WHOLE_CAP + HF_ET_WORD_CAP + 1
};

void hf__et_tail(uint64_t session, const char *end, char ret[HF_ET_TAIL_CAP])
{
    snprintf(ret, HF_ET_TAIL_CAP, "\t%016llx%s", (unsigned long long)session, end);
}

/* ---- the sessions that a row names ---- */

int hf__et_names(const hf_row *row, uint64_t session)
{
    for (uint32_t i = 0; i < row->n_holders + row->n_queue; i++)
        if (row->party[i].session == session) return 1;
    return 0;
}

static int is_in_line(const hf_row *row, uint64_t session)
{
    for (uint32_t i = row->n_holders; i < row->n_holders + row->n_queue; i++)
        if (row->party[i].session == session) return 1;
    return 0;
}

static int is_dead(const struct hf__et_dead *dead, uint64_t session)
{
    for (size_t i = 0; i < dead->n; i++)
        if (dead->session[i] == session) return 1;
    return 0;
}

/* What a session's notification contains. SHORT: the holder; for the first waiter, which goes on
   waiting. WHOLE: the whole row, too; for the holder, which will hand the key over. 0: the session
   gets no notification. */
enum { SHORT = 1, WHOLE };

static int concern(const hf_row *row, uint64_t session)
{
    int what = 0;
    for (uint32_t i = 0; i < row->n_holders + row->n_queue; i++) {
        if (row->party[i].session != session || !hf__concerns(row, i)) continue;
        what = i < row->n_holders ? WHOLE : what ? what : SHORT;
    }
    return what;
}

/* ---- notifications ---- */

static const ProtobufCBinaryData none = {0, NULL};

struct payloads {
    const hf_row *row;
    const uint8_t *bytes; /* the row as bytes */
    size_t n_bytes;
    int written; /* 1: `text` and `len` are set, which is done for the first waiter to notify */
    size_t len[WHOLE + 1];
    char text[WHOLE + 1][PAYLOAD_CAP];
    HfEt__TxnRequest *bundle; /* a nested transaction that notifies several; NULL: none yet */
};

/* Makes the texts of the notification, SHORT and WHOLE. */
static void write_them(struct payloads *all)
{
    size_t n = hf__et_word(all->row, all->text[SHORT]);
    memcpy(all->text[WHOLE], all->text[SHORT], n);
    all->written = 1;
    all->len[0] = 0;
    all->len[SHORT] = all->len[WHOLE] = n;
    if (all->n_bytes > WHOLE_CAP) return;
    all->text[WHOLE][n] = '\n';
    memcpy(all->text[WHOLE] + n + 1, all->bytes, all->n_bytes);
    all->len[WHOLE] = n + 1 + all->n_bytes;
}

static ProtobufCBinaryData payload_for(struct payloads *all, struct hf__et_mem *mem, int what)
{
    if (!all->written) write_them(all);
    return hf__et_copy(mem, all->text[what], all->len[what]);
}

static HfEt__TxnRequest *nested(struct hf__et_mem *mem)
{
    HfEt__TxnRequest *txn = hf__et_alloc(mem, sizeof *txn);
    if (txn) hf_et__txn_request__init(txn);
    return txn;
}

/* Adds an operation that puts the notification into the session's inbox, if that exists. The inbox
   keeps its lease. */
static void notify(struct hf__et_txn *t, const hf_store *st, const hf_rowkey *key, uint64_t session,
                   struct payloads *all, int what)
{
    ProtobufCBinaryData name = hf__et_inbox(st, &t->mem, key->text, session);
    if (!all->bundle) all->bundle = nested(&t->mem);
    HfEt__TxnRequest *one = nested(&t->mem);
    HfEt__RequestOp *op = all->bundle ? hf__et_op(&t->mem, all->bundle) : NULL;
    if (!one || !op) return;
    HfEt__Compare *is_there = hf__et_compare(&t->mem, one, name, HF_ET__COMPARE__TARGET__VERSION);
    HfEt__PutRequest *put = hf__et_put(&t->mem, one, name, payload_for(all, &t->mem, what));
    if (!is_there || !put) return;
    is_there->result = HF_ET__COMPARE__RESULT__GREATER;
    is_there->has_version = 1; /* version 0: absent */
    put->has_ignore_lease = put->ignore_lease = 1;
    op->request_txn = one;
}

static void send_bundle(struct hf__et_txn *t, struct payloads *all)
{
    if (!all->bundle) return;
    HfEt__RequestOp *op = hf__et_op(&t->mem, &t->msg);
    if (op) op->request_txn = all->bundle;
    all->bundle = NULL;
}

/* Returns 1 if a party before this one has the same session, which is notified once. */
static int is_told_already(const hf_row *row, uint32_t i)
{
    for (uint32_t n = 0; n < i; n++)
        if (row->party[n].session == row->party[i].session && hf__concerns(row, n)) return 1;
    return 0;
}

/* Adds the notifications to all sessions that the write concerns, but for those whose inboxes this
   write puts itself: *put. */
static void notify_all(struct hf__et_txn *t, const hf_store *st, const hf_rowkey *key,
                       const hf_row *row, const struct hf__et_dead *put, struct payloads *all)
{
    for (uint32_t i = 0; i < row->n_holders + row->n_queue; i++) {
        uint64_t session = row->party[i].session;
        if (!session || !hf__concerns(row, i) || is_dead(put, session) || is_told_already(row, i))
            continue;
        notify(t, st, key, session, all, concern(row, session));
        /* n counts the operations of the bundle; etcd's limit is for these and those beside the
           bundle. */
        size_t n = all->bundle ? all->bundle->n_success : 0;
        if (n >= BUNDLE || n + t->msg.n_success >= HF_ET_OPS_CAP) send_bundle(t, all);
    }
    send_bundle(t, all);
}

/* ---- sessions ---- */

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Returns the sessions that the row names, in order, each once, to be freed. NULL: out of
   memory. */
static uint64_t *all_named(const hf_row *row, size_t *ret_n)
{
    size_t n = row->n_holders + row->n_queue, kept = 0;
    uint64_t *all = malloc((n + 1) * sizeof *all);
    if (!all) return NULL;
    for (size_t i = 0; i < n; i++) all[i] = row->party[i].session;
    qsort(all, n, sizeof *all, ascending);
    for (size_t i = 0; i < n; i++)
        if (!kept || all[i] != all[kept - 1]) all[kept++] = all[i];
    *ret_n = kept;
    return all;
}

/* Adds operations that delete keys of sessions which the row doesn't name. With the row's sessions
   sorted, these keys lie in the ranges between two of them. One write deletes at most GAPS ranges;
   the next write that tidies begins elsewhere. */
static void add_tidying(struct hf__et_txn *t, const hf_store *st, const hf_rowkey *key,
                        const hf_row *row)
{
    char from[HF_ET_TAIL_CAP], to[HF_ET_TAIL_CAP];
    size_t n = 0;
    uint64_t *named = all_named(row, &n);
    if (!named) return;
    for (size_t i = 0; i < GAPS && i <= n; i++) {
        size_t gap = (row->rev + i) % (n + 1);
        snprintf(from, sizeof from, "\t0");
        snprintf(to, sizeof to, "\tg");
        if (gap) hf__et_tail(named[gap - 1], "/", from); /* '/' sorts just behind "SESSION." */
        if (gap < n) hf__et_tail(named[gap], "", to);
        hf__et_add_delete_all(t, hf__et_key(st, &t->mem, key->text, from),
                              hf__et_key(st, &t->mem, key->text, to));
    }
    free(named);
}

/* Returns 1 if the row has a waiter, or a waiter was granted the key and hasn't claimed it yet. */
static int somebody_listens(const hf_row *row)
{
    for (uint32_t i = 0; i < row->n_holders; i++)
        if (row->party[i].flags & HF_PARTY_UNCLAIMED) return 1;
    return row->n_queue != 0;
}

/* Removes the key of an own session that leaves the row. If other clients watch the row for ends of
   sessions (`listened`), a deletion would make all of them look. So the key is put again without a
   lease, and stays until a later write that tidies deletes it. */
static void add_left(struct hf__et_txn *t, const hf_store *st, const hf_rowkey *key,
                     const hf_row *row, struct hf__et_mark *mark, int tidied, int listened)
{
    char tail[HF_ET_TAIL_CAP];
    hf__et_tail(mark->session, "", tail);
    if (!row->n_holders && !row->n_queue) tidied = 1;
    if (!tidied && listened)
        hf__et_add_put(t, hf__et_key(st, &t->mem, key->text, tail), none, 0);
    else if (!tidied)
        hf__et_add_delete(t, hf__et_key(st, &t->mem, key->text, tail));
    if (mark->inbox == HF_ET_NO_INBOX) return;
    hf__et_add_delete(t, hf__et_inbox(st, &t->mem, key->text, mark->session));
    mark->inbox = HF_ET_MAYBE; /* a wait that joins the queue meanwhile puts the inbox again */
}

/* Returns the number of own sessions whose keys the write puts or deletes. The caller holds
   st->mu. */
static size_t n_beside(const hf_store *st, const hf_rowkey *key, const hf_row *row)
{
    size_t n = 0;
    for (size_t i = 0; i < st->n_own; i++)
        n += hf__et_names(row, st->own[i].session) ||
             hf__et_mark(&st->marks, key->hash, st->own[i].session);
    return n;
}

/* Returns 1 if this write removes one of this handle's own sessions from the row. *ret_moves: 1 if
   such a session has an inbox, so a hold that moves to another session needs an inbox there. The
   caller holds st->mu. */
static int somebody_leaves(const hf_store *st, const hf_rowkey *key, const hf_row *row,
                           int *ret_moves)
{
    int leaves = 0;
    *ret_moves = 0;
    for (size_t i = 0; i < st->n_own; i++) {
        const struct hf__et_mark *mark = hf__et_mark(&st->marks, key->hash, st->own[i].session);
        if (!mark || hf__et_names(row, st->own[i].session)) continue;
        leaves = 1;
        *ret_moves |= mark->inbox != HF_ET_NO_INBOX;
    }
    return leaves;
}

/* Adds operations that put the keys of own sessions which the row names (but for those in `dead`),
   and remove the keys of other own sessions. *ret_put: the sessions whose inboxes are put, too. */
static void add_sessions(struct hf__et_txn *t, hf_store *st, const hf_rowkey *key,
                         const hf_row *row, const struct hf__et_dead *dead, struct payloads *all,
                         struct hf__et_dead *ret_put)
{
    int empty = !row->n_holders && !row->n_queue;
    char tail[HF_ET_TAIL_CAP];
    ret_put->n = 0;
    if (empty)
        hf__et_add_delete_all(t, hf__et_key(st, &t->mem, key->text, "\t0"),
                              hf__et_key(st, &t->mem, key->text, "\tg"));
    pthread_mutex_lock(&st->mu);
    int moves, leaves = somebody_leaves(st, key, row, &moves);
    int listened = moves || somebody_listens(row);
    /* A write that puts keys of sessions which leave the row doesn't tidy: the ranges have them. */
    int tidied = !empty && !(leaves && listened) && hf__et_tidies(row->rev) &&
                 n_beside(st, key, row) <= BESIDE;
    if (tidied) add_tidying(t, st, key, row);
    for (size_t i = st->n_own; i-- > 0;) {
        uint64_t session = st->own[i].session;
        struct hf__et_mark *mark = hf__et_mark(&st->marks, key->hash, session);
        int named = hf__et_names(row, session);
        if (!named && mark) add_left(t, st, key, row, mark, tidied, listened);
        if (!named || is_dead(dead, session)) continue;
        hf__et_tail(session, "", tail);
        hf__et_add_put(t, hf__et_key(st, &t->mem, key->text, tail), none, session);
        if ((!moves && !is_in_line(row, session)) || (mark && mark->inbox == HF_ET_PUT)) continue;
        if (ret_put->n == HF_ET_OPS_CAP) continue; /* etcd refuses so many operations anyway */
        ret_put->session[ret_put->n++] = session;
        hf__et_add_put(t, hf__et_inbox(st, &t->mem, key->text, session),
                       payload_for(all, &t->mem, concern(row, session)), session);
    }
    pthread_mutex_unlock(&st->mu);
}

/* ---- the whole ---- */

static void add_row(struct hf__et_txn *t, hf_store *st, const hf_rowkey *key, const hf_row *row,
                    const struct hf__et_dead *dead, struct hf__et_dead *ret_put)
{
    struct payloads payloads; /* not zeroed, because it is large; only what was set is read */
    uint8_t *bytes = hf__et_row_bytes(row, &payloads.n_bytes);
    char rev[24];
    int n = snprintf(rev, sizeof rev, "%llu", (unsigned long long)row->rev);
    if (!bytes) {
        t->mem.failed = 1;
        return;
    }
    payloads.row = row;
    payloads.bytes = bytes;
    payloads.written = 0;
    payloads.bundle = NULL;
    hf__et_add_put(t, hf__et_key(st, &t->mem, key->text, ""),
                   hf__et_copy(&t->mem, bytes, payloads.n_bytes), 0);
    hf__et_add_put(t, hf__et_key(st, &t->mem, key->text, "\trev"),
                   hf__et_copy(&t->mem, rev, (size_t)n), 0);
    add_sessions(t, st, key, row, dead, &payloads, ret_put);
    notify_all(t, st, key, row, ret_put, &payloads);
    free(bytes);
}

void hf__et_replace_txn(struct hf__et_txn *t, hf_store *st, const hf_rowkey *key, uint64_t seen,
                        const hf_row *row, const struct hf__et_dead *dead,
                        struct hf__et_dead *ret_put)
{
    static const HfEt__RequestOp no_op = HF_ET__REQUEST_OP__INIT;
    static const HfEt__RangeRequest no_range = HF_ET__RANGE_REQUEST__INIT;
    hf__et_txn_open(t);
    ret_put->n = 0;
    hf__et_add_compare(t, st, key, seen);
    if (row)
        add_row(t, st, key, row, dead, ret_put);
    else
        hf__et_add_delete_all(t, hf__et_key(st, &t->mem, key->text, ""),
                              hf__et_key(st, &t->mem, key->text, "\n"));
    struct {
        HfEt__RequestOp *list, op;
        HfEt__RangeRequest range;
    } *otherwise = hf__et_alloc(&t->mem, sizeof *otherwise);
    if (!otherwise) return;
    otherwise->op = no_op;
    otherwise->range = no_range;
    hf__et_range_of(st, &t->mem, key->text, &otherwise->range);
    otherwise->op.request_range = &otherwise->range;
    otherwise->list = &otherwise->op;
    t->msg.failure = &otherwise->list;
    t->msg.n_failure = 1;
}

void hf__et_written(hf_store *st, const hf_rowkey *key, const hf_row *row,
                    const struct hf__et_dead *dead, const struct hf__et_dead *put, int certain)
{
    pthread_mutex_lock(&st->mu);
    for (size_t i = 0; i < st->n_own; i++) {
        uint64_t session = st->own[i].session;
        int named = row && hf__et_names(row, session);
        if (named && !is_dead(dead, session))
            hf__et_mark_set(st, key->hash, session,
                            !is_dead(put, session) ? HF_ET_NO_INBOX
                            : certain              ? HF_ET_PUT
                                                   : HF_ET_MAYBE);
        else if (!named && certain)
            hf__et_mark_drop(&st->marks, key->hash, session);
    }
    pthread_mutex_unlock(&st->mu);
}
