/*
 * store.h - postgres: what the driver's files share.
 */
#ifndef HF_POSTGRES_STORE_H
#define HF_POSTGRES_STORE_H

#include "kit/columns.h"
#include "kit/links.h"
#include "link.h"
#include "notify.h"
#include "sql.h"

/* The parameters of a replace by the long statement. */
enum { HF_PG_SWAP_VALUES = HF_FIELDS + HF_PG_FIRST - 1 };

struct hf_store {
    struct hf__pg_how how;
    struct hf__links links;
    struct hf__pg_link link[HF_LINKS];
    struct hf__pg_listener listener;
    char schema[64], name[64]; /* the table's names; schema "": the first one of the search path */
    struct hf__pg_sql sql;
    int existing;                    /* 1: the table must not be made */
    int absent;                      /* 1: `existing`, and the table isn't there */
    int polls;                       /* 1: opened through a pooler, so without notifications */
    int old;                         /* 1: the table has the columns of format 1 */
    char empty[2 * HF_PG_NAME + 24]; /* the statement with which a person empties the store */
};

/* rows.c */
extern const struct hf__link_kind hf__pg_link_kind;
/* Fills in the error for a table that isn't there. Returns its code. */
int hf__pg_no_table(hf_store *st, const char *what, const char *at, hf_error *err);
/* Runs one statement on a free connection; a missing table is made. */
int hf__pg_request(hf_store *st, const struct hf__pg_often *often, int n, const char *const *values,
                   int ambiguous, PGresult **ret, const char *what, const char *key, hf_error *err);
/* Reads the present row after a write was refused: into *cur, from the reply, or anew if the reply
   shows the row that the write expected (`stale`). Returns HF_CONFLICT or the error. */
int hf__pg_conflict(hf_store *st, const hf_rowkey *key, const PGresult *r, int stale, hf_row *cur,
                    int64_t *ret_clock_us, const char *what, hf_error *err);
int64_t hf__pg_number(const PGresult *r, int row, int column);
/* The row that follows the first two columns; the second one reads it. */
struct hf__sql_row hf__pg_row(const PGresult *r, int at);
int hf__pg_decode(const hf_store *st, const PGresult *r, int at, hf_row *row, const char *what,
                  const char *key, hf_error *err);
int hf__pg_has_row(const PGresult *r);
/* Writes the fields as texts; numbers are written into `room`. */
void hf__pg_fill(const struct hf__fields *f, const char **values, char room[HF_FIELDS][24]);
int hf__pg_get(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
               hf_error *err);
/* Reads the row on this connection, which is the one of notifications. */
int hf__pg_read(hf_store *st, struct hf__pg_link *link, const hf_rowkey *key, hf_row *row);
int hf__pg_acquire(hf_store *st, const hf_rowkey *key, const hf_party *party, uint32_t may_queue,
                   hf_row *cur, int64_t *ret_clock_us, hf_error *err);
int hf__pg_enter(hf_store *st, const hf_rowkey *key, uint64_t token, int alone, const char *where,
                 hf_error *err);

/* replace.c. A key's hint: see there. */
static const uint64_t HF_PG_ALONE = UINT64_C(1) << 63;
uint64_t hf__pg_hint(const hf_rowkey *key);
int hf__pg_replace(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                   hf_row *cur, int64_t *ret_clock_us, hf_error *err);
void hf__pg_note_written(const hf_rowkey *key, uint64_t seen, const hf_row *row);

/* list.c */
int hf__pg_scan(hf_store *st, const char *prefix,
                int (*see)(void *arg, const hf_rowkey *, hf_row *), void *arg,
                int64_t *ret_clock_us, hf_error *err);

/* table.c */
/* Quotes the table's name for statements, "schema"."name". Returns 0 or HF_INVALID. */
int hf__pg_quote_table(hf_store *st);
/* Reads the option `table`: NAME, or SCHEMA.NAME. */
int hf__pg_read_table(hf_store *st, const hf_url *url, hf_error *err);
/* Finds the table's schema by the search path; a missing table is made. From then on statements
   name the schema, so that no other table of that name is used. */
int hf__pg_find_schema(hf_store *st, hf_error *err);
/* Writes the name of the table's channel, however long the table's name is. */
void hf__pg_name_channel(hf_store *st);

/* replace_many.c: see kit/links.h. */
size_t hf__pg_replace_some(hf_store *st, void *link, hf_replace *item, size_t n, int64_t until_us);

#endif
