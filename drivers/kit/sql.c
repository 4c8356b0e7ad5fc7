/*
 * sql.c - see sql.h.
 */
#include "sql.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the text of a request ---- */

static int room(struct hf__sql *sql, size_t more)
{
    size_t cap = sql->cap ? sql->cap : 2048;
    while (cap < sql->len + more + 1) cap *= 2;
    if (cap > sql->cap) {
        char *text = realloc(sql->text, cap);
        if (!text) sql->no_memory = 1;
        if (!text) return 0;
        sql->text = text;
        sql->cap = cap;
    }
    return 1;
}

void hf__sql_put(struct hf__sql *sql, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0) sql->no_memory = 1;
    if (n < 0 || !room(sql, (size_t)n)) return;
    va_start(args, format);
    vsnprintf(sql->text + sql->len, (size_t)n + 1, format, args);
    va_end(args);
    sql->len += (size_t)n;
}

void hf__sql_put_bytes(struct hf__sql *sql, const char *bytes, size_t len)
{
    static const char digits[] = "0123456789abcdef";
    hf__sql_put(sql, "X'");
    if (!room(sql, 2 * len)) return;
    for (size_t i = 0; i < len; i++) {
        sql->text[sql->len++] = digits[(unsigned char)bytes[i] >> 4];
        sql->text[sql->len++] = digits[(unsigned char)bytes[i] & 15];
    }
    hf__sql_put(sql, "'");
}

void hf__sql_put_names(struct hf__sql *sql, const char *before, char quote, int n)
{
    for (int i = 0; i < n; i++)
        hf__sql_put(sql, "%s%s%c%s%c", i ? ", " : "", before, quote, hf__field[i].name, quote);
}

void hf__sql_free(struct hf__sql *sql) { free(hf__sql_take(sql)); }

char *hf__sql_take(struct hf__sql *sql)
{
    char *text = sql->text;
    if (sql->no_memory) free(text);
    if (sql->no_memory) text = NULL;
    *sql = (struct hf__sql){NULL, 0, 0, 0};
    return text;
}

/* ---- a row ---- */

int hf__sql_read(const struct hf__row_reader *where, const struct hf__sql_row *from, hf_row *row,
                 hf_error *err)
{
    struct hf__fields f = HF_NO_FIELDS;
    const char *why;
    for (int i = 0; i < HF_FIELDS; i++) {
        if (!from->value[i])
            hf__got_other(&f, i);
        else if (hf__field[i].kind == HF_NUMBER)
            hf__got_number(&f, i, strtoll(from->value[i], NULL, 10));
        else
            hf__got_text(&f, i, from->value[i], from->len[i]);
    }
    int rc = hf__read_fields(&f, HF_JSON_TEXT, row, &why);
    if (rc) rc = hf__fields_refused(where, &f, rc, why, err);
    hf__free_fields(&f);
    return rc;
}

/* ---- many rows ---- */

int hf__sql_scan(struct hf__sql_scan *s, hf_store *st,
                 int (*page)(hf_store *st, struct hf__sql_scan *s))
{
    int rc = 0;
    while (!rc && !s->all.stop) rc = page(st, s);
    hf_row_clear(&s->all.row);
    return rc;
}

int hf__sql_scan_row(struct hf__sql_scan *s, const char *text, size_t len, int64_t clock_us,
                     const struct hf__sql_row *from)
{
    hf_rowkey key = {.text = text, .len = (uint32_t)len};
    if (len >= HF_KEY_CAP)
        return hf_fail(s->err, HF_CORRUPT, 0, "%s: list: a row whose key is not a legal one",
                       s->where.store);
    s->all.stop = !hf__listing_has(&s->all, text);
    if (s->all.stop) return 0;
    key.hash = hf_key_hash(text, len);
    *s->all.ret_clock_us = clock_us;
    memcpy(s->after, text, len);
    s->after[len] = 0;
    s->after_len = (uint32_t)len;
    s->where.key = text;
    return hf__listing_show(&s->all, &key, hf__sql_read(&s->where, from, &s->all.row, s->err));
}

/* ---- errors ---- */

int hf__sql_no_table(const char *store, const char *what, const char *key, const char *table,
                     hf_error *err)
{
    return hf_fail(err, HF_UNAVAILABLE, ENOENT,
                   "%s: %s '%s': no store is there: the database has no table %s", store, what, key,
                   table);
}

void hf__sql_no_store(const hf_url *url, const char *table, int rc, hf_error *err)
{
    hf_fail(err, rc, ENOENT,
            "no store at '%s': the database has no table %s; the first lock makes it", url->safe,
            table);
}

int hf__sql_enter_at(const char *store, const hf_rowkey *key, const char *where, hf_error *err)
{
    if (!where) return 0;
    return hf_fail(err, HF_INVALID, 0,
                   "%s: enter '%s': the fence is named by the key alone: leave `where` out", store,
                   key->text);
}

int hf__sql_enter_failed(const char *store, const hf_rowkey *key, int rc, int no_guard,
                         const char *state, hf_error *err)
{
    if (no_guard)
        return hf_fail(err, HF_UNSUPPORTED, 0,
                       "%s: enter '%s': no guard is there: see holdfast "
                       "guard %s",
                       store, key->text, store);
    if (!strcmp(state, "LOST1")) rc = HF_LOST;
    if (err) err->code = rc;
    return rc;
}
