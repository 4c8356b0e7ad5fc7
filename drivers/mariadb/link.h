/*
 * link.h - mariadb: connections to the server, and requests. See doc/stores/mariadb.md.
 */
#ifndef HF_MARIADB_LINK_H
#define HF_MARIADB_LINK_H

#include "holdfast_driver.h"
#include "kit/dial.h"
#include "kit/hosts.h"
#include "kit/sql.h"
#include "kit/url_options.h"

#include <mysql.h>

enum { HF_MY_NAME = 160, HF_MY_WHY = 300 };

/* This is 1 on a server that can't be written: a replica. Later versions have a word instead of 0
   and 1. */
#define HF_MY_READ_ONLY "(@@innodb_read_only OR CONCAT(@@read_only) NOT IN ('0', 'OFF'))"

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
    MYSQL *my;        /* NULL: not connected */
    int64_t until_us; /* local: the deadline of the present request; 0: each request has its own */
    int settled;      /* logged in, with autocommit: each write commits itself */
    int pooled;       /* a pooler is in between: each request may come to another session */
};

/* Why a request failed. */
struct hf__my_failure {
    unsigned number; /* the server's or the library's number of the error; 0: neither */
    int at;          /* the statement that failed, from 0 */
    int gone;        /* there was no answer, or it proves nothing */
    char state[6];   /* the server's SQLSTATE; "": there is none */
    char why[HF_MY_WHY];
};

/* options.c. Fills *how and the table's names from the URL; INVALID says why. */
int hf__my_options(const hf_url *url, struct hf__my_how *how, char table[2 * HF_MY_NAME],
                   hf_error *err);

/* dial.c. Connects, until the local time until_us at most, to the first server that is MariaDB 10.3
   or later and isn't read-only. */
int hf__my_connect(const struct hf__my_how *how, struct hf__my_link *link, int64_t until_us,
                   hf_error *err);
void hf__my_disconnect(struct hf__my_link *link);
/* Returns 1 if the other end has sent something, or has gone, since the last request. Sends
   nothing. */
int hf__my_broken(const struct hf__my_link *link);

/*
 * link.c. Finishes a call of the library that may wait: `status` is what its _start returned, `go`
 * calls its _cont. At the local time until_us the socket is shut down, so that the call fails.
 */
void hf__my_finish(MYSQL *my, int status, int (*go)(void *arg, int ready), void *arg,
                   int64_t until_us);
/*
 * Sends the statements, each but the last with a semicolon behind it, in one request and reads all
 * replies. Returns 0 and *ret, the rows of the last statement (NULL if it has none); else the code
 * of the failure, and *failure. `ambiguous` is the code if it isn't known what was done.
 */
int hf__my_ask(const struct hf__my_how *how, struct hf__my_link *link, const struct hf__sql *sql,
               int ambiguous, MYSQL_RES **ret, struct hf__my_failure *failure);
/* Writes the settings of a session: HF_MY_SETTINGS statements, the last one without a semicolon. */
enum { HF_MY_SETTINGS = 2 };
void hf__my_put_settings(struct hf__sql *sql, const struct hf__my_how *how);
/* Does the same as hf__my_ask, and passes the rows of each statement that succeeded to `see`, which
   frees them. An error is that of statement failure->at alone: those before it were carried out,
   those behind it were not. */
struct hf__my_each {
    void (*see)(void *arg, int at, MYSQL_RES *rows);
    void *arg;
};
int hf__my_ask_each(const struct hf__my_how *how, struct hf__my_link *link,
                    const struct hf__sql *sql, int ambiguous, const struct hf__my_each *each,
                    struct hf__my_failure *failure);

#endif
