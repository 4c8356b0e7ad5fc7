/*
 * mongodb.c - mongodb://USER@HOST/DB, rows as documents of a MongoDB collection. See link.h,
 * doc/stores/mongodb.md.
 *
 * Contents: connections; reading; writing; opening. Many rows: list.c; notifications: notify.c.
 *
 * A write is one findAndModify of the document with this _id and this rev. To create a row, it is
 * an upsert with rev 0, which no document has: it inserts the document, or fails with E11000 if
 * there is one. $currentDate stores the time of the write, and the reply has it: that is the
 * store's clock. A read is one aggregation, whose reply has the time ($$NOW) even if there is no
 * such document. A server that doesn't know $facet or $$NOW needs two requests for a read.
 */
#include "store.h"

#include <stdlib.h>

/* ---- connections ---- */

/* Returns 1 if the link has a client. Whether the connection is broken shows only when it is
   used. */
static int usable(void *link) { return ((struct hf__mg_link *)link)->client != NULL; }

static int make(hf_store *st, void *link, int64_t until_us, hf_error *err)
{
    struct hf__mg_how how = st->how; /* a shallow copy: the store owns what its fields point to */
    how.io_timeout_ms = (until_us - hf__local_us()) / 1000;
    return hf__mg_connect(&how, link, err);
}

static int works(const void *link) { return ((const struct hf__mg_link *)link)->client != NULL; }

static const struct hf__link_kind link_kind = {
    "mongodb", sizeof(struct hf__mg_link), 0, usable, make, works, hf__mg_replace_some};

int hf__mg_request(hf_store *st, struct hf__mg_link *link, bson_t *command,
                   const struct hf__mg_about *about, bson_t *ret, int *ret_code, hf_error *err)
{
    /* The request before this one may have broken the link. */
    int rc = link->client ? 0 : hf__mg_connect(&st->how, link, err);
    *ret_code = 0;
    if (!rc) rc = hf__mg_ask(&st->how, link, command, about, ret, ret_code, err);
    bson_destroy(command);
    return rc;
}

/* ---- reading ---- */

static int64_t date_us(const bson_iter_t *it)
{
    return BSON_ITER_HOLDS_DATE_TIME(it) ? bson_iter_date_time(it) * 1000 : 0;
}

int hf__mg_ask_clock(hf_store *st, struct hf__mg_link *link, const struct hf__mg_about *about,
                     int64_t *ret_clock_us, hf_error *err)
{
    bson_t reply;
    bson_iter_t it;
    int code, rc = hf__mg_request(st, link, BCON_NEW("isMaster", BCON_INT32(1)), about, &reply,
                                  &code, err);
    if (rc) return rc;
    *ret_clock_us = bson_iter_init_find(&it, &reply, "localTime") ? date_us(&it) : 0;
    bson_destroy(&reply);
    if (*ret_clock_us) return 0;
    return hf_fail(err, HF_UNSUPPORTED, 0, "mongodb: %s '%s': the server tells no time",
                   about->what, about->key);
}

void hf__mg_put_read_concern(const hf_store *st, const struct hf__mg_link *link, int one,
                             bson_t *command)
{
    const char *level = st->how.read_level;
    if (link->replicated) {
        if (!*level || !one) level = one ? "linearizable" : "majority";
        BCON_APPEND(command, "readConcern", "{", "level", BCON_UTF8(level), "}");
    }
    BCON_APPEND(command, "maxTimeMS", BCON_INT64(st->how.io_timeout_ms));
}

int hf__mg_batch(const bson_t *reply, bson_iter_t *ret)
{
    bson_iter_t it;
    return bson_iter_init(&it, reply) && bson_iter_find_descendant(&it, "cursor.firstBatch", ret) &&
           BSON_ITER_HOLDS_ARRAY(ret) && bson_iter_recurse(ret, ret);
}

int hf__mg_document(const bson_iter_t *it, bson_t *ret)
{
    const uint8_t *data;
    uint32_t len;
    if (!BSON_ITER_HOLDS_DOCUMENT(it)) return 0;
    bson_iter_document(it, &len, &data);
    return bson_init_static(ret, data, len);
}

int hf__mg_garbled(const struct hf__mg_about *about, hf_error *err)
{
    return hf_fail(err, about->ambiguous, 0, "mongodb: %s '%s': not a reply to this request",
                   about->what, about->key);
}

int hf__mg_row_of(const hf_store *st, const bson_t *doc, hf_row *row,
                  const struct hf__mg_about *about, hf_error *err)
{
    const struct hf__row_reader by = {"mongodb", about->what, about->key, st->how.how_to_empty};
    return hf__mg_decode(doc, &by, row, err);
}

static bson_t *find_one(const hf_store *st, const hf_rowkey *key)
{
    return BCON_NEW("find", BCON_UTF8(st->how.collection), "filter", "{", "_id",
                    BCON_UTF8(key->text), "}", "limit", BCON_INT32(1), "singleBatch",
                    BCON_BOOL(true));
}

/* Makes the aggregation that reads a row and the time. $facet returns one document even if there is
   no row. */
static bson_t *find_with_time(const hf_store *st, const hf_rowkey *key)
{
    return BCON_NEW("aggregate", BCON_UTF8(st->how.collection), "pipeline", "[", "{", "$match", "{",
                    "_id", BCON_UTF8(key->text), "}", "}", "{", "$facet", "{", "row", "[", "{",
                    "$match", "{", "}", "}", "]", "}", "}", "{", "$project", "{", "row",
                    BCON_INT32(1), "now", BCON_UTF8("$$NOW"), "}", "}", "]", "cursor", "{", "}");
}

/* Reads the row and the time from the reply to find_with_time. */
static int read_facet(const hf_store *st, bson_iter_t *at, hf_row *row, int64_t *ret_clock_us,
                      const struct hf__mg_about *about, hf_error *err)
{
    bson_iter_t it, rows;
    bson_t all, doc;
    if (!hf__mg_document(at, &all)) return hf__mg_garbled(about, err);
    if (bson_iter_init_find(&it, &all, "now")) *ret_clock_us = date_us(&it);
    if (!bson_iter_init_find(&it, &all, "row") || !BSON_ITER_HOLDS_ARRAY(&it) ||
        !bson_iter_recurse(&it, &rows))
        return hf__mg_garbled(about, err);
    if (!bson_iter_next(&rows)) return 0;
    return hf__mg_document(&rows, &doc) ? hf__mg_row_of(st, &doc, row, about, err)
                                        : hf__mg_garbled(about, err);
}

static int read_row(hf_store *st, struct hf__mg_link *link, const hf_rowkey *key, hf_row *row,
                    int64_t *ret_clock_us, int *ret_code, const struct hf__mg_about *about,
                    hf_error *err)
{
    bson_t reply, doc;
    bson_iter_t it;
    int64_t clock_us = 0;
    bson_t *command = st->plain ? find_one(st, key) : find_with_time(st, key);
    hf_row_clear(row);
    hf__mg_put_read_concern(st, link, 1, command);
    int rc = hf__mg_request(st, link, command, about, &reply, ret_code, err);
    if (rc) return rc;
    if (!hf__mg_batch(&reply, &it))
        rc = hf__mg_garbled(about, err);
    else if (!bson_iter_next(&it))
        ; /* the reply has no document, so no time either: there is no collection */
    else if (!st->plain)
        rc = read_facet(st, &it, row, &clock_us, about, err);
    else
        rc = hf__mg_document(&it, &doc) ? hf__mg_row_of(st, &doc, row, about, err)
                                        : hf__mg_garbled(about, err);
    bson_destroy(&reply);
    if (!rc && !clock_us) rc = hf__mg_ask_clock(st, link, about, &clock_us, err);
    if (!rc) *ret_clock_us = clock_us;
    return rc;
}

static int mg_get(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
                  hf_error *err)
{
    struct hf__mg_about about = {"get", key->text, HF_UNAVAILABLE};
    int code, rc;
    struct hf__mg_link *link = hf__links_get(&st->links, &rc, err);
    if (rc)
        hf_row_clear(row);
    else
        rc = read_row(st, link, key, row, ret_clock_us, &code, &about, err);
    hf__links_put(&st->links, link);
    return rc;
}

/* ---- writing ---- */

static bson_t *write_command(const hf_store *st, const hf_rowkey *key, uint64_t seen,
                             const bson_t *update)
{
    bson_t *c = BCON_NEW("findAndModify", BCON_UTF8(st->how.collection), "query", "{", "_id",
                         BCON_UTF8(key->text), "rev", BCON_INT64((int64_t)seen), "}");
    if (update)
        BCON_APPEND(c, "update", BCON_DOCUMENT(update), "new", BCON_BOOL(true), "upsert",
                    BCON_BOOL(seen == 0));
    else
        BCON_APPEND(c, "remove", BCON_BOOL(true));
    if (!st->plain) BCON_APPEND(c, "fields", "{", "written", BCON_INT32(1), "}");
    BCON_APPEND(c, "writeConcern", "{", "w", BCON_UTF8("majority"), "j", BCON_BOOL(true),
                "wtimeout", BCON_INT64(st->how.io_timeout_ms), "}");
    return c;
}

/* Returns 1 if the reply says that the document was written, and when; 0: it wasn't. */
static int read_written(const bson_t *reply, int64_t *ret_clock_us)
{
    bson_iter_t it, value;
    if (!bson_iter_init_find(&it, reply, "value") || !BSON_ITER_HOLDS_DOCUMENT(&it) ||
        !bson_iter_recurse(&it, &value))
        return 0;
    if (bson_iter_find(&value, "written")) *ret_clock_us = date_us(&value);
    return 1;
}

static int replace_by(hf_store *st, struct hf__mg_link *link, const hf_rowkey *key, uint64_t seen,
                      const hf_row *row, hf_row *cur, int64_t *ret_clock_us, hf_error *err)
{
    struct hf__mg_about about = {"replace", key->text, HF_UNKNOWN};
    const char *why = "out of memory";
    bson_t update = BSON_INITIALIZER, reply;
    int64_t clock_us = 0;
    int code = 0, written = 0, rc = row ? hf__mg_encode(row, &update, &why) : 0;
    if (rc) {
        bson_destroy(&update);
        return hf_fail(err, rc, 0, "mongodb: replace '%s': %s", key->text, why);
    }
    bson_t *command = write_command(st, key, seen, row ? &update : NULL);
    rc = hf__mg_request(st, link, command, &about, &reply, &code, err);
    if (!rc) {
        written = read_written(&reply, &clock_us);
        *ret_clock_us =
            row ? clock_us : 0; /* the reply to a removal has the time of an old write */
        bson_destroy(&reply);
    } else if (code == HF_MG_DUPLICATE_KEY) {
        rc = 0;
    }
    if (!rc && !written) {
        about.ambiguous = HF_UNAVAILABLE; /* the write was refused: what follows only reads */
        if (cur) rc = read_row(st, link, key, cur, ret_clock_us, &code, &about, err);
        if (!rc) rc = HF_CONFLICT;
    }
    bson_destroy(&update);
    return rc;
}

static int mg_replace(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                      hf_row *cur, int64_t *ret_clock_us, hf_error *err)
{
    int rc;
    struct hf__mg_link *link = hf__links_get(&st->links, &rc, err);
    if (!rc) rc = replace_by(st, link, key, seen, row, cur, ret_clock_us, err);
    hf__links_put(&st->links, link);
    return rc;
}

static int mg_replace_many(hf_store *st, hf_replace *item, size_t n, int64_t until_us)
{
    return hf__links_replace_many(&st->links, item, n, until_us);
}

static int mg_enter(hf_store *st, const hf_rowkey *key, uint64_t token, int alone,
                    const char *where, hf_error *err)
{
    struct hf__mg_about about = {"enter", key->text, HF_UNKNOWN};
    if (!alone)
        return hf_fail(err, HF_UNSUPPORTED, 0,
                       "mongodb: enter '%s': the fence in a document admits one holder at a time",
                       key->text);
    int rc;
    struct hf__mg_link *link = hf__links_get(&st->links, &rc, err);
    if (!rc) rc = hf__mg_enter(&st->how, link, where, token, &about, err);
    hf__links_put(&st->links, link);
    return rc;
}

/* ---- opening ---- */

static void mg_close(hf_store *st)
{
    hf__mg_listener_free(st->listener);
    for (int i = 0; i < HF_LINKS; i++) hf__mg_disconnect(&st->link[i]);
    hf__mg_how_free(&st->how);
    hf__links_close(&st->links);
    free(st);
}

/* Checks that the collection can be read; finds out whether the server knows $facet and $$NOW. */
static int prepare_reading(hf_store *st, struct hf__mg_link *link, const struct hf__mg_about *about,
                           hf_error *err)
{
    const hf_rowkey any = {.text = "holdfast", .len = 8};
    int64_t clock_us;
    int rc, code;
    hf_row row;
    hf_row_init(&row);
    rc = read_row(st, link, &any, &row, &clock_us, &code, about, err);
    if (rc == HF_UNSUPPORTED && code) {
        st->plain = 1;
        rc = read_row(st, link, &any, &row, &clock_us, &code, about, err);
    }
    hf_row_clear(&row);
    /* If that row is damaged, the client that uses it reports the damage. */
    return rc == HF_CORRUPT ? 0 : rc;
}

static int mg_open(const hf_url *url, int64_t io_timeout_ms, hf_store **ret, hf_caps *caps,
                   hf_error *err)
{
    struct hf__mg_about about = {"open", url->safe, HF_UNAVAILABLE};
    struct hf__mg_link *link;
    hf_store *st = calloc(1, sizeof *st);
    if (!st) return hf_fail(err, HF_NOMEM, 0, "mongodb: open '%s': out of memory", url->safe);
    hf__links_open(&st->links, &link_kind, st, st->link, io_timeout_ms);
    int rc = hf__mg_how(url, io_timeout_ms, &st->how, err);
    if (!rc) {
        link = hf__links_get(&st->links, &rc, err);
        if (!rc) rc = hf__mg_prepare_collection(st, link, &about, url->existing, err);
        if (!rc) rc = prepare_reading(st, link, &about, err);
        if (!link || !link->replicated)
            caps->notify = NULL; /* a single server has no change
                                    streams */
        hf__links_put(&st->links, link);
    }
    if (!rc && !(st->listener = hf__mg_listener_new(url, io_timeout_ms)))
        rc = hf_fail(err, HF_NOMEM, 0, "mongodb: open '%s': out of memory", url->safe);
    if (rc) {
        mg_close(st);
        return rc;
    }
    *ret = st;
    return 0;
}

HF_DRIVER_ENTRY(mongodb) = {
    .abi = HF_DRIVER_ABI,
    .name = "mongodb",
    .about = "a collection of a MongoDB database",
    .caps =
        {.queue_cap = 256, .holders_cap = 256, .threads = 1, .queues = 1, .notify = &hf__mg_notify},
    .open = mg_open,
    .close = mg_close,
    .get = mg_get,
    .replace = mg_replace,
    .replace_many = mg_replace_many,
    .scan = hf__mg_scan,
    .inspect = hf__mg_inspect,
    .enter = mg_enter,
};
