/*
 * collection.c - mongodb: makes the collection, or checks that rows can be kept in it; and reports
 * its settings to `holdfast doctor`.
 */
#include "store.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

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

/* Checks the collection by the reply to listCollections. *ret_there: 1 if the collection exists.
   Returns 0, or the error: rows can't be kept there. */
static int judge_collection(const hf_store *st, const bson_t *reply, int *ret_there, hf_error *err)
{
    bson_iter_t it, at;
    bson_t doc;
    *ret_there = 0;
    if (!hf__mg_batch(reply, &it) || !bson_iter_next(&it) || !hf__mg_document(&it, &doc)) return 0;
    *ret_there = 1;
    if (bson_iter_init_find(&at, &doc, "type") && BSON_ITER_HOLDS_UTF8(&at) &&
        strcmp(bson_iter_utf8(&at, NULL), "collection") != 0)
        return unfit(st, "it is a view or a time series", err);
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

/* Returns the result of a command that only checks settings: 0 if this user may not use it, or this
   server doesn't know it, because the check can be left out. */
static int optional(int rc) { return rc == HF_DENIED || rc == HF_UNSUPPORTED ? 0 : rc; }

int hf__mg_prepare_collection(hf_store *st, struct hf__mg_link *link,
                              const struct hf__mg_about *about, int existing, hf_error *err)
{
    const char *name = st->how.collection;
    int code, there = 1;
    bson_t reply;
    bson_t *command = BCON_NEW("listCollections", BCON_INT32(1), "filter", "{", "name",
                               BCON_UTF8(name), "}", "cursor", "{", "}");
    int rc = hf__mg_request(st, link, command, about, &reply, &code, err);
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
        rc = hf__mg_request(st, link, BCON_NEW("create", BCON_UTF8(name)), about, &reply, &code,
                            err);
        if (!rc) bson_destroy(&reply);
        /* 48 (NamespaceExists): another client has made the collection meanwhile. */
        return code == 48 ? 0 : optional(rc);
    }
    rc = hf__mg_request(st, link, BCON_NEW("listIndexes", BCON_UTF8(name)), about, &reply, &code,
                        err);
    if (!rc) {
        rc = judge_indexes(st, &reply, err);
        bson_destroy(&reply);
    } else {
        rc = code == 26 ? 0 : optional(rc); /* 26 (NamespaceNotFound): it was dropped meanwhile */
    }
    return rc;
}

int hf__mg_inspect(hf_store *st, void (*say)(void *arg, int ok, const char *text), void *arg,
                   hf_error *err)
{
    struct hf__mg_about about = {"inspect", "", HF_UNAVAILABLE};
    char text[400], version[64] = "of some version";
    bson_iter_t it;
    bson_t reply;
    int code, rc;
    struct hf__mg_link *link = hf__links_get(&st->links, &rc, err);
    if (!rc)
        rc = hf__mg_request(st, link, BCON_NEW("buildInfo", BCON_INT32(1)), &about, &reply, &code,
                            err);
    if (!rc) {
        if (bson_iter_init_find(&it, &reply, "version") && BSON_ITER_HOLDS_UTF8(&it))
            snprintf(version, sizeof version, "%.60s", bson_iter_utf8(&it, NULL));
        bson_destroy(&reply);
    }
    int replicated = link && link->replicated;
    hf__links_put(&st->links, link);
    if (rc) return rc;
    snprintf(text, sizeof text, "the rows are documents of collection '%s' in database '%s'",
             st->how.collection, st->how.db);
    say(arg, 1, text);
    snprintf(text, sizeof text, "MongoDB %s, %s", version,
             replicated ? "the primary of a replica set: what it answered survives a fail-over"
                        : "a single server: a write that it loses is in no other copy");
    say(arg, 1, text);
    say(arg, 1, "every write is confirmed by the majority, and in its journal");
    say(arg, 1, "the collection drops nothing by itself, and tells all keys apart");
    if (st->plain) say(arg, 1, "no $facet, or no $$NOW: a read takes one request more");
    return 0;
}
