/*
 * replace_many.c - mongodb: many replaces by one update command. See store.h, and replace_many in
 * holdfast_driver.h.
 *
 * The command has a statement for each row, with the condition that the row still is the one that
 * was seen. The statements are independent (`ordered: false`): if one fails, the reply names it,
 * and the others are carried out. But for a statement whose condition wasn't met the reply doesn't
 * name it: it says only how many rows were stored, n. If n rows were to be stored, all are.
 * Otherwise the rows are read:
 *
 *   the row is the one that was to be stored       it was stored
 *   it is another row, and n rows of the first     the replace was refused
 *   kind were found
 *   it is another row, and fewer were found        unknown: the row may have been stored, and
 *                                                  replaced by another client before it was read
 *
 * The read follows a write that the majority has confirmed, on the same connection, so it shows
 * that write or a later one. The store's clock is asked for at the end, because a row's time may be
 * that of an earlier attempt to write it. For the same reason the core doesn't send writes again
 * together with new ones: a row from an earlier attempt would be counted as stored by this command,
 * in place of one that another client has replaced since.
 *
 * If a command isn't answered in time, its connection is closed, and all its replaces are UNKNOWN.
 */
#include "store.h"

#include "os.h"

#include <string.h>

/* BYTES_MOST: the most bytes of statements in one command; MongoDB allows 16 MB. */
enum { BYTES_MOST = 1 << 20, CLOCK_US = 100000 };

/* The replaces of one command. */
struct part {
    hf_store *st;
    struct hf__mg_link *link;
    int64_t until_us;
    size_t n, stored; /* how many replaces the reply says were stored */
    hf_replace *item[HF_BATCH];
    uint8_t failed[HF_BATCH]; /* 1: its statement failed by itself, so it has its result already */
    uint8_t found[HF_BATCH];  /* 1: the row that was read is the one that was to be stored */
};

static int fail(hf_replace *item, int code, const char *why)
{
    return item->result =
               hf_fail(item->err, code, 0, "mongodb: replace '%s': %s", item->key->text, why);
}

static void fail_all(struct part *p, int code, const char *why)
{
    for (size_t i = 0; i < p->n; i++)
        if (!p->failed[i]) fail(p->item[i], code, why);
}

/* Sends one command of this part, and destroys it in every case. */
static int ask(struct part *p, bson_t *command, int ambiguous, bson_t *ret, hf_error *err)
{
    struct hf__mg_about about = {"replace", p->item[0]->key->text, ambiguous};
    int code, rc;
    p->link->first_until_us = p->until_us;
    rc = hf__mg_ask(&p->st->how, p->link, command, &about, ret, &code, err);
    bson_destroy(command);
    return rc;
}

/* ---- the write ---- */

/* Appends one statement. Returns 1; 0: it can't be made, and the replace has its result. */
static int put(hf_replace *item, bson_t *updates, size_t number)
{
    const char *why = "out of memory", *at;
    char room[16];
    bson_t update = BSON_INITIALIZER, one;
    int rc = hf__mg_encode(item->row, &update, &why);
    if (rc) {
        fail(item, rc, why);
    } else {
        bson_uint32_to_string((uint32_t)number, &at, room, sizeof room);
        bson_append_document_begin(updates, at, -1, &one);
        BCON_APPEND(&one, "q", "{", "_id", BCON_UTF8(item->key->text), "rev",
                    BCON_INT64((int64_t)item->seen), "}", "u", BCON_DOCUMENT(&update), "upsert",
                    BCON_BOOL(item->seen == 0));
        bson_append_document_end(updates, &one);
    }
    bson_destroy(&update);
    return !rc;
}

/* Puts as many of these replaces as fit into one command. Returns their number. */
static size_t put_all(struct part *p, hf_replace *item, size_t n, bson_t *command)
{
    size_t taken = 0;
    bson_t updates;
    p->n = p->stored = 0;
    memset(p->failed, 0, sizeof p->failed);
    memset(p->found, 0, sizeof p->found);
    bson_append_array_begin(command, "updates", -1, &updates);
    for (; taken < n && updates.len < BYTES_MOST; taken++)
        if (put(&item[taken], &updates, p->n)) p->item[p->n++] = &item[taken];
    bson_append_array_end(command, &updates);
    return taken;
}

/* Gives the replaces whose statements failed their results. E11000 is no failure here: the replace
   was refused, as if its condition wasn't met. */
static void note_failed(struct part *p, const bson_t *reply)
{
    bson_iter_t it, all, one;
    if (!bson_iter_init_find(&it, reply, "writeErrors") || !BSON_ITER_HOLDS_ARRAY(&it) ||
        !bson_iter_recurse(&it, &all))
        return;
    while (bson_iter_next(&all)) {
        bson_error_t e = {MONGOC_ERROR_SERVER, 0, "the statement failed"};
        int64_t number = -1;
        if (!BSON_ITER_HOLDS_DOCUMENT(&all) || !bson_iter_recurse(&all, &one)) continue;
        while (bson_iter_next(&one)) {
            const char *name = bson_iter_key(&one);
            if (!strcmp(name, "index")) number = bson_iter_as_int64(&one);
            if (!strcmp(name, "code")) e.code = (uint32_t)bson_iter_as_int64(&one);
            if (!strcmp(name, "errmsg") && BSON_ITER_HOLDS_UTF8(&one))
                snprintf(e.message, sizeof e.message, "%s", bson_iter_utf8(&one, NULL));
        }
        e.message[strcspn(e.message, "\n")] = 0;
        if (number < 0 || number >= (int64_t)p->n || e.code == HF_MG_DUPLICATE_KEY) continue;
        p->failed[number] = 1;
        fail(p->item[number], hf__mg_code(&e, HF_UNKNOWN), e.message);
    }
}

/* Sends the replaces of this part. Returns 0 if there was an answer; else all have their results.
 */
static int write_all(struct part *p, bson_t *command)
{
    hf_error err = {0, 0, ""};
    bson_iter_t it;
    bson_t reply;
    int64_t left_ms = (p->until_us - hf__local_us()) / 1000;
    BCON_APPEND(command, "ordered", BCON_BOOL(false), "writeConcern", "{", "w",
                BCON_UTF8("majority"), "j", BCON_BOOL(true), "wtimeout",
                BCON_INT64(left_ms > 0 ? left_ms : 1), "}");
    int rc = ask(p, command, HF_UNKNOWN, &reply, &err);
    if (rc) {
        /* The error's text names the first key, so that part is left out. */
        const char *why = strstr(err.text, "': ");
        fail_all(p, rc, why ? why + 3 : err.text);
        return rc;
    }
    if (bson_iter_init_find(&it, &reply, "n")) p->stored = (size_t)bson_iter_as_int64(&it);
    note_failed(p, &reply);
    bson_destroy(&reply);
    return 0;
}

/* ---- reading, if not all rows were stored ---- */

static bson_t *find_all(const struct part *p)
{
    const char *at;
    char room[16];
    bson_t filter, id, in;
    bson_t *command = BCON_NEW("find", BCON_UTF8(p->st->how.collection));
    bson_append_document_begin(command, "filter", -1, &filter);
    bson_append_document_begin(&filter, "_id", -1, &id);
    bson_append_array_begin(&id, "$in", -1, &in);
    for (size_t i = 0; i < p->n; i++) {
        bson_uint32_to_string((uint32_t)i, &at, room, sizeof room);
        bson_append_utf8(&in, at, -1, p->item[i]->key->text, (int)p->item[i]->key->len);
    }
    bson_append_array_end(&id, &in);
    bson_append_document_end(&filter, &id);
    bson_append_document_end(command, &filter);
    BCON_APPEND(command, "batchSize", BCON_INT32((int)p->n));
    hf__mg_put_read_concern(p->st, p->link, 0, command);
    return command;
}

/* Returns the index of the replace that this document belongs to; p->n: there is none. */
static size_t item_of(const struct part *p, const bson_t *doc)
{
    uint32_t len = 0;
    size_t i = 0;
    bson_iter_t it;
    const char *id = bson_iter_init_find(&it, doc, "_id") && BSON_ITER_HOLDS_UTF8(&it)
                         ? bson_iter_utf8(&it, &len)
                         : "";
    while (i < p->n && (p->item[i]->key->len != len || memcmp(p->item[i]->key->text, id, len))) i++;
    return i;
}

static void see(struct part *p, const bson_t *doc)
{
    size_t i = item_of(p, doc);
    if (i == p->n || p->failed[i]) return;
    hf_replace *r = p->item[i];
    const struct hf__row_reader by = {"mongodb", "replace", r->key->text, p->st->how.how_to_empty};
    int rc = hf__mg_decode(doc, &by, r->cur, r->err);
    p->failed[i] = rc != 0;
    if (rc) r->result = rc;
    p->found[i] = !rc && hf_row_equal(r->cur, r->row);
}

/* Reads all rows of this part. Returns 0 if the server has answered. */
static int read_all(struct part *p)
{
    hf_error err = {0, 0, ""};
    bson_iter_t it, id;
    bson_t reply, doc;
    for (size_t i = 0; i < p->n; i++)
        if (!p->failed[i]) hf_row_clear(p->item[i]->cur);
    int rc = ask(p, find_all(p), HF_UNKNOWN, &reply, &err);
    if (rc) return rc;
    int whole = bson_iter_init(&it, &reply) && bson_iter_find_descendant(&it, "cursor.id", &id) &&
                !bson_iter_as_int64(&id) && hf__mg_batch(&reply, &it);
    while (whole && bson_iter_next(&it))
        if (hf__mg_document(&it, &doc)) see(p, &doc);
    bson_destroy(&reply);
    return whole ? 0 : HF_UNKNOWN;
}

/* Finds out which replaces were stored, if not all of them were. */
static void sort_out(struct part *p)
{
    size_t found = 0;
    int told = !read_all(p);
    for (size_t i = 0; i < p->n; i++) found += p->found[i];
    for (size_t i = 0; i < p->n; i++) {
        if (p->failed[i]) continue;
        if (told && p->found[i])
            p->item[i]->result = 0;
        else if (told && found >= p->stored)
            p->item[i]->result = HF_CONFLICT;
        else
            fail(p->item[i], HF_UNKNOWN, "the reply doesn't say which of several were stored");
    }
}

/* ---- all of it ---- */

/* Reads the store's clock for the results. They are known already, so this waits for at most twice
   as long as the write took, plus CLOCK_US. */
static void note_clock(struct part *p, int64_t wrote_us)
{
    struct hf__mg_about about = {"replace", p->item[0]->key->text, HF_UNAVAILABLE};
    int64_t clock_us = 0, now = hf__local_us();
    int64_t until_us = now + 2 * wrote_us + CLOCK_US;
    p->link->first_until_us = until_us < p->until_us ? until_us : p->until_us;
    if (!p->link->client || hf__mg_ask_clock(p->st, p->link, &about, &clock_us, NULL)) return;
    for (size_t i = 0; i < p->n; i++)
        if (p->item[i]->result >= 0) p->item[i]->clock_us = clock_us;
}

static size_t replace(struct part *p, hf_replace *item, size_t n)
{
    bson_t *command = BCON_NEW("update", BCON_UTF8(p->st->how.collection));
    size_t taken = put_all(p, item, n, command), sound = 0;
    if (!p->n) {
        bson_destroy(command);
        return taken;
    }
    int64_t sent_us = hf__local_us();
    if (write_all(p, command)) return taken;
    int64_t wrote_us = hf__local_us() - sent_us;
    for (size_t i = 0; i < p->n; i++) sound += !p->failed[i];
    if (p->stored == p->n)
        for (size_t i = 0; i < p->n; i++) p->item[i]->result = 0;
    else if (sound)
        sort_out(p);
    note_clock(p, wrote_us);
    return taken;
}

size_t hf__mg_replace_some(hf_store *st, void *link, hf_replace *item, size_t n, int64_t until_us)
{
    struct part p = {.st = st, .link = link, .until_us = until_us};
    if (hf__local_us() < until_us) return replace(&p, item, n);
    for (size_t i = 0; i < n; i++)
        fail(&item[i], HF_UNAVAILABLE, "not sent: there was no time left");
    return n;
}
