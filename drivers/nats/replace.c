/*
 * replace.c - nats: writing rows. See store.h.
 *
 * The core compares the rev of a row, but the server compares the number of the key's last message.
 * So a write takes two round trips. The first reads the row, its message's number and the clock. If
 * the row's rev is the one that was seen, the second publishes the new row on the condition that
 * the last message still has that number. Numbers of earlier reads are not kept: after a backup was
 * restored, or a server has lost its last writes, another row may have the same number.
 */
#include "store.h"

#include "json.h"
#include "os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How many replaces are under way at once; how many rounds a replace takes at most, if other writes
   that are under way make the server refuse it; the pause before a round, in milliseconds. */
enum { AT_ONCE = 64, ROUNDS = 6, PAUSE_MS = 4 };
/* How many bytes a message may have besides the row, as reckoned for a bucket with a limit. */
enum { OVERHEAD = 300 };

struct change {
    hf_replace *item;
    int pending;  /* 1: it has no result yet */
    uint64_t seq; /* the number of the key's last message */
    char expect[24];
    char *text; /* the text of the row, as it is published */
    char subject[HF_NATS_SUBJECT], query[HF_NATS_QUERY], addresses[HF_ADDRESSES_CAP];
};

struct writing {
    hf_store *st;
    struct hf__nats_link *link;
    int64_t until_us, clock_us;
    int64_t room; /* how many bytes are left for new keys in a bucket with a limit */
    struct change *change;
    struct hf__nats_request *r; /* n + 1 requests: the last one is for the clock */
    size_t n;
};

/* ---- one replace ---- */

static void end(struct change *c, int result, const char *why)
{
    c->pending = 0;
    c->item->result = result;
    if (result < 0)
        hf_fail(c->item->err, result, 0, "nats: replace '%s': %s", c->item->key->text, why);
}

static void end_all(struct writing *w, int result, const char *why)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->change[i].pending) end(&w->change[i], result, why);
}

static int encode(const hf_store *st, struct change *c)
{
    const hf_row *row = c->item->row;
    const struct hf__row_reader where = {"nats", "replace", c->item->key->text, st->empty};
    json_t *document = NULL;
    hf__nats_subject(st, c->item->key->text, c->item->key->len, c->subject);
    if (!row) return 0;
    int rc = hf__row_to_document(row, &where, &document, c->item->err);
    if (rc) return rc;
    hf__put_addresses(c->addresses, row);
    c->text = hf__json_text(document);
    json_decref(document);
    return c->text ? 0 : HF_NOMEM;
}

/* Returns how many bytes the bucket still has room for. The driver checks that before a write,
   because the server's refusal wouldn't say that the bucket is full. */
static int64_t room_of(const json_t *info)
{
    const json_t *config = json_object_get(info, "config");
    json_int_t most = json_integer_value(json_object_get(config, "max_bytes"));
    const json_t *used = json_object_get(json_object_get(info, "state"), "bytes");
    return most > 0 ? most - json_integer_value(used) : INT64_MAX;
}

/* Compares the rev of the row that was read with the one that the replace has seen. If they differ,
   its result is HF_CONFLICT. */
static void compare(const struct writing *w, struct change *c, const natsMsg *reply)
{
    hf_replace *item = c->item;
    hf_row row;
    int said;
    hf_row_init(&row);
    int rc = hf__nats_read_row(w->st, reply, "replace", item->key->text, &row, &c->seq, &said,
                               item->err);
    item->clock_us = w->clock_us;
    if (!rc && row.rev != item->seen) rc = HF_CONFLICT;
    if (rc == HF_CONFLICT && item->cur && hf_row_copy(item->cur, &row))
        end(c, HF_NOMEM, "out of memory");
    else if (!rc && !c->seq && c->text && (int64_t)strlen(c->text) + OVERHEAD > w->room)
        end(c, HF_FULL, "the bucket is full (max_bytes)");
    else if (rc || (!item->row && !item->seen)) /* there was no row to delete */
        c->pending = 0, item->result = rc;
    hf_row_clear(&row);
}

/* Sets the result of a write. */
static void conclude(struct change *c, const struct hf__nats_request *r, int rc, const char *why)
{
    const natsMsg *reply = r->reply;
    char said_why[HF_NATS_WHY];
    json_t *ack = NULL;
    int said = reply ? hf__nats_reply(reply, &ack, said_why) : 0;
    if (r->unsent == HF_FULL)
        end(c, HF_FULL, "the row is longer than a message that the server takes (max_payload)");
    else if (r->unsent)
        end(c, r->unsent, "out of memory");
    else if (!reply)
        end(c, rc == HF_DENIED ? HF_DENIED : HF_UNKNOWN, why);
    else if (!said && json_integer_value(json_object_get(ack, "seq")) > 0)
        end(c, 0, "");
    else if (said == HF_NATS_NOBODY || said == 10163 || said == 10167 || said == 10109 ||
             hf__nats_code(said) == HF_FULL)
        end(c, hf__nats_code(said), said_why); /* the server has refused it */
    else if (said != HF_NATS_BEHIND && said != HF_NATS_BEHIND_TOO)
        end(c, HF_UNKNOWN, said ? said_why : "not a reply to this request");
    json_decref(ack);
}

/* ---- a round: read, compare, write ---- */

/* Reads the rows of all replaces that are pending, and the clock. Returns 1 if there is a
   bucket. */
static int read_all(struct writing *w)
{
    char why[HF_NATS_WHY] = "";
    json_t *info = NULL;
    size_t n = 0;
    for (size_t i = 0; i < w->n; i++)
        if (w->change[i].pending)
            hf__nats_ask_row(w->st, w->change[i].item->key, w->change[i].query, &w->r[n++]);
    w->r[n] = (struct hf__nats_request){.subject = w->st->info, .data = ""};
    int rc = hf__nats_ask(w->link, w->r, n + 1, w->until_us, why), said = 0;
    if (!rc && (said = hf__nats_reply(w->r[n].reply, &info, why))) rc = hf__nats_code(said);
    w->clock_us = rc ? 0 : hf__nats_clock(info);
    w->room = room_of(info);
    json_decref(info);
    if (!rc && !w->clock_us) {
        rc = HF_UNAVAILABLE;
        snprintf(why, sizeof why, "the server tells no time");
    }
    if (rc && said != HF_NATS_NO_STREAM) end_all(w, rc, why);
    n = 0;
    for (size_t i = 0; !rc && i < w->n; i++)
        if (w->change[i].pending) compare(w, &w->change[i], w->r[n++].reply);
    hf__nats_done(w->r, w->n + 1);
    return said != HF_NATS_NO_STREAM;
}

static void put_write(struct change *c, struct hf__nats_request *r)
{
    snprintf(c->expect, sizeof c->expect, "%llu", (unsigned long long)c->seq);
    *r = (struct hf__nats_request){.subject = c->subject, .data = c->text ? c->text : ""};
    r->len = strlen(r->data);
    r->header[0].name = "Nats-Expected-Last-Subject-Sequence";
    r->header[0].value = c->expect;
    r->header[1].name = c->text ? HF_NATS_ADDRESSES : "KV-Operation";
    r->header[1].value = !c->text ? "DEL" : c->addresses[0] ? c->addresses : "-";
}

static void write_all(struct writing *w)
{
    char why[HF_NATS_WHY] = "";
    size_t n = 0;
    for (size_t i = 0; i < w->n; i++)
        if (w->change[i].pending) put_write(&w->change[i], &w->r[n++]);
    if (!n) return;
    int rc = hf__nats_ask(w->link, w->r, n, w->until_us, why);
    if (n > 1) rc = 0; /* the error doesn't say which of the requests was denied */
    n = 0;
    for (size_t i = 0; i < w->n; i++)
        if (w->change[i].pending) conclude(&w->change[i], &w->r[n++], rc, why);
    hf__nats_done(w->r, w->n + 1);
}

static int any_pending(const struct writing *w)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->change[i].pending) return 1;
    return 0;
}

static void write_rounds(struct writing *w)
{
    const struct timespec pause = {0, PAUSE_MS * 1000000L};
    char why[HF_NATS_WHY] = "";
    for (int round = 0; round < ROUNDS && any_pending(w); round++) {
        if (!w->link->nc || hf__local_us() >= w->until_us) break;
        if (round) nanosleep(&pause, NULL);
        if (read_all(w)) {
            write_all(w);
        } else {
            int rc = hf__nats_make(w->st, w->link, w->until_us, why);
            if (rc) end_all(w, rc, why);
        }
    }
    end_all(w, HF_UNAVAILABLE, "other writes were under way");
}

/* ---- n replaces ---- */

static void write_some(hf_store *st, struct hf__nats_link *link, hf_replace *item, size_t n,
                       int64_t until_us)
{
    struct writing w = {.st = st, .link = link, .until_us = until_us, .n = n};
    w.change = calloc(n, sizeof *w.change);
    w.r = calloc(n + 1, sizeof *w.r);
    for (size_t i = 0; i < n; i++) {
        struct change none = {.item = &item[i]}, *c = w.change ? &w.change[i] : &none;
        c->item = &item[i];
        c->pending = 1;
        int rc = w.change && w.r ? encode(st, c) : HF_NOMEM;
        if (rc == HF_NOMEM) end(c, rc, "out of memory");
        if (rc) c->pending = 0, item[i].result = rc;
    }
    if (w.change && w.r) write_rounds(&w);
    for (size_t i = 0; w.change && i < n; i++) free(w.change[i].text);
    free(w.change);
    free(w.r);
}

int hf__nats_replace(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                     hf_row *cur, int64_t *ret_clock_us, hf_error *err)
{
    hf_replace item = {
        .key = key, .seen = seen, .row = row, .cur = cur, .result = HF_UNKNOWN, .err = err};
    int64_t until_us = hf__local_us() + st->how.io_timeout_ms * 1000;
    int rc;
    struct hf__nats_link *link = hf__links_get(&st->links, &rc, err);
    if (!rc) {
        write_some(st, link, &item, 1, until_us);
        rc = item.result;
        *ret_clock_us = item.clock_us;
    }
    hf__links_put(&st->links, link);
    return rc;
}

size_t hf__nats_replace_some(hf_store *st, void *link, hf_replace *item, size_t n, int64_t until_us)
{
    size_t some = n < AT_ONCE ? n : AT_ONCE;
    write_some(st, link, item, some, until_us);
    return some;
}
