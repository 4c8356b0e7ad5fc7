/*
 * replace.c - mariadb: replaces one row, or many rows by one request. See store.h.
 *
 * A replace is two statements: the write, in autocommit, which compares the rev; and a SELECT that
 * returns whether the write was done, the server's clock, and, if it wasn't done, the row that is
 * there. The write reads and locks the row's latest version, not that of a snapshot.
 *
 * Of many replaces each is a transaction of its own: see replace_many in holdfast_driver.h. The
 * server carries the statements out one after the other, and stops at one that fails. The
 * statements behind it are sent again in another request. A statement among others doesn't wait for
 * a row's lock, so that a locked row doesn't hold up the others; one that is alone waits. The
 * replaces of locked rows are sent again a few times, after all others have been answered. If not
 * all replaces are answered in time, the connection is closed; those that were sent may still be
 * carried out.
 */
#include "store.h"

#include <mysqld_error.h>
#include <string.h>

/* ---- a replace ---- */

static void fail(hf_replace *item, int code, const char *why)
{
    item->result = hf_fail(item->err, code, 0, "mariadb: replace '%s': %s", item->key->text, why);
}

/* Writes both statements of a replace; the first one is an INSERT, an UPDATE or a DELETE. `waits`:
   1: it may wait for the row's lock. Returns 1; 0: the row can't be written, and the item has its
   result. */
static int put(struct hf__sql *sql, const hf_store *st, hf_replace *item, int waits)
{
    struct hf__fields f = HF_NO_FIELDS;
    const char *why = "";
    int inserts = item->row && !item->seen;
    int rc = item->row ? hf__put_fields(item->row, HF_JSON_TEXT, &f, &why) : 0;
    if (rc) {
        hf__free_fields(&f);
        fail(item, rc, why);
        return 0;
    }
    hf__sql_put(sql, "%s%s%s %s%s", sql->len ? ";\n" : "",
                waits ? "" : "SET STATEMENT innodb_lock_wait_timeout = 0 FOR ",
                !item->row ? "DELETE FROM"
                : inserts  ? "INSERT INTO"
                           : "UPDATE",
                st->table, item->row ? " SET " : "");
    for (int i = 0; item->row && i < HF_FIELDS; i++) {
        hf__sql_put(sql, "%s`%s` = ", i ? ", " : "", hf__field[i].name);
        if (hf__field[i].kind == HF_NUMBER)
            hf__sql_put(sql, "%lld", (long long)f.n[i]);
        else
            hf__sql_put_bytes(sql, f.text[i], f.len[i]);
    }
    hf__sql_put(sql, inserts ? ", `key` = " : " WHERE `key` = ");
    hf__sql_put_bytes(sql, item->key->text, item->key->len);
    if (!inserts) hf__sql_put(sql, " AND `rev` = %llu", (unsigned long long)item->seen);
    hf__sql_put(sql, ";\n");
    hf__my_put_told(sql, st, item->key, 1);
    hf__free_fields(&f);
    return 1;
}

/* Sets the item's result from the reply to its second statement. */
static void judge(const hf_store *st, const struct hf__my_reply *r, hf_replace *item)
{
    int whole = r->row && !r->read_only;
    int64_t done = whole ? hf__my_number(r, HF_MY_DONE) : -1;
    if (whole) item->clock_us = hf__my_number(r, HF_MY_CLOCK);
    if (done != 0 && done != 1) {
        fail(item, HF_UNKNOWN, r->read_only ? HF_MY_REPLICA : HF_MY_UNFIT);
    } else if (done || (!item->row && !item->seen && !r->row[HF_MY_FIRST + HF_FIELD_REV])) {
        item->result = 0; /* without `done` there was no row to delete */
    } else {
        int rc = 0;
        if (item->cur) rc = hf__my_decode(st, r, item->cur, "replace", item->key->text, item->err);
        item->result = rc ? rc : HF_CONFLICT;
    }
}

int hf__my_replace(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                   hf_row *cur, int64_t *ret_clock_us, hf_error *err)
{
    hf_replace item = {.key = key, .seen = seen, .row = row, .cur = cur, .err = err};
    struct hf__sql sql = {NULL, 0, 0, 0};
    struct hf__my_reply r;
    if (!put(&sql, st, &item, 1)) return item.result;
    int rc = hf__my_request(st, &sql, 0, &r, "replace", key->text, err);
    if (rc == HF_CONFLICT) { /* the reply doesn't have the row */
        rc = cur ? hf__my_get(st, key, cur, ret_clock_us, err) : 0;
        return rc ? rc : HF_CONFLICT;
    }
    if (rc) return rc;
    judge(st, &r, &item);
    if (item.clock_us) *ret_clock_us = item.clock_us;
    mysql_free_result(r.rows);
    return item.result;
}

/* ---- many ---- */

/* After how many bytes another request begins: a server takes at least 1 MiB. How often the
   replaces of locked rows are sent again, after a pause. */
enum { REQUEST = 256 * 1024, ROUNDS = 4, PAUSE_US = 10000 };

struct many {
    hf_store *st;
    struct hf__my_link *link;
    hf_replace *item[HF_BATCH]; /* the replaces that have no answer yet */
    size_t n;
    hf_replace *again[HF_BATCH]; /* the replaces whose row was locked */
    size_t n_again;
    int round, alone; /* alone: 1: there is one replace */
};

/* Writes the statements of as many items as fit into a request. Returns how many there are. An item
   that can't be written gets its result here. */
static size_t put_all(struct many *m, struct hf__sql *sql)
{
    size_t sent = 0;
    while (sent < m->n && (!sent || sql->len < REQUEST))
        if (put(sql, m->st, m->item[sent], m->alone))
            sent++;
        else
            m->item[sent] = m->item[--m->n];
    return sent;
}

/* Sets the result of the item at which the request failed. */
static void unanswered(struct many *m, hf_replace *item, const struct hf__my_reply *r)
{
    if (r->at % 2) {
        fail(item, HF_UNKNOWN, r->why);
    } else if ((r->number == ER_LOCK_WAIT_TIMEOUT || r->code == HF_CONFLICT) && m->round < ROUNDS) {
        m->again[m->n_again++] = item;          /* nothing was done */
    } else if (r->number == ER_NO_SUCH_TABLE) { /* so there is no row */
        hf_row_clear(item->cur);
        item->result = HF_CONFLICT;
    } else {
        fail(item, r->code == HF_CONFLICT ? HF_UNAVAILABLE : r->code, r->why);
    }
}

/* Sends one request. At least one replace gets its result; the others stay in *m. */
static void round_trip(struct many *m)
{
    struct hf__sql sql = {NULL, 0, 0, 0};
    struct hf__my_reply r;
    size_t i = 0, sent = put_all(m, &sql);
    if (sent) {
        hf__my_send(m->link, &sql, HF_UNKNOWN, &r);
        while (hf__my_next(&r))
            if (r.at % 2 && i < sent) judge(m->st, &r, m->item[i++]);
        mysql_free_result(r.rows);
        while (!r.code && i < sent) fail(m->item[i++], HF_UNKNOWN, HF_MY_UNFIT);
        if (i < sent) unanswered(m, m->item[i++], &r);
        /* Those behind it were not carried out, or the connection is gone. */
        while (i < sent && (!m->link->my || r.code == HF_NOMEM)) fail(m->item[i++], r.code, r.why);
    }
    hf__sql_free(&sql);
    memmove(m->item, m->item + i, (m->n - i) * sizeof *m->item);
    m->n -= i;
}

size_t hf__my_replace_some(hf_store *st, void *link, hf_replace *item, size_t n, int64_t until_us)
{
    struct many m = {.st = st, .link = link, .n = n, .alone = n == 1};
    m.link->until_us = until_us;
    for (size_t i = 0; i < n; i++) m.item[i] = &item[i];
    for (; m.n && m.link->my; m.round++) {
        if (m.round) hf__wait_until(NULL, 0, hf__local_us() + PAUSE_US);
        while (m.n && m.link->my) round_trip(&m);
        while (m.n_again) m.item[m.n++] = m.again[--m.n_again];
    }
    while (m.n) fail(m.item[--m.n], HF_UNAVAILABLE, "the connection is gone");
    m.link->until_us = 0;
    return n;
}
