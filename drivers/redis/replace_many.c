/*
 * replace_many.c - redis: sends many replaces at once over one connection. Each is a script call of
 * its own, with its own reply. See store.h, and replace_many in holdfast_driver.h.
 *
 * A small batch may take an idle connection of the single requests; any other batch takes one that
 * is kept for batches (kit/links.h). If a replace isn't answered in time, the connection is closed.
 * The replace may still be carried out.
 */
#include "os.h"
#include "store.h"

#include <string.h>

/* The replaces that are sent in one batch. */
struct many {
    hf_store *st;
    struct hf__rd_link *link;
    hf_replace *item[HF_BATCH];
    redisReply *reply[HF_BATCH + 1]; /* NULL: no reply came; the last one is the reply to WAIT */
    int n;
    int64_t until_us;
};

static int fail(hf_replace *item, int code, const char *why)
{
    return item->result =
               hf_fail(item->err, code, 0, HF_RD ": replace '%s': %s", item->key->text, why);
}

/* ---- one batch ---- */

/* Sends the replaces that have no result yet (HF_UNKNOWN), and reads the replies that come in
   time. */
static void talk(struct many *m, struct hf__rd_batch *batch)
{
    int wanted = batch->n, broken, got = 0;
    m->link->until_us = m->until_us;
    /* a failure may come after a part was sent, so the results stay HF_UNKNOWN */
    int rc = hf__rd_send(&m->st->how, m->link, batch);
    m->link->until_us = 0;
    while (!rc && got < wanted && (m->reply[got] = hf__rd_next(m->link, m->until_us, &broken)))
        got++;
    m->link->used_us = hf__local_us();
    if (got < wanted && m->link->fd >= 0) hf__rd_disconnect(m->link);
}

static void put_calls(struct many *m, int whole, struct hf__rd_batch *batch)
{
    char replicas[12], ms[24];
    int n = 0;
    for (int i = 0; i < m->n; i++) {
        hf_replace *item = m->item[i];
        struct hf__rd_replace s;
        int rc = hf__rd_replace_make(&s, m->st, item->key, item->seen, item->row, item->err);
        if (rc) {
            item->result = rc;
        } else {
            hf__rd_put_call(m->st, m->link, HF_RD_SWAP, whole, &s.args, batch);
            m->item[n++] = item;
        }
        hf__rd_replace_clear(&s);
    }
    m->n = n;
    if (!m->st->how.wait || !n) return;
    int64_t left_ms = (m->until_us - hf__local_us()) / 1000 * 3 / 4;
    snprintf(replicas, sizeof replicas, "%u", m->st->how.wait);
    snprintf(ms, sizeof ms, "%lld", (long long)(left_ms > 0 ? left_ms : 1));
    hf__rd_say(batch, "WAIT", replicas, ms, NULL);
}

/* Sets the results of the replaces that were answered. Unless this is the `last` attempt, replaces
   for which the server didn't know the script stay in *m, to be sent again: nothing was done for
   them. */
static void judge(struct many *m, int last)
{
    const redisReply *wait = m->st->how.wait ? m->reply[m->n] : NULL;
    int forgotten = 0, waited = !m->st->how.wait || wait;
    for (int i = 0; i < m->n; i++) {
        hf_replace *item = m->item[i];
        redisReply *r = m->reply[i];
        if (r && !last && hf__rd_is_error(r, "NOSCRIPT")) {
            m->item[forgotten++] = item;
            continue;
        }
        if (!r || !waited) {
            fail(item, HF_UNKNOWN, "no answer in time");
            continue;
        }
        item->result = hf__rd_verdict(m->st, m->link, HF_RD_SWAP, r, wait, HF_UNKNOWN, "replace",
                                      item->key->text, item->err);
        if (!item->result)
            item->result = hf__rd_replace_end(item->key, r, item->cur, &item->clock_us, item->err);
    }
    m->n = forgotten;
}

static void replace(struct many *m)
{
    for (int whole = 0; whole < 2 && m->n; whole++) {
        struct hf__rd_batch batch = {NULL, 0, 0, 0, 0};
        int asked;
        memset(m->reply, 0, sizeof m->reply);
        put_calls(m, whole, &batch);
        asked = batch.n;
        if (batch.failed) {
            for (int i = 0; i < m->n; i++) fail(m->item[i], HF_NOMEM, "out of memory");
            hf__rd_batch_free(&batch);
            return;
        }
        if (!asked) return;
        talk(m, &batch);
        judge(m, whole);
        for (int i = 0; i < asked; i++)
            if (m->reply[i]) freeReplyObject(m->reply[i]);
        if (m->link->fd < 0 && m->n) { /* some have to be sent again, but the connection is gone */
            for (int i = 0; i < m->n; i++) fail(m->item[i], HF_UNAVAILABLE, m->link->why);
            return;
        }
    }
}

size_t hf__rd_replace_some(hf_store *st, void *link, hf_replace *item, size_t n, int64_t until_us)
{
    struct many m = {.st = st, .link = link, .n = (int)n, .until_us = until_us};
    for (size_t i = 0; i < n; i++) m.item[i] = &item[i];
    replace(&m);
    return n;
}
