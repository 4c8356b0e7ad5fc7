/*
 * store.h - mariadb: what the driver's files share.
 */
#ifndef HF_MARIADB_STORE_H
#define HF_MARIADB_STORE_H

#include "kit/links.h"
#include "link.h"

/* How many rows a page of a scan has. Before the fields of a row each reply has DONE (in a scan:
   the key), whether the server is read-only, and the clock in microseconds, in any time zone of the
   session. */
enum { HF_MY_PAGE = 64, HF_MY_DONE = 0, HF_MY_IS_READ_ONLY, HF_MY_CLOCK, HF_MY_FIRST };
#define HF_MY_HEAD HF_MY_READ_ONLY ", TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

struct hf_store {
    struct hf__my_how how;
    struct hf__links links;
    struct hf__my_link link[HF_LINKS];
    char table[2 * HF_MY_NAME];      /* as statements name it */
    char empty[2 * HF_MY_NAME + 24]; /* the statement with which a person empties the store */
    int existing;                    /* 1: the table must not be made */
    int absent;                      /* 1: `existing`, and the table isn't there */
};

/* A reply: its rows; `row` is the one that is read now, NULL: there is no further row. `failure`:
   the reason if the request failed. */
struct hf__my_reply {
    MYSQL_RES *rows;
    MYSQL_ROW row;
    unsigned long *len;
    struct hf__my_failure failure;
};

/* request.c. See kit/links.h: a batch takes its connection there, and gives it back here. */
extern const struct hf__link_kind hf__my_link_kind;
void hf__my_put_link(hf_store *st, struct hf__my_link *link);
/* Goes to the next row. Returns 1 if there is one. */
int hf__my_fetch(struct hf__my_reply *r);
int64_t hf__my_number(const struct hf__my_reply *r, int column);
struct hf__sql_row hf__my_row(const struct hf__my_reply *r);
int hf__my_has_row(const struct hf__my_reply *r);
int hf__my_decode(const hf_store *st, const struct hf__my_reply *r, hf_row *row, const char *what,
                  const char *key, hf_error *err);
/* Writes the second statement of a write, or the only one of a get. It brings the row of the key,
   unless the write was done. */
void hf__my_put_told(struct hf__sql *sql, const hf_store *st, const hf_rowkey *key, int write);
/*
 * Makes one request, on a connection that is free. `reads`: 0, or how many rows it reads at most.
 * Returns 0 and the first row of the reply, whose *rows is to be freed; HF_CONFLICT: the write
 * wasn't done; or the error.
 */
int hf__my_request(hf_store *st, const struct hf__sql *sql, int reads, struct hf__my_reply *ret,
                   const char *what, const char *key, hf_error *err);

/* mariadb.c. The write: an INSERT, an UPDATE or a DELETE, with its semicolon. */
int hf__my_put_write(struct hf__sql *sql, const hf_store *st, const hf_rowkey *key, uint64_t seen,
                     const hf_row *row, const char **ret_why);
/* Reads the present row from the reply to a write that wasn't done. Returns HF_CONFLICT or the
   error. */
int hf__my_refused(const hf_store *st, const struct hf__my_reply *r, hf_row *cur, const char *key,
                   hf_error *err);

/* replace_many.c */
int hf__my_replace_many(hf_store *st, hf_replace *item, size_t n, int64_t until_us);

#endif
