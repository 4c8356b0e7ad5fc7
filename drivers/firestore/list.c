/*
 * list.c - firestore: lists the documents that are locks, page by page.
 */
#include "kit/listing.h"
#include "store.h"

#include <stdio.h>
#include <string.h>

enum { PAGE_ROWS = 64 };

struct listing {
    hf_store *st;
    struct hf__listing all;
    int paths;     /* 1: lists the documents below the root; 0: those of the collection */
    size_t n;      /* how many documents this page had */
    json_t *after; /* names the document after which the next page begins; NULL: the first page */
};

/* Shows the row of a document, if it is the document of a key with the prefix. Ignores other
   documents. */
static int see_document(struct listing *l, const json_t *document, hf_error *err)
{
    const json_t *fields = json_object_get(document, "fields");
    const char *name = json_string_value(json_object_get(document, "name"));
    const char *text = hf__fs_key_of(fields);
    char own[HF_FS_NAME_CAP];
    hf_rowkey key;
    if (!text || hf_key_make(text, &key, NULL)) return 0;
    if (!hf__listing_has(&l->all, text)) {
        l->all.stop = !l->paths; /* the collection's come in the order of keys: none is left */
        return 0;
    }
    hf__fs_name(&l->st->place, text, own);
    if (!name || strcmp(name, own) || hf__fs_is_path(&l->st->place, text) != l->paths) return 0;
    int rc = hf__fs_decode(l->st, document, &key, &l->all.row, "list", err);
    return hf__listing_show(&l->all, &key, rc);
}

/* Makes the query of a page, sorted by an index that every database has. */
static json_t *page(const struct listing *l)
{
    json_t *query = json_pack("{s:i}", "limit", PAGE_ROWS);
    json_t *by_name =
        json_pack("{s:{s:s}, s:s}", "field", "fieldPath", "__name__", "direction", "ASCENDING");
    int bad;
    if (l->paths) {
        bad = json_object_set_new(query, "from", json_pack("[{s:b}]", "allDescendants", 1)) ||
              json_object_set_new(query, "orderBy", json_pack("[O]", by_name));
    } else {
        bad =
            json_object_set_new(query, "from",
                                json_pack("[{s:s}]", "collectionId", l->st->place.collection_id)) ||
            json_object_set_new(query, "where",
                                json_pack("{s:{s:{s:s}, s:s, s:{s:s}}}", "fieldFilter", "field",
                                          "fieldPath", "key", "op", "GREATER_THAN_OR_EQUAL",
                                          "value", "stringValue", l->all.prefix)) ||
            json_object_set_new(query, "orderBy",
                                json_pack("[{s:{s:s}, s:s}, O]", "field", "fieldPath", "key",
                                          "direction", "ASCENDING", by_name));
    }
    if (l->after)
        bad |= json_object_set_new(query, "startAt",
                                   json_pack("{s:O, s:b}", "values", l->after, "before", 0));
    json_decref(by_name);
    if (bad) json_decref(query);
    return bad ? NULL : json_pack("{s:o}", "structuredQuery", query);
}

/* Notes that the next page begins after this document. Returns 0 if there is no memory. */
static int go_behind(struct listing *l, const json_t *document)
{
    json_t *name = json_pack("{s:O}", "referenceValue", json_object_get(document, "name"));
    json_t *key = json_object_get(json_object_get(document, "fields"), "key");
    json_decref(l->after);
    l->after = l->paths ? json_pack("[o]", name) : json_pack("[O, o]", key, name);
    return l->after != NULL;
}

static int see_page(struct listing *l, const char *parent, hf_error *err)
{
    struct hf__fs_call call = {.what = "list", .key = l->all.prefix};
    const json_t *last = NULL;
    json_t *answer, *item;
    size_t i;
    int rc = hf__fs_ask(&l->st->api, &call, parent, "runQuery", page(l), &answer, err);
    if (rc) return rc;
    l->n = 0;
    json_array_foreach(answer, i, item)
    {
        const json_t *document = json_object_get(item, "document");
        int64_t clock_us = hf__fs_time(json_object_get(item, "readTime"));
        if (clock_us > 0) *l->all.ret_clock_us = clock_us;
        if (!document) continue;
        l->n++;
        last = document;
        if (!rc && !l->all.stop) rc = see_document(l, document, err);
    }
    if (!rc && last && !go_behind(l, last))
        rc = hf_fail(err, HF_NOMEM, 0, "firestore: list '%s': out of memory", l->all.prefix);
    json_decref(answer);
    return rc;
}

static int list(struct listing *l, const char *parent, int paths, hf_error *err)
{
    int rc;
    l->paths = paths;
    l->after = NULL;
    do rc = see_page(l, parent, err);
    while (!rc && !l->all.stop && l->n == PAGE_ROWS);
    json_decref(l->after);
    return rc;
}

int hf__fs_scan(hf_store *st, const char *prefix,
                int (*see)(void *arg, const hf_rowkey *, hf_row *), void *arg,
                int64_t *ret_clock_us, hf_error *err)
{
    struct listing l = {.st = st};
    char parent[HF_FS_NAME_CAP];
    int rc = 0;
    hf__listing_begin(&l.all, prefix, see, arg, ret_clock_us);
    if (st->place.has_root) {
        hf__fs_above(&st->place, prefix, parent);
        rc = list(&l, parent, 1, err);
    }
    snprintf(parent, sizeof parent, "%s%s%s", st->place.documents, *st->place.parent ? "/" : "",
             st->place.parent);
    if (!rc && !l.all.stop) rc = list(&l, parent, 0, err);
    hf_row_clear(&l.all.row);
    return rc;
}
