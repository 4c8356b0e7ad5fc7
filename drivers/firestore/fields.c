/*
 * fields.c - see fields.h.
 *
 * Numbers are integerValue (a decimal text). `more` and `done` are maps and `queue` is an array of
 * maps, so that security rules and clients in any language can read them. All other fields of the
 * document belong to other programs, and stay as they are.
 */
#include "fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- values ---- */

static json_t *wrapped(const char *kind, json_t *value)
{
    json_t *j = json_object();
    if (!value || json_object_set_new(j, kind, value)) {
        json_decref(j);
        return NULL;
    }
    return j;
}

static json_t *number_value(int64_t n)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)n);
    return wrapped("integerValue", json_string(text));
}

static json_t *text_value(const char *text, size_t len)
{
    return wrapped("stringValue", json_stringn(text, len));
}

/* Returns plain JSON (texts, whole numbers, arrays, objects) as a typed value of Firestore; NULL:
   out of memory. */
static json_t *to_value(const json_t *plain)
{
    const char *name;
    json_t *item, *all;
    size_t i;
    int bad = 0;
    if (json_is_string(plain))
        return text_value(json_string_value(plain), json_string_length(plain));
    if (json_is_integer(plain)) return number_value(json_integer_value(plain));
    if (json_is_array(plain)) {
        all = json_array();
        json_array_foreach(plain, i, item) bad |= json_array_append_new(all, to_value(item));
    } else {
        all = json_object();
        json_object_foreach((json_t *)plain, name, item) bad |=
            json_object_set_new(all, name, to_value(item));
    }
    if (bad) {
        json_decref(all);
        return NULL;
    }
    return json_is_array(plain) ? wrapped("arrayValue", wrapped("values", all))
                                : wrapped("mapValue", wrapped("fields", all));
}

/* Reads a whole number. Returns 0 if the value isn't one. */
static int read_number(const json_t *value, int64_t *ret)
{
    const json_t *j = json_object_get(value, "integerValue");
    const json_t *d = json_object_get(value, "doubleValue");
    const char *text = json_string_value(j);
    char *end;
    if (text && *text) {
        *ret = strtoll(text, &end, 10);
        return !*end;
    }
    if (json_is_integer(j)) {
        *ret = json_integer_value(j);
        return 1;
    }
    /* Some clients have no integers, so a double is accepted, too. */
    double n = json_number_value(d);
    if (!json_is_number(d) || !(n > -9e15 && n < 9e15) || n != (double)(int64_t)n) return 0;
    *ret = (int64_t)n;
    return 1;
}

static json_t *made(json_t *j, int *ret_rc)
{
    if (!j) *ret_rc = HF_NOMEM;
    return j;
}

/* Returns a typed value of Firestore as plain JSON. NULL: out of memory (*ret_rc is HF_NOMEM), or a
   value of a type that no row has. */
static json_t *from_value(const json_t *value, int depth, int *ret_rc)
{
    const json_t *list = json_object_get(value, "arrayValue");
    const json_t *map = json_object_get(value, "mapValue");
    const json_t *text = json_object_get(value, "stringValue");
    const char *name;
    json_t *item, *own, *all;
    size_t i;
    int64_t n;
    int bad = 0;
    if (json_is_string(text))
        return made(json_stringn(json_string_value(text), json_string_length(text)), ret_rc);
    if (!list && !map) return read_number(value, &n) ? made(json_integer(n), ret_rc) : NULL;
    if (!depth) return NULL;
    if (list) {
        all = json_array();
        json_array_foreach(json_object_get(list, "values"), i, item)
        {
            own = from_value(item, depth - 1, ret_rc);
            if (!own || !made(json_array_append_new(all, own) ? NULL : all, ret_rc)) bad = 1;
        }
    } else {
        all = json_object();
        json_object_foreach(json_object_get(map, "fields"), name, item)
        {
            own = from_value(item, depth - 1, ret_rc);
            if (!own || !made(json_object_set_new(all, name, own) ? NULL : all, ret_rc)) bad = 1;
        }
    }
    if (!bad) return made(all, ret_rc);
    json_decref(all);
    return NULL;
}

/* ---- the row ---- */

json_t *hf__fs_fields(const char *key, const hf_row *row, int *ret_rc, const char **ret_why)
{
    struct hf__fields f;
    *ret_rc = hf__put_fields(row, HF_JSON_TREE, &f, ret_why);
    json_t *fields = *ret_rc ? NULL : json_object();
    int bad = json_object_set_new(fields, "key", text_value(key, strlen(key)));
    for (int i = 0; fields && i < HF_FIELDS; i++) {
        const struct hf__field_type *is = &hf__field[i];
        if (is->kind == HF_JSON && !f.json[i]) continue;
        bad |= json_object_set_new(fields, is->name,
                                   is->kind == HF_NUMBER ? number_value(f.n[i])
                                   : is->kind == HF_TEXT ? text_value(f.text[i], f.len[i])
                                                         : to_value(f.json[i]));
    }
    hf__free_fields(&f);
    if (*ret_rc || !bad) return fields;
    json_decref(fields);
    *ret_rc = HF_NOMEM;
    *ret_why = "out of memory";
    return NULL;
}

const char *hf__fs_key_of(const json_t *fields)
{
    const json_t *key = json_object_get(json_object_get(fields, "key"), "stringValue");
    if (!json_object_get(fields, "format") || !json_object_get(fields, "rev") ||
        !json_object_get(fields, "token") || !json_object_get(fields, "owner"))
        return NULL;
    return json_string_value(key);
}

/* Reads the row's field i from the document into *f, if it is there. Returns 0 or HF_NOMEM. */
static int read_field(const json_t *fields, int i, struct hf__fields *f)
{
    const json_t *value = json_object_get(fields, hf__field[i].name);
    const json_t *text = json_object_get(value, "stringValue");
    int64_t n;
    int rc = 0;
    if (!value) return 0;
    if (hf__field[i].kind == HF_JSON) {
        json_t *plain = from_value(value, 4, &rc);
        if (plain)
            hf__got_json(f, i, plain);
        else
            hf__got_other(f, i);
    } else if (hf__field[i].kind == HF_NUMBER && read_number(value, &n)) {
        hf__got_number(f, i, n);
    } else if (hf__field[i].kind == HF_TEXT && json_is_string(text)) {
        hf__got_text(f, i, json_string_value(text), json_string_length(text));
    } else {
        hf__got_other(f, i);
    }
    return rc;
}

int hf__fs_row(const json_t *fields, const struct hf__row_reader *by, hf_row *row, hf_error *err)
{
    struct hf__fields f = HF_NO_FIELDS;
    const char *own = hf__fs_key_of(fields), *why = "out of memory";
    int rc = 0;
    hf_row_clear(row);
    if (!own || strcmp(own, by->key))
        return hf_fail(err, HF_CORRUPT, 0, "firestore: %s '%s': the document there is %s", by->what,
                       by->key, own ? "the lock of another key" : "not a lock");
    for (int i = 0; i < HF_FIELDS && !rc; i++) rc = read_field(fields, i, &f);
    if (!rc) rc = hf__read_fields(&f, HF_JSON_TREE, row, &why);
    if (rc) hf__fields_refused(by, &f, rc, why, err);
    hf__free_fields(&f);
    return rc;
}

json_t *hf__fs_field_names(void)
{
    json_t *names = json_array();
    int bad = json_array_append_new(names, json_string("key"));
    for (int i = 0; i < HF_FIELDS; i++)
        bad |= json_array_append_new(names, json_string(hf__field[i].name));
    if (!bad) return names;
    json_decref(names);
    return NULL;
}

/* ---- times ---- */

int64_t hf__fs_time(const json_t *text)
{
    const char *s = json_string_value(text);
    struct tm tm = {.tm_isdst = 0};
    int n = 0;
    if (!s || sscanf(s, "%4d-%2d-%2dT%2d:%2d:%2d%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
                     &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &n) != 6)
        return -1;
    int64_t us = 0;
    s += n;
    if (*s == '.') {
        int64_t unit = 100000;
        for (s++; *s >= '0' && *s <= '9'; s++, unit /= 10) us += (*s - '0') * unit;
    }
    if (strcmp(s, "Z")) return -1;
    tm.tm_year -= 1900;
    tm.tm_mon--;
    return (int64_t)timegm(&tm) * 1000000 + us;
}

void hf__fs_time_text(int64_t us, char ret[HF_FS_TIME_CAP])
{
    time_t s = us / 1000000;
    struct tm tm;
    char day[24];
    gmtime_r(&s, &tm);
    strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(ret, HF_FS_TIME_CAP, "%s.%06dZ", day, (int)(us % 1000000));
}
