/*
 * replace_many.c - mariadb: many replaces by one request, each of which is a transaction of its
 * own. See store.h, and replace_many in holdfast_driver.h.
 *
 * The server carries the statements out one after the other, and stops at one that fails. The
 * statements behind it are sent again in another request. No statement waits for a row's lock, so
 * that a locked row doesn't hold up the others. The replaces of locked rows are sent again a few
 * times, after all others have been answered. If not all replaces are answered in time, the
 * connection is closed; those that were sent may still be carried out.
 */
#include "store.h"

#include <mysqld_error.h>
#include <string.h>

/* How many replaces one request has at most, and after how many bytes another request begins: a
   server takes at least 1 MiB. */
enum { AT_ONCE = 512, REQUEST = 256 * 1024, ROUNDS = 4 };
/* The statement that stands before the replaces that are sent again. */
#define PAUSE "DO SLEEP(0.01);\n"

struct many {
    hf_store *st;
    struct hf__my_link *link;
    hf_replace *item[AT_ONCE]; /* the replaces that have no answer yet */
    size_t n;
    size_t sent;                /* how many of these, from the first on, this request has */
    hf_replace *again[AT_ONCE]; /* the replaces whose row was locked */
    size_t n_again;
    int round, alone; /* alone: 1: replace_many was called with one replace */
};

static void fail(hf_replace *item, int code, const char *why)
{
    item->result = hf_fail(item->err, code, 0, "mariadb: replace '%s': %s", item->key->text, why);
}

/* Writes the statements of as many items as fit into a request. An item that can't be written gets
   its result here. */
static void put_all(struct many *m, struct hf__sql *sql)
{
    size_t all = m->n, i = 0;
    m->n = 0;
    if (m->round) hf__sql_put(sql, PAUSE);
    for (; i < all && (!m->n || sql->len < REQUEST); i++) {
        hf_replace *item = m->item[i];
        size_t before = sql->len;
        const char *why = "";
        if (m->n) hf__sql_put(sql, ";\n");
        if (!m->alone) hf__sql_put(sql, "SET STATEMENT innodb_lock_wait_timeout = 0 FOR ");
        int rc = hf__my_put_write(sql, m->st, item->key, item->seen, item->row, &why);
        if (!rc) hf__my_put_told(sql, m->st, item->key, 1);
        if (rc) sql->len = before;
        if (rc)
            fail(item, rc, why);
        else
            m->item[m->n++] = item;
    }
    m->sent = m->n;
    for (; i < all; i++) m->item[m->n++] = m->item[i];
}

/* Takes a reply: the second statement of each replace shows what the first one has done. */
static void see(void *arg, int at, MYSQL_RES *rows)
{
    struct many *m = arg;
    struct hf__my_reply r = {.rows = rows};
    at -= m->round > 0;
    if (at > 0 && at % 2 && (size_t)at / 2 < m->sent) {
        hf_replace *item = m->item[at / 2];
        int whole = hf__my_fetch(&r) && !hf__my_number(&r, HF_MY_IS_READ_ONLY);
        int64_t done = whole ? hf__my_number(&r, HF_MY_DONE) : -1;
        if (whole) item->clock_us = hf__my_number(&r, HF_MY_CLOCK);
        if (done == 1)
            item->result = 0;
        else if (!done)
            item->result = hf__my_refused(m->st, &r, item->cur, item->key->text, item->err);
        else
            fail(item, HF_UNKNOWN, "the answer doesn't fit the request");
    }
    mysql_free_result(rows);
}

/* Sets the result of item i, which got no answer for the reason in *f. */
static void unanswered(struct many *m, size_t i, int rc, const struct hf__my_failure *f)
{
    hf_replace *item = m->item[i];
    if (f->at % 2 || f->gone) {
        fail(item, HF_UNKNOWN, f->why);
    } else if ((f->number == ER_LOCK_WAIT_TIMEOUT || rc == HF_CONFLICT) && m->round < ROUNDS) {
        m->again[m->n_again++] = item;          /* nothing was done */
    } else if (f->number == ER_NO_SUCH_TABLE) { /* so there is no row */
        hf_row_clear(item->cur);
        item->result = HF_CONFLICT;
    } else {
        fail(item, rc == HF_CONFLICT ? HF_UNAVAILABLE : rc, f->why);
    }
}

/* Sends one request. At least one replace gets its result; the others stay in *m. */
static void round_trip(struct many *m)
{
    const struct hf__my_each each = {see, m};
    struct hf__sql sql = {NULL, 0, 0, 0};
    struct hf__my_failure f;
    put_all(m, &sql);
    size_t answered = m->sent;
    if (m->sent) {
        int rc = hf__my_ask_each(&m->st->how, m->link, &sql, HF_UNKNOWN, &each, &f);
        f.at -= m->round > 0 && f.at > 0;
        if (rc) answered = (size_t)f.at / 2;
        if (rc == HF_NOMEM)
            while (answered < m->sent) fail(m->item[answered++], rc, f.why);
        else if (rc && answered < m->sent)
            unanswered(m, answered++, rc, &f);
        if (rc && !m->link->my)
            while (answered < m->sent) fail(m->item[answered++], HF_UNKNOWN, f.why);
    }
    hf__sql_free(&sql);
    memmove(m->item, m->item + answered, (m->n - answered) * sizeof *m->item);
    m->n -= answered;
}

int hf__my_replace_many(hf_store *st, hf_replace *item, size_t n, int64_t until_us)
{
    struct many m = {.st = st, .alone = n == 1};
    int64_t patience_us = until_us - hf__local_us();
    hf_error err = {0, 0, ""};
    int rc = 0;
    m.link = hf__links_get_batch(&st->links, n, until_us, &rc, &err);
    /* Connecting anew took a part of the time: the deadline is later by that. */
    if (m.link) m.link->until_us = hf__local_us() + patience_us;
    for (size_t at = 0; at < n; at += (size_t)AT_ONCE) {
        for (size_t i = at; i < n && i < at + AT_ONCE; i++) m.item[m.n++] = &item[i];
        for (m.round = 0; m.n && m.link && m.link->my; m.round++) {
            while (m.n && m.link->my) round_trip(&m);
            while (m.n_again) m.item[m.n++] = m.again[--m.n_again];
        }
        while (m.n)
            fail(m.item[--m.n], m.link ? HF_UNAVAILABLE : rc,
                 m.link ? "the connection is gone" : err.text);
    }
    if (m.link) m.link->until_us = 0;
    hf__my_put_link(st, m.link);
    return rc;
}
