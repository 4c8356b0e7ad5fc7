/*
 * mongodb.c - mongodb://USER@HOST/DB, rows as documents of a MongoDB collection. See link.h,
 * doc/stores/mongodb.md.
 *
 * Contents: connections; reading; writing; many rows; notifications; opening; doctor.
 *
 * A write is one findAndModify: of a document with this _id and this rev; or, to create it, one
 * that nothing can match (no row has rev 0), as an upsert, which meets E11000 if there is a
 * document already. $currentDate notes the time of the write, and the reply brings it: that is the
 * store's clock. A read is one aggregation, which answers with the time ($$NOW) even if there is no
 * such document. Servers that don't know these two stages are asked twice.
 */
#include "kit/text.h"
#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE_ROWS = 64 };

/* ---- connections ---- */

/* libmongoc reports a broken connection only when it is used. */
static int usable(void *link) { return ((struct hf__mg_link *)link)->client != NULL; }

static int make(hf_store *st, void *link, int64_t until_us, hf_error *err)
{
    struct hf__mg_how how = st->how; /* what its fields point to belongs to the store */
    how.io_timeout_ms = (until_us - hf__local_us()) / 1000;
    return hf__mg_connect(&how, link, err);
}

static const struct hf__link_kind link_kind = {"mongodb", sizeof(struct hf__mg_link), 0, usable,
                                               make};

static int get_link(hf_store *st, struct hf__mg_link **ret, hf_error *err)
{
    int rc;
    *ret = hf__links_get(&st->links, hf__local_us() + st->how.io_timeout_ms * 1000, &rc, err);
    return rc;
}

void hf__mg_put_link(hf_store *st, struct hf__mg_link *link)
{
    hf__links_put(&st->links, link, link && link->client);
}

/* Sends a command, which is destroyed in every case. */
static int ask(hf_store *st, struct hf__mg_link *link, bson_t *command,
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

/* Reads the store's clock by a request of its own. All versions know `hello` by its old name. */
int hf__mg_ask_clock(hf_store *st, struct hf__mg_link *link, const struct hf__mg_about *about,
                     int64_t *ret_clock_us, hf_error *err)
{
    bson_t reply;
    bson_iter_t it;
    int code, rc = ask(st, link, BCON_NEW("isMaster", BCON_INT32(1)), about, &reply, &code, err);
    if (rc) return rc;
    *ret_clock_us = bson_iter_init_find(&it, &reply, "localTime") ? date_us(&it) : 0;
    bson_destroy(&reply);
    if (*ret_clock_us) return 0;
    return hf_fail(err, HF_UNSUPPORTED, 0, "mongodb: %s '%s': the server tells no time",
                   about->what, about->key);
}

/* Adds the read concern. A read shows nothing that may be rolled back and, where that can be
   asked for, nothing that is out of date. A server by itself has neither problem: it has only
   one state. */
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

/* The first batch of a reply. */
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

static int garbled(const struct hf__mg_about *about, hf_error *err)
{
    return hf_fail(err, about->ambiguous, 0, "mongodb: %s '%s': not a reply of this request",
                   about->what, about->key);
}

static int decode(const hf_store *st, const bson_t *doc, hf_row *row,
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

/* $facet makes one document of its input, even if that is empty. */
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
    if (!hf__mg_document(at, &all)) return garbled(about, err);
    if (bson_iter_init_find(&it, &all, "now")) *ret_clock_us = date_us(&it);
    if (!bson_iter_init_find(&it, &all, "row") || !BSON_ITER_HOLDS_ARRAY(&it) ||
        !bson_iter_recurse(&it, &rows))
        return garbled(about, err);
    if (!bson_iter_next(&rows)) return 0;
    return hf__mg_document(&rows, &doc) ? decode(st, &doc, row, about, err) : garbled(about, err);
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
    int rc = ask(st, link, command, about, &reply, ret_code, err);
    if (rc) return rc;
    if (!hf__mg_batch(&reply, &it))
        rc = garbled(about, err);
    else if (!bson_iter_next(&it))
        ; /* an empty reply, even without a time: there is no collection */
    else if (!st->plain)
        rc = read_facet(st, &it, row, &clock_us, about, err);
    else
        rc = hf__mg_document(&it, &doc) ? decode(st, &doc, row, about, err) : garbled(about, err);
    bson_destroy(&reply);
    if (!rc && !clock_us) rc = hf__mg_ask_clock(st, link, about, &clock_us, err);
    if (!rc) *ret_clock_us = clock_us;
    return rc;
}

static int mg_get(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
                  hf_error *err)
{
    struct hf__mg_about about = {"get", key->text, HF_UNAVAILABLE};
    struct hf__mg_link *link;
    int code, rc = get_link(st, &link, err);
    if (rc)
        hf_row_clear(row);
    else
        rc = read_row(st, link, key, row, ret_clock_us, &code, &about, err);
    hf__mg_put_link(st, link);
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

/* Was anything written? And when. */
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
    rc = ask(st, link, command, &about, &reply, &code, err);
    if (!rc) {
        written = read_written(&reply, &clock_us);
        *ret_clock_us = row ? clock_us : 0; /* after a removal it is the time of the write before */
        bson_destroy(&reply);
    } else if (code == HF_MG_DUPLICATE_KEY) {
        rc = 0;
    }
    if (!rc && !written) {
        about.ambiguous = HF_UNAVAILABLE; /* the write is answered */
        if (cur) rc = read_row(st, link, key, cur, ret_clock_us, &code, &about, err);
        if (!rc) rc = HF_CONFLICT;
    }
    bson_destroy(&update);
    return rc;
}

static int mg_replace(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                      hf_row *cur, int64_t *ret_clock_us, hf_error *err)
{
    struct hf__mg_link *link;
    int rc = get_link(st, &link, err);
    if (!rc) rc = replace_by(st, link, key, seen, row, cur, ret_clock_us, err);
    hf__mg_put_link(st, link);
    return rc;
}

static int mg_enter(hf_store *st, const hf_rowkey *key, uint64_t token, int alone,
                    const char *where, hf_error *err)
{
    struct hf__mg_about about = {"enter", key->text, HF_UNKNOWN};
    struct hf__mg_link *link;
    if (!alone)
        return hf_fail(err, HF_UNSUPPORTED, 0,
                       "mongodb: enter '%s': the fence in a document admits one holder at a time",
                       key->text);
    int rc = get_link(st, &link, err);
    if (!rc) rc = hf__mg_enter(&st->how, link, where, token, &about, err);
    hf__mg_put_link(st, link);
    return rc;
}

/* ---- many rows ---- */

/* Cuts the text behind its last whole character. */
static size_t whole_characters(const char *text)
{
    size_t len = strlen(text);
    while (len && !hf__is_utf8(text, len)) len--;
    return len;
}

static bson_t *list_command(const hf_store *st, const char *from, const char *after)
{
    bson_t *c = BCON_NEW("find", BCON_UTF8(st->how.collection), "filter", "{", "_id", "{", "$gte",
                         BCON_UTF8(from), "$gt", BCON_UTF8(after), "}", "}");
    BCON_APPEND(c, "sort", "{", "_id", BCON_INT32(1), "}", "limit", BCON_INT32(PAGE_ROWS),
                "batchSize", BCON_INT32(PAGE_ROWS), "singleBatch", BCON_BOOL(true));
    return c;
}

struct listing {
    const hf_store *st;
    const char *prefix;
    char from[HF_KEY_CAP], after[HF_KEY_CAP];
    int (*see)(void *arg, const hf_rowkey *, hf_row *);
    void *arg;
    int n, stop;
};

/* One document of a page. */
static int list_one(const bson_iter_t *at, struct listing *l, hf_row *row, hf_error *err)
{
    struct hf__mg_about about = {"list", l->prefix, HF_UNAVAILABLE};
    hf_rowkey key = {.text = ""};
    bson_iter_t id;
    bson_t doc;
    if (!hf__mg_document(at, &doc)) return garbled(&about, err);
    if (bson_iter_init_find(&id, &doc, "_id") && BSON_ITER_HOLDS_UTF8(&id))
        key.text = bson_iter_utf8(&id, &key.len);
    if (!key.len || key.len >= HF_KEY_CAP || memchr(key.text, 0, key.len))
        return hf_fail(err, HF_CORRUPT, 0,
                       "mongodb: list: a document whose _id is not a legal key (behind '%s')",
                       l->after);
    memcpy(l->after, key.text, key.len + 1);
    l->n++;
    if (strncmp(key.text, l->from, strlen(l->from)) != 0) l->stop = 1;
    if (l->stop || strncmp(key.text, l->prefix, strlen(l->prefix)) != 0) return 0;
    key.hash = hf_key_hash(key.text, key.len);
    about.key = key.text;
    int rc = decode(l->st, &doc, row, &about, err);
    if (!rc || rc == HF_CORRUPT) l->stop = l->see(l->arg, &key, rc ? NULL : row);
    return rc == HF_CORRUPT ? 0 : rc;
}

/* Reads one whole page before it shows any row of it, because the caller's `see` may write. */
static int list_page(hf_store *st, struct listing *l, bson_t *ret, int64_t *ret_clock_us,
                     hf_error *err)
{
    struct hf__mg_about about = {"list", l->prefix, HF_UNAVAILABLE};
    struct hf__mg_link *link;
    int code, rc = get_link(st, &link, err);
    if (!rc && !*ret_clock_us) rc = hf__mg_ask_clock(st, link, &about, ret_clock_us, err);
    if (!rc) {
        bson_t *command = list_command(st, l->from, l->after);
        hf__mg_put_read_concern(st, link, 0, command);
        rc = ask(st, link, command, &about, ret, &code, err);
    }
    hf__mg_put_link(st, link);
    return rc;
}

static int mg_scan(hf_store *st, const char *prefix,
                   int (*see)(void *arg, const hf_rowkey *, hf_row *), void *arg,
                   int64_t *ret_clock_us, hf_error *err)
{
    struct listing l = {.st = st, .prefix = prefix, .see = see, .arg = arg};
    int rc;
    hf_row row;
    size_t len = whole_characters(prefix);
    if (len >= sizeof l.from) return 0; /* no key is as long */
    memcpy(l.from, prefix, len);
    hf_row_init(&row);
    *ret_clock_us = 0;
    do {
        bson_t page;
        bson_iter_t it;
        l.n = 0;
        rc = list_page(st, &l, &page, ret_clock_us, err);
        if (rc) break;
        if (hf__mg_batch(&page, &it))
            while (!rc && !l.stop && bson_iter_next(&it)) rc = list_one(&it, &l, &row, err);
        bson_destroy(&page);
    } while (!rc && !l.stop && l.n == PAGE_ROWS);
    hf_row_clear(&row);
    return rc;
}

/* ---- notifications ---- */

static int mg_subscribe(hf_store *st, const hf_rowkey *k)
{
    return hf__mg_subscribe(st->listener, k);
}
static void mg_unsubscribe(hf_store *st, const hf_rowkey *k)
{
    hf__mg_unsubscribe(st->listener, k);
}

static int mg_flush(hf_store *st, hf_event_count *ret, hf_error *err)
{
    return hf__mg_flush(st->listener, ret, err);
}

static int mg_sleep(hf_store *st, const hf_event_count *since, int64_t until_us, hf_error *err)
{
    return hf__mg_sleep(st->listener, since, until_us, err);
}

static int mg_next_event(hf_store *s, hf_key_event *r) { return hf__mg_next_event(s->listener, r); }

static int mg_payload(hf_store *st, const hf_rowkey *k, hf_row *row)
{
    return hf__mg_payload(st->listener, k, row);
}

static void mg_interrupt(hf_store *st) { hf__mg_interrupt(st->listener); }

static const hf_notify_ops mg_notify = {.subscribe = mg_subscribe,
                                        .unsubscribe = mg_unsubscribe,
                                        .flush = mg_flush,
                                        .sleep = mg_sleep,
                                        .next_event = mg_next_event,
                                        .payload = mg_payload,
                                        .interrupt = mg_interrupt};

/* ---- opening ---- */

static void mg_close(hf_store *st)
{
    hf__mg_listener_free(st->listener);
    for (int i = 0; i < HF_LINKS; i++) hf__mg_disconnect(&st->link[i]);
    hf__mg_how_free(&st->how);
    hf__links_close(&st->links);
    free(st);
}

static int unfit(const hf_store *st, const char *why, hf_error *err)
{
    return hf_fail(err, HF_UNSUPPORTED, 0, "mongodb: open: collection '%s': %s", st->how.collection,
                   why);
}

static int has(const bson_t *doc, const char *path)
{
    bson_iter_t it, at;
    return bson_iter_init(&it, doc) && bson_iter_find_descendant(&it, path, &at) &&
           (!BSON_ITER_HOLDS_BOOL(&at) || bson_iter_bool(&at));
}

/* Reads what listCollections says of the collection. *ret_there: 1 if the collection exists. */
static int judge_collection(const hf_store *st, const bson_t *reply, int *ret_there, hf_error *err)
{
    bson_iter_t it, at;
    bson_t doc;
    *ret_there = 0;
    if (!hf__mg_batch(reply, &it) || !bson_iter_next(&it) || !hf__mg_document(&it, &doc)) return 0;
    *ret_there = 1;
    if (bson_iter_init_find(&at, &doc, "type") && BSON_ITER_HOLDS_UTF8(&at) &&
        strcmp(bson_iter_utf8(&at, NULL), "collection") != 0)
        return unfit(st, "it is a view, or keeps a series", err);
    if (has(&doc, "options.capped")) return unfit(st, "it is capped: it drops rows", err);
    if (has(&doc, "options.expireAfterSeconds"))
        return unfit(st, "it drops rows by their age", err);
    if (has(&doc, "options.collation"))
        return unfit(st, "it has a collation: different keys may be the same to it", err);
    return 0;
}

static int judge_indexes(const hf_store *st, const bson_t *reply, hf_error *err)
{
    bson_iter_t it;
    bson_t doc;
    if (!hf__mg_batch(reply, &it)) return 0;
    while (bson_iter_next(&it))
        if (hf__mg_document(&it, &doc) && has(&doc, "expireAfterSeconds"))
            return unfit(st, "it has a TTL index, which drops rows by the clock", err);
    return 0;
}

/* Returns the result of a look at the server; 0 if the look isn't permitted, or if this server
   doesn't know it, because that doesn't matter. */
static int optional(int rc) { return rc == HF_DENIED || rc == HF_UNSUPPORTED ? 0 : rc; }

static int prepare_collection(hf_store *st, struct hf__mg_link *link,
                              const struct hf__mg_about *about, int existing, hf_error *err)
{
    const char *name = st->how.collection;
    int code, there = 1;
    bson_t reply;
    bson_t *command = BCON_NEW("listCollections", BCON_INT32(1), "filter", "{", "name",
                               BCON_UTF8(name), "}", "cursor", "{", "}");
    int rc = ask(st, link, command, about, &reply, &code, err);
    if (!rc) {
        rc = judge_collection(st, &reply, &there, err);
        bson_destroy(&reply);
        if (rc) return rc;
    } else if (optional(rc)) {
        return rc;
    }
    if (!there && existing)
        return hf_fail(err, HF_UNAVAILABLE, ENOENT, "no store at '%s': no collection %s is there",
                       about->key, name);
    if (!there) {
        rc = ask(st, link, BCON_NEW("create", BCON_UTF8(name)), about, &reply, &code, err);
        if (!rc) bson_destroy(&reply);
        /* 48: somebody else was quicker. */
        return code == 48 ? 0 : optional(rc);
    }
    rc = ask(st, link, BCON_NEW("listIndexes", BCON_UTF8(name)), about, &reply, &code, err);
    if (!rc) {
        rc = judge_indexes(st, &reply, err);
        bson_destroy(&reply);
    } else {
        rc = code == 26 ? 0 : optional(rc); /* 26: it is gone again */
    }
    return rc;
}

/* Checks that the collection can be read, and how. */
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
    hf__links_open(&st->links, &link_kind, st, st->link);
    int rc = hf__mg_how(url, io_timeout_ms, &st->how, err);
    if (!rc) {
        rc = get_link(st, &link, err);
        if (!rc) rc = prepare_collection(st, link, &about, url->existing, err);
        if (!rc) rc = prepare_reading(st, link, &about, err);
        if (!link || !link->replicated) caps->notify = NULL; /* it has no change streams */
        hf__mg_put_link(st, link);
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

/* ---- doctor ---- */

static int mg_inspect(hf_store *st, void (*say)(void *arg, int ok, const char *text), void *arg,
                      hf_error *err)
{
    struct hf__mg_about about = {"inspect", "", HF_UNAVAILABLE};
    struct hf__mg_link *link;
    char text[400], version[64] = "of some version";
    bson_iter_t it;
    bson_t reply;
    int code, rc = get_link(st, &link, err);
    if (!rc) rc = ask(st, link, BCON_NEW("buildInfo", BCON_INT32(1)), &about, &reply, &code, err);
    if (!rc) {
        if (bson_iter_init_find(&it, &reply, "version") && BSON_ITER_HOLDS_UTF8(&it))
            snprintf(version, sizeof version, "%.60s", bson_iter_utf8(&it, NULL));
        bson_destroy(&reply);
    }
    int replicated = link && link->replicated;
    hf__mg_put_link(st, link);
    if (rc) return rc;
    snprintf(text, sizeof text, "the rows are documents of collection '%s' in database '%s'",
             st->how.collection, st->how.db);
    say(arg, 1, text);
    snprintf(text, sizeof text, "MongoDB %s, %s", version,
             replicated ? "the primary of a replica set: what it answered survives a fail-over"
                        : "a server by itself: what it loses is lost");
    say(arg, 1, text);
    say(arg, 1, "every write is confirmed by the majority, and in its journal");
    say(arg, 1, "the collection drops nothing by itself, and tells all keys apart");
    if (st->plain) say(arg, 1, "no $facet, or no $$NOW: to read takes a request more");
    return 0;
}

HF_DRIVER_ENTRY(mongodb) = {
    .abi = HF_DRIVER_ABI,
    .name = "mongodb",
    .about = "a collection of a MongoDB database",
    .caps = {.queue_cap = 256, .holders_cap = 256, .threads = 1, .queues = 1, .notify = &mg_notify},
    .open = mg_open,
    .close = mg_close,
    .get = mg_get,
    .replace = mg_replace,
    .replace_many = hf__mg_replace_many,
    .scan = mg_scan,
    .inspect = mg_inspect,
    .enter = mg_enter,
};
