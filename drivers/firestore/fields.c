/*
 * fields.c - see fields.h.
 *
 * Numbers are integerValue (a decimal text), others and queue arrays of maps, so that rules and
 * clients of every language read them. Fields that a lock doesn't have are somebody else's and stay
 * as they are.
 */
#include "fields.h"

#include "columns.h"
#include "json.h"

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

/* Plain JSON (texts, whole numbers, arrays, objects) as a value of Firestore; NULL: no memory. */
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

/* 0: not a whole number. */
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
    /* Some clients have no other numbers. */
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

/* And back; NULL: no memory, which *ret_rc says, or else something that no row holds. */
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

static json_t *column_value(const struct hf__flat *flat, const hf_row *row, int col)
{
    if (!hf__column_is_text[col]) return number_value(flat->n[col]);
    if (!hf__column_is_list(col)) return text_value(flat->text[col], flat->len[col]);
    json_t *plain = hf__list_json(row, col);
    json_t *value = plain ? to_value(plain) : NULL;
    json_decref(plain);
    return value;
}

json_t *hf__fs_fields(const char *key, const hf_row *row, int *ret_rc, const char **ret_why)
{
    struct hf__flat flat;
    *ret_rc = hf__flatten_head(row, &flat, ret_why);
    if (*ret_rc) return NULL;
    json_t *fields = json_object();
    int bad = json_object_set_new(fields, "key", text_value(key, strlen(key)));
    for (int i = 0; i < HF_COLS; i++)
        bad |= json_object_set_new(fields, hf__column_name[i], column_value(&flat, row, i));
    if (!bad) return fields;
    json_decref(fields);
    *ret_rc = hf__lists_failed(row, ret_why);
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

/* One field into its column, a list into list[0] (others) or list[1]. What isn't there is 0, or
   empty. 0, HF_NOMEM, or HF_CORRUPT: it is of another kind. */
static int read_column(const json_t *fields, int col, struct hf__flat *flat, json_t *list[2])
{
    const json_t *value = json_object_get(fields, hf__column_name[col]);
    flat->n[col] = 0;
    flat->text[col] = "";
    flat->len[col] = 0;
    if (!value) return 0;
    if (!hf__column_is_text[col]) return read_number(value, &flat->n[col]) ? 0 : HF_CORRUPT;
    if (!hf__column_is_list(col)) {
        const json_t *text = json_object_get(value, "stringValue");
        if (!json_is_string(text)) return HF_CORRUPT;
        flat->text[col] = json_string_value(text);
        flat->len[col] = json_string_length(text);
        return 0;
    }
    int rc = HF_CORRUPT;
    json_t **own = &list[col == HF_COL_QUEUE];
    *own = json_object_get(value, "arrayValue") ? from_value(value, 4, &rc) : NULL;
    return *own ? 0 : rc;
}

int hf__fs_row(const json_t *fields, const char *key, hf_row *row, const char **ret_why)
{
    struct hf__flat flat;
    json_t *list[2] = {NULL, NULL};
    const char *own = hf__fs_key_of(fields);
    int rc = 0;
    hf_row_clear(row);
    if (!own) *ret_why = "the document there is not a lock";
    if (own && strcmp(own, key)) *ret_why = "the document there is the lock of another key";
    if (!own || strcmp(own, key)) return HF_CORRUPT;
    for (int i = 0; i < HF_COLS && !rc; i++) {
        rc = read_column(fields, i, &flat, list);
        if (!rc) continue;
        *ret_why = hf__column_is_text[i] ? "a text field of another type"
                                         : "a number field of another type";
    }
    if (!rc) rc = hf__unflatten_lists(&flat, list[0], list[1], row, ret_why);
    if (rc == HF_NOMEM) *ret_why = "out of memory";
    json_decref(list[0]);
    json_decref(list[1]);
    return rc;
}

json_t *hf__fs_field_names(void)
{
    json_t *names = json_array();
    int bad = json_array_append_new(names, json_string("key"));
    for (int i = 0; i < HF_COLS; i++)
        bad |= json_array_append_new(names, json_string(hf__column_name[i]));
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
