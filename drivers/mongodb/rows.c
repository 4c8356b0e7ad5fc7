/*
 * rows.c - mongodb: a row as a document, and back; see link.h.
 *
 * The fields are those of kit/columns.h. `more` and `done` are documents here, `queue` is an array
 * of documents. These three are absent if they would be empty.
 */
#include "addresses.h"
#include "kit/text.h"
#include "link.h"

#include <stdio.h>
#include <string.h>

/* ---- row to document ---- */

static void put_value(bson_t *to, const char *name, const json_t *value);

static void put_members(bson_t *to, const json_t *object)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value) put_value(to, name, value);
}

/* Appends a JSON value: a text, a whole number, an array or an object. */
static void put_value(bson_t *to, const char *name, const json_t *value)
{
    bson_t inner;
    if (json_is_string(value)) {
        bson_append_utf8(to, name, -1, json_string_value(value), (int)json_string_length(value));
    } else if (json_is_integer(value)) {
        bson_append_int64(to, name, -1, json_integer_value(value));
    } else if (json_is_object(value)) {
        bson_append_document_begin(to, name, -1, &inner);
        put_members(&inner, value);
        bson_append_document_end(to, &inner);
    } else {
        bson_append_array_begin(to, name, -1, &inner);
        for (size_t i = 0; i < json_array_size(value); i++) {
            char room[16];
            const char *at;
            bson_uint32_to_string((uint32_t)i, &at, room, sizeof room);
            put_value(&inner, at, json_array_get(value, i));
        }
        bson_append_array_end(to, &inner);
    }
}

static void put_fields(bson_t *set, const struct hf__fields *f)
{
    for (int i = 0; i < HF_FIELDS; i++) {
        const char *name = hf__field[i].name;
        if (i == HF_FIELD_FORMAT) /* an int32, which the shell shows as 2 and not as Long('2') */
            bson_append_int32(set, name, -1, (int32_t)f->n[i]);
        else if (hf__field[i].kind == HF_NUMBER)
            bson_append_int64(set, name, -1, f->n[i]);
        else if (hf__field[i].kind == HF_TEXT)
            bson_append_utf8(set, name, -1, f->text[i], (int)f->len[i]);
        else if (f->json[i])
            put_value(set, name, f->json[i]);
    }
}

int hf__mg_encode(const hf_row *row, bson_t *update, const char **ret_why)
{
    struct hf__fields f;
    char text[24 + HF_ADDRESSES_CAP];
    bson_t set, unset;
    int absent = 0, rc = hf__put_fields(row, HF_JSON_TREE, &f, ret_why);
    if (!rc) {
        bson_append_document_begin(update, "$set", -1, &set);
        put_fields(&set, &f);
        /* The field begins with the rev, so that each write changes it: a change stream shows only
           fields that have changed. */
        int n = snprintf(text, 24, "%llu ", (unsigned long long)row->rev);
        hf__put_addresses(text + n, row);
        bson_append_utf8(&set, HF_MG_ADDRESSES, -1, text, -1);
        bson_append_document_end(update, &set);
        for (int i = 0; i < HF_FIELDS; i++) absent |= hf__field[i].kind == HF_JSON && !f.json[i];
    }
    if (absent) {
        bson_append_document_begin(update, "$unset", -1, &unset);
        for (int i = 0; i < HF_FIELDS; i++)
            if (hf__field[i].kind == HF_JSON && !f.json[i])
                bson_append_bool(&unset, hf__field[i].name, -1, true);
        bson_append_document_end(update, &unset);
    }
    if (!rc) BCON_APPEND(update, "$currentDate", "{", "written", BCON_BOOL(true), "}");
    hf__free_fields(&f);
    return rc;
}

/* ---- document to row ---- */

/* Reads a whole number of any numeric type, because the shell writes doubles. Returns 1; 0: it
   isn't one. */
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

static json_t *made(json_t *json, int *ret_rc)
{
    if (!json) *ret_rc = HF_NOMEM;
    return json;
}

/* Returns the value as JSON. NULL: out of memory (*ret_rc is HF_NOMEM), or a value that no row
   has. */
static json_t *read_value(const bson_iter_t *it, int depth, int *ret_rc)
{
    bson_iter_t inner;
    uint32_t len;
    int64_t n;
    int is_array = BSON_ITER_HOLDS_ARRAY(it), bad = 0;
    if (BSON_ITER_HOLDS_UTF8(it)) {
        const char *text = bson_iter_utf8(it, &len);
        return hf__is_utf8(text, len) ? made(json_stringn(text, len), ret_rc) : NULL;
    }
    if (!is_array && !BSON_ITER_HOLDS_DOCUMENT(it))
        return read_number(it, &n) ? made(json_integer(n), ret_rc) : NULL;
    if (!depth || !bson_iter_recurse(it, &inner)) return NULL;
    json_t *all = made(is_array ? json_array() : json_object(), ret_rc);
    while (all && !bad && bson_iter_next(&inner)) {
        const char *name = bson_iter_key(&inner);
        json_t *value =
            hf__is_utf8(name, strlen(name)) ? read_value(&inner, depth - 1, ret_rc) : NULL;
        bad = !value;
        if (value && (is_array ? json_array_append_new(all, value)
                               : json_object_set_new(all, name, value))) {
            *ret_rc = HF_NOMEM;
            bad = 1;
        }
    }
    if (!bad) return all;
    json_decref(all);
    return NULL;
}

/* Puts the document's value of field i into the fields. Returns 0 or HF_NOMEM. */
static int read_field(const bson_iter_t *it, int i, struct hf__fields *f)
{
    uint32_t len = 0;
    int64_t n;
    int rc = 0;
    if (hf__field[i].kind == HF_JSON) {
        json_t *json = read_value(it, 4, &rc);
        if (json)
            hf__got_json(f, i, json);
        else
            hf__got_other(f, i);
    } else if (hf__field[i].kind == HF_NUMBER && read_number(it, &n)) {
        hf__got_number(f, i, n);
    } else if (hf__field[i].kind == HF_TEXT && BSON_ITER_HOLDS_UTF8(it)) {
        const char *text = bson_iter_utf8(it, &len);
        hf__got_text(f, i, text, len);
    } else {
        hf__got_other(f, i);
    }
    return rc;
}

int hf__mg_decode(const bson_t *doc, const struct hf__row_reader *by, hf_row *row, hf_error *err)
{
    enum { OURS = 1 << HF_FIELD_FORMAT | 1 << HF_FIELD_REV };
    struct hf__fields f = HF_NO_FIELDS;
    const char *why = "not a document";
    bson_iter_t it;
    int rc = bson_iter_init(&it, doc) ? 0 : HF_CORRUPT;
    hf_row_clear(row);
    while (!rc && bson_iter_next(&it)) {
        int i = hf__field_of(bson_iter_key(&it));
        if (i >= 0) rc = read_field(&it, i, &f);
    }
    if (!rc && (f.got & OURS) != OURS) {
        why = "a document that isn't of Holdfast";
        rc = HF_CORRUPT;
        f.got = 0; /* the error must not mention this document's `format`, which isn't Holdfast's */
    }
    if (!rc) rc = hf__read_fields(&f, HF_JSON_TREE, row, &why);
    if (rc) hf__fields_refused(by, &f, rc, why, err);
    hf__free_fields(&f);
    return rc;
}

/* ---- entering ---- */

/* Returns 1 if an ID can be used in a filter: it has no member that begins with `$`, which an
   upsert would evaluate as an operator. */
static int is_id(const bson_iter_t *at)
{
    bson_iter_t it;
    if (!BSON_ITER_HOLDS_DOCUMENT(at)) return 1;
    if (!bson_iter_recurse(at, &it)) return 0;
    while (bson_iter_next(&it))
        if (*bson_iter_key(&it) == '$') return 0;
    return 1;
}

/* Reads COLLECTION/ID into a collection and the filter {"_id": {"$eq": ID}}. The ID is extended
   JSON, and with $eq it is always a value. Returns 0 if the text has another form. */
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

/* Does what the functions of `guard mongodb` do: an upsert of the document if its token isn't
   greater. If its token is greater, the filter doesn't match, and the insert fails with E11000. */
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
    return hf_fail(err, HF_LOST, 0, "mongodb: enter '%s': a later token has entered '%s'",
                   about->key, where);
}
