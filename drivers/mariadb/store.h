/*
 * store.h - mariadb: what the driver's files share. See doc/stores/mariadb.md.
 */
#ifndef HF_MARIADB_STORE_H
#define HF_MARIADB_STORE_H

#include "kit/hosts.h"
#include "kit/links.h"
#include "kit/quiet.h"
#include "kit/sql.h"
#include "kit/url_options.h"

#include <mysql.h>

enum { HF_MY_NAME = 160 };

/* How to connect, as the URL says. */
struct hf__my_how {
    char user[128], password[256], database[64];
    struct hf__secret secret; /* a password that stands in a file */
    struct hf__hosts at;
    int tls, verify;
    struct hf__tls_files files;
    int64_t io_timeout_ms;
    int opened; /* a server was fit once */
};

struct hf__my_link {
    const struct hf__my_how *how;
    MYSQL *my;        /* NULL: not connected */
    int64_t until_us; /* local: the deadline of the present request; 0: each request has its own */
    int settled;      /* each reply has to say that each write commits itself */
    int pooled; /* a pooler is in between, and each request may come to another session: so each
                   one begins with the settings */
};

struct hf_store {
    struct hf__my_how how;
    struct hf__links links;
    struct hf__my_link link[HF_LINKS];
    char table[2 * HF_MY_NAME];      /* as statements name it */
    char empty[2 * HF_MY_NAME + 24]; /* the statement with which a person empties the store */
    int existing;                    /* 1: the table must not be made */
    int absent;                      /* 1: `existing`, and the table isn't there */
};

/* How many rows a page of a scan has. Before the fields of a row each reply has DONE (in a scan:
   the key), whether the server is read-only, and the clock in microseconds, in any time zone of the
   session. A server that can't be written is a replica; later versions have words for 0 and 1. */
enum { HF_MY_PAGE = 64, HF_MY_DONE = 0, HF_MY_IS_READ_ONLY, HF_MY_CLOCK, HF_MY_FIRST };
#define HF_MY_READ_ONLY "(@@innodb_read_only OR CONCAT(@@read_only) NOT IN ('0', 'OFF'))"
#define HF_MY_NOW       "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
#define HF_MY_HEAD      HF_MY_READ_ONLY ", " HF_MY_NOW

/* Reasons of failures. */
#define HF_MY_REPLICA "the server is read-only"
#define HF_MY_UNFIT   "the answer doesn't fit the request"

/* A request, and the reply to one of its statements. */
struct hf__my_reply {
    MYSQL_RES *rows;    /* NULL: none. The caller frees the last ones */
    MYSQL_ROW row;      /* the row that is read now; NULL: there is no further row */
    unsigned long *len; /* the lengths of its values */
    int at;             /* which statement it is, from 0; or the one that failed */
    int read_only;      /* 1: the server has become read-only: a replica, which may lack the latest
                           rows. The connection is closed behind the last reply */
    int code;           /* 0; or the code of the failure. The others have the reason: */
    unsigned number;    /* the server's or the library's number of the error; 0: neither */
    char state[6];      /* the server's SQLSTATE; "": there is none */
    char why[300];
    /* link.c's own: */
    struct hf__my_link *link;
    int64_t until_us;
    int ambiguous, rc, begun;
    struct hf__quiet quiet;
};

/* dial.c. Fills st->how and the table's names from the URL; INVALID says why. */
int hf__my_options(hf_store *st, const hf_url *url, hf_error *err);

/* Connects, until the local time until_us at most, to the first server that is MariaDB 10.3
   or later and isn't read-only. */
int hf__my_connect(hf_store *st, void *link, int64_t until_us, hf_error *err);
void hf__my_disconnect(struct hf__my_link *link);

/*
 * link.c. Waits for what a call of the library waits for: `wanted` is what its _start or _cont
 * returned. Returns what its _cont is passed. At the local time until_us the socket is shut down,
 * so that the call fails.
 */
int hf__my_await(MYSQL *my, int wanted, int64_t until_us);
/* Returns the events of poll for which the library waits. */
short hf__my_events(int wanted);
/* Returns the code for the number of an error; `otherwise` if the number says nothing of what was
   done. */
int hf__my_code(unsigned number, int otherwise);
/*
 * Sends the statements, each but the last with a semicolon behind it, in one request. hf__my_next
 * then reads reply after reply: it returns 1, with the first row; 0: there is no further reply, or
 * r->code says what failed. Statements before the one that failed were carried out, those behind it
 * were not. `ambiguous` is the code if it isn't known what was done. The last rows stay.
 */
void hf__my_send(struct hf__my_link *link, const struct hf__sql *sql, int ambiguous,
                 struct hf__my_reply *r);
int hf__my_next(struct hf__my_reply *r);
/* Sends the statements and reads all replies. Returns 0 and the first row of the last one; or the
   code of the failure. */
int hf__my_ask(struct hf__my_link *link, const struct hf__sql *sql, int ambiguous,
               struct hf__my_reply *r);
/* Goes to the next row. Returns 1 if there is one. */
int hf__my_fetch(struct hf__my_reply *r);

extern const struct hf__link_kind hf__my_link_kind;
int64_t hf__my_number(const struct hf__my_reply *r, int column);
struct hf__sql_row hf__my_row(const struct hf__my_reply *r);
/* Reads the row from a reply; without one *row is empty. */
int hf__my_decode(const hf_store *st, const struct hf__my_reply *r, hf_row *row, const char *what,
                  const char *key, hf_error *err);
/* Writes the second statement of a write, or the only one of a get. It brings the row of the key,
   unless the write was done. */
void hf__my_put_told(struct hf__sql *sql, const hf_store *st, const hf_rowkey *key, int write);
/*
 * Makes one request, on a connection that is free, and frees *sql. `reads`: 0, or how many rows it
 * reads at most. Returns 0 and the first row of the reply, whose rows are to be freed; HF_CONFLICT:
 * the write wasn't done; or the error.
 */
int hf__my_request(hf_store *st, struct hf__sql *sql, int reads, struct hf__my_reply *r,
                   const char *what, const char *key, hf_error *err);

/* mariadb.c, replace.c: see holdfast_driver.h; kit/links.h. */
int hf__my_get(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
               hf_error *err);
int hf__my_replace(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                   hf_row *cur, int64_t *ret_clock_us, hf_error *err);
size_t hf__my_replace_some(hf_store *st, void *link, hf_replace *item, size_t n, int64_t until_us);

#endif
