/*
 * rows.c - mongodb: a row as a document, and back; see link.h.
 *
 * The first holder has fields of its own, as on the stores that speak SQL (columns.h); `others` and
 * `queue` are arrays of documents.
 */
#include "addresses.h"
#include "columns.h"
#include "link.h"

#include <stdio.h>
#include <string.h>

/* ---- there ---- */

/* Small by nature: they needn't look like Long('1') in the shell. */
static int is_small(enum hf__column col)
{
    return col == HF_COL_FORMAT || col == HF_COL_MODE || col == HF_COL_FLAGS || col == HF_COL_BELL;
}

static int party_is_text(const hf_party *p)
{
    return hf__is_utf8(p->owner, p->owner_len) && hf__is_utf8(p->note, p->note_len);
}

static int put_parties(bson_t *to, const char *name, const hf_party *p, uint32_t n)
{
    bson_t list, doc;
    bson_append_array_begin(to, name, -1, &list);
    for (uint32_t i = 0; i < n; i++) {
        char room[16], id[33];
        const char *at;
        int64_t number[HF_PARTY_NUMBERS];
        if (!party_is_text(&p[i])) return 0;
        bson_uint32_to_string(i, &at, room, sizeof room);
        bson_append_document_begin(&list, at, -1, &doc);
        hf__put_id(id, p[i].id);
        bson_append_utf8(&doc, "request", -1, id, 32);
        bson_append_utf8(&doc, "owner", -1, p[i].owner, p[i].owner_len);
        bson_append_utf8(&doc, "note", -1, p[i].note, p[i].note_len);
        hf__party_numbers(&p[i], number);
        for (int j = 0; j < HF_PARTY_NUMBERS; j++)
            if (number[j]) bson_append_int64(&doc, hf__party_number[j].name, -1, number[j]);
        bson_append_document_end(&list, &doc);
    }
    bson_append_array_end(to, &list);
    return 1;
}

int hf__mg_encode(const hf_row *row, bson_t *to, const char **ret_why)
{
    struct hf__flat flat;
    int rc = hf__flatten_head(row, &flat, ret_why);
    if (rc) return rc;
    *ret_why = "an owner or a note is not UTF-8";
    uint32_t others = row->n_holders ? row->n_holders - 1 : 0;
    for (int i = 0; i < HF_COLS; i++) {
        const char *name = hf__column_name[i];
        int fine = 1;
        if (i == HF_COL_OTHERS)
            fine = put_parties(to, name, row->party + 1, others);
        else if (i == HF_COL_QUEUE)
            fine = put_parties(to, name, row->party + row->n_holders, row->n_queue);
        else if (hf__column_is_text[i])
            bson_append_utf8(to, name, -1, flat.text[i], (int)flat.len[i]);
        else if (is_small((enum hf__column)i))
            bson_append_int32(to, name, -1, (int32_t)flat.n[i]);
        else
            bson_append_int64(to, name, -1, flat.n[i]);
        if (!fine) return HF_INVALID;
    }
    /* Behind the rev, so that each write changes it: a change stream tells what has changed. */
    char text[24 + HF_ADDRESSES_CAP];
    int n = snprintf(text, 24, "%llu ", (unsigned long long)row->rev);
    hf__put_addresses(text + n, row);
    bson_append_utf8(to, HF_MG_ADDRESSES, -1, text, -1);
    return 0;
}

/* ---- and back ---- */

/* A whole number of whichever type: what the shell writes back is a double. */
static int read_number(const bson_iter_t *it, int64_t *ret)
{
    switch ((int)bson_iter_type(it)) {
    case BSON_TYPE_INT32: *ret = bson_iter_int32(it); return 1;
    case BSON_TYPE_INT64: *ret = bson_iter_int64(it); return 1;
    case BSON_TYPE_DOUBLE: {
        double d = bson_iter_double(it);
        if (!(d >= -9007199254740992.0 && d <= 9007199254740992.0)) return 0;
        *ret = (int64_t)d;
        return (double)*ret == d;
    }
    default: return 0;
    }
}

static int read_text(const bson_iter_t *it, char *to, size_t cap, uint8_t *ret_len)
{
    uint32_t len = 0;
    if (!BSON_ITER_HOLDS_UTF8(it)) return 0;
    const char *text = bson_iter_utf8(it, &len);
    if (len >= cap || memchr(text, 0, len)) return 0;
    memcpy(to, text, len);
    to[len] = 0;
    *ret_len = (uint8_t)len;
    return 1;
}

static int read_party(const bson_iter_t *at, hf_party *p)
{
    int64_t number[HF_PARTY_NUMBERS] = {0};
    int named = 0, owned = 0, noted = 0;
    bson_iter_t it;
    if (!BSON_ITER_HOLDS_DOCUMENT(at) || !bson_iter_recurse(at, &it)) return 0;
    while (bson_iter_next(&it)) {
        const char *name = bson_iter_key(&it);
        if (!strcmp(name, "request")) {
            uint32_t len = 0;
            const char *id = BSON_ITER_HOLDS_UTF8(&it) ? bson_iter_utf8(&it, &len) : "";
            if (!(named = hf__read_id(id, len, p->id))) return 0;
        } else if (!strcmp(name, "owner")) {
            if (!(owned = read_text(&it, p->owner, HF_OWNER_CAP, &p->owner_len))) return 0;
        } else if (!strcmp(name, "note")) {
            if (!(noted = read_text(&it, p->note, HF_NOTE_CAP, &p->note_len))) return 0;
        }
        for (int i = 0; i < HF_PARTY_NUMBERS; i++) {
            const struct hf__party_number *is = &hf__party_number[i];
            if (strcmp(name, is->name) != 0) continue;
            if (!read_number(&it, &number[i]) || number[i] < is->least || number[i] > is->most)
                return 0;
        }
    }
    hf__party_set_numbers(p, number);
    return named && owned && noted;
}

/* Appends the parties of the array behind the n that the row has. */
static int read_parties(const bson_iter_t *array, hf_row *row, uint32_t n, uint32_t *ret_n)
{
    bson_iter_t it;
    uint32_t more = 0;
    *ret_n = 0;
    if (!BSON_ITER_HOLDS_ARRAY(array) || !bson_iter_recurse(array, &it)) return HF_CORRUPT;
    while (bson_iter_next(&it)) more++;
    int rc = hf_row_room(row, (size_t)n + more);
    if (rc) return rc;
    bson_iter_recurse(array, &it);
    for (uint32_t i = 0; i < more && bson_iter_next(&it); i++) {
        memset(&row->party[n + i], 0, sizeof row->party[n + i]);
        if (!read_party(&it, &row->party[n + i])) return HF_CORRUPT;
    }
    *ret_n = more;
    return 0;
}

struct lists {
    bson_iter_t others, queue;
};

/* What the fields say, before they are looked at; NULL, or what is wrong. */
static const char *gather(const bson_t *doc, struct hf__flat *flat, struct lists *lists,
                          char why[96])
{
    int seen[HF_COLS] = {0};
    bson_iter_t it;
    if (!bson_iter_init(&it, doc)) return "not a document";
    while (bson_iter_next(&it)) {
        const char *name = bson_iter_key(&it);
        for (int i = 0; i < HF_COLS; i++) {
            if (strcmp(name, hf__column_name[i]) != 0) continue;
            int fine = 1;
            uint32_t len = 0;
            if (i == HF_COL_OTHERS) {
                lists->others = it;
            } else if (i == HF_COL_QUEUE) {
                lists->queue = it;
            } else if (hf__column_is_text[i]) {
                fine = BSON_ITER_HOLDS_UTF8(&it);
                if (fine) flat->text[i] = bson_iter_utf8(&it, &len);
                flat->len[i] = len;
            } else {
                fine = read_number(&it, &flat->n[i]);
            }
            if (fine) seen[i] = 1;
        }
    }
    if (!seen[HF_COL_FORMAT] || !seen[HF_COL_REV]) return "a document that isn't of Holdfast";
    if (flat->n[HF_COL_FORMAT] != HF_FORMAT_1) return NULL; /* it may well have other fields */
    for (int i = 0; i < HF_COLS; i++)
        if (!seen[i]) {
            snprintf(why, 96, "its field '%s' is missing or of another type", hf__column_name[i]);
            return why;
        }
    return NULL;
}

int hf__mg_decode(const bson_t *doc, hf_row *row, const char **ret_why)
{
    static _Thread_local char why[96];
    struct hf__flat flat;
    struct lists lists;
    uint32_t others = 0, queue = 0;
    memset(&flat, 0, sizeof flat);
    hf_row_clear(row);
    *ret_why = gather(doc, &flat, &lists, why);
    int rc = *ret_why ? HF_CORRUPT : hf__unflatten_head(&flat, row, ret_why);
    if (!rc) {
        *ret_why = "others is not a list of holders";
        rc = read_parties(&lists.others, row, row->n_holders, &others);
    }
    if (!rc && others && !row->n_holders) {
        *ret_why = "others hold it, but nobody does";
        rc = HF_CORRUPT;
    }
    if (!rc) {
        row->n_holders += others;
        *ret_why = "the queue is not a list of waiters";
        rc = read_parties(&lists.queue, row, row->n_holders, &queue);
    }
    if (!rc) {
        row->n_queue = queue;
        rc = hf_row_check(row, ret_why);
    }
    if (rc) hf_row_clear(row);
    return rc;
}

/* ---- entering ---- */

/* No operator within it, which an upsert would make an ID of? */
static int is_id(const bson_iter_t *at)
{
    bson_iter_t it;
    if (!BSON_ITER_HOLDS_DOCUMENT(at)) return 1;
    if (!bson_iter_recurse(at, &it)) return 0;
    while (bson_iter_next(&it))
        if (*bson_iter_key(&it) == '$') return 0;
    return 1;
}

/* COLLECTION/ID, the ID as extended JSON: as {"_id": {"$eq": ID}} it is a value, whatever it is
   made of. 0: none. */
static int read_where(const char *where, char collection[HF_MG_NAME_CAP], bson_t *ret)
{
    const char *slash = where ? strchr(where, '/') : NULL;
    size_t len = slash ? (size_t)(slash - where) : 0, more = slash ? strlen(slash) : 0;
    bson_error_t e;
    bson_iter_t it, at;
    if (!len || len >= HF_MG_NAME_CAP) return 0;
    memcpy(collection, where, len);
    collection[len] = 0;
    if (strchr(collection, '$')) return 0;
    char *json = malloc(more + 32);
    if (!json) return 0;
    snprintf(json, more + 32, "{\"_id\": {\"$eq\": %s}}", slash + 1);
    int good = bson_init_from_json(ret, json, -1, &e);
    free(json);
    if (!good) return 0;
    if (bson_count_keys(ret) == 1 && bson_iter_init_find(&it, ret, "_id") &&
        BSON_ITER_HOLDS_DOCUMENT(&it) && bson_iter_recurse(&it, &at) && bson_iter_next(&at) &&
        !strcmp(bson_iter_key(&at), "$eq") && is_id(&at) && !bson_iter_next(&at))
        return 1;
    bson_destroy(ret);
    return 0;
}

/* As what `guard mongodb` prints: an upsert of a document whose token isn't greater. If there is
   one that is, it meets E11000. */
int hf__mg_enter(const struct hf__mg_how *how, struct hf__mg_link *link, const char *where,
                 uint64_t token, const struct hf__mg_about *about, hf_error *err)
{
    char collection[HF_MG_NAME_CAP];
    int64_t n = (int64_t)token;
    bson_t query, reply;
    int code;
    if (!read_where(where, collection, &query))
        return hf_fail(err, HF_INVALID, 0,
                       "mongodb: enter '%s': name the document: COLLECTION/ID, the ID as JSON",
                       about->key);
    BCON_APPEND(&query, "holdfast_token", "{", "$not", "{", "$gt", BCON_INT64(n), "}", "}");
    bson_t *command = BCON_NEW(
        "findAndModify", BCON_UTF8(collection), "query", BCON_DOCUMENT(&query), "update", "{",
        "$set", "{", "holdfast_token", BCON_INT64(n), "}", "}", "upsert", BCON_BOOL(true), "fields",
        "{", "_id", BCON_INT32(1), "}", "writeConcern", "{", "w", BCON_UTF8("majority"), "j",
        BCON_BOOL(true), "wtimeout", BCON_INT64(how->io_timeout_ms), "}");
    int rc = hf__mg_ask(how, link, command, about, &reply, &code, err);
    if (!rc) bson_destroy(&reply);
    bson_destroy(command);
    bson_destroy(&query);
    if (code != HF_MG_DUPLICATE_KEY) return rc;
    return hf_fail(err, HF_LOST, 0, "mongodb: enter '%s': a later one has entered '%s'", about->key,
                   where);
}
