/*
 * sql.h - what drivers of SQL databases share: the text of a statement, a row of a reply, the rows
 * of a table page by page, the errors of a table that isn't there and of a guard. Compiled into
 * each module that uses it.
 *
 * Thread safety: any thread, each with statements and rows of its own.
 */
#ifndef HF_KIT_SQL_H
#define HF_KIT_SQL_H

#include "columns.h"
#include "listing.h"

/* The text of a request: one statement, or several. Zeroed at first. */
struct hf__sql {
    char *text;
    size_t len, cap;
    int no_memory;
};
void hf__sql_put(struct hf__sql *sql, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Writes a literal of those bytes in hex digits: X'6162'. So texts of others can't be SQL. */
void hf__sql_put_bytes(struct hf__sql *sql, const char *bytes, size_t len);
/* Writes the names of the first n fields, each with `before` in front, between two of `quote`. */
void hf__sql_put_names(struct hf__sql *sql, const char *before, char quote, int n);
void hf__sql_free(struct hf__sql *sql);
/* Takes the text out, for the caller to free; *sql is empty then. Returns NULL if there was no
   memory. */
char *hf__sql_take(struct hf__sql *sql);

/* The fields of a row in a reply: numbers as decimal texts; NULL: SQL's NULL. Borrowed. */
struct hf__sql_row {
    const char *value[HF_FIELDS];
    size_t len[HF_FIELDS];
};
/* Returns 0 and the row, whose old content goes; or as hf__read_fields, with the error. */
int hf__sql_read(const struct hf__row_reader *where, const struct hf__sql_row *from, hf_row *row,
                 hf_error *err);

/* A scan of the rows whose keys have a prefix, in the order of the keys as bytes. */
struct hf__sql_scan {
    struct hf__listing all;
    struct hf__row_reader where;
    char after[HF_KEY_CAP]; /* the key that was read last; at first "" */
    uint32_t after_len;
    hf_error *err;
};
/*
 * Reads the pages one after the other. `page` asks for the rows from all.prefix on, and behind
 * `after`, and calls hf__sql_scan_row for each until all.stop is set. It sets all.stop itself
 * behind the last page. It returns 0, or the error.
 */
int hf__sql_scan(struct hf__sql_scan *s, hf_store *st,
                 int (*page)(hf_store *st, struct hf__sql_scan *s));
/* Takes one row of a page. Returns 0, or the error. */
int hf__sql_scan_row(struct hf__sql_scan *s, const char *key, size_t len, int64_t clock_us,
                     const struct hf__sql_row *from);

/* Sets the error of a request whose table isn't there. Returns its code. */
int hf__sql_no_table(const char *store, const char *what, const char *key, const char *table,
                     hf_error *err);
/* Sets the error, with the code `rc`, of an hf_open with HF_OPEN_EXISTING whose table isn't
   there. */
void hf__sql_no_store(const hf_url *url, const char *table, int rc, hf_error *err);

/* Checks `where` of an enter: the fence is named by the key alone. Returns 0 or HF_INVALID. */
int hf__sql_enter_at(const char *store, const hf_rowkey *key, const char *where, hf_error *err);
/* Sets the error of a failed call of the guard's procedure, holdfast_enter, and returns its code.
   `rc` and *err: the code and the text so far, which may stay. `no_guard`: the database has no such
   procedure. `state`: the SQLSTATE. */
int hf__sql_enter_failed(const char *store, const hf_rowkey *key, int rc, int no_guard,
                         const char *state, hf_error *err);

#endif
