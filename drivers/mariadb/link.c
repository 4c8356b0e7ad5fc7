/*
 * link.c - mariadb: sends a request and reads its replies. See link.h.
 *
 * Contents: calls that wait; what an error means; a request.
 *
 * Each request is one packet of one or more statements, in autocommit. The server carries them out
 * one after the other, and stops at the first one that fails. Behind a pooler the session may be
 * another one at each request, with the settings of other clients: so the settings stand before the
 * statements, in the same request.
 */
#include "link.h"

#include "kit/quiet.h"

#include <errmsg.h>
#include <mysqld_error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- calls that wait ---- */

/* Waits for these events. Returns those that have come, by the library's names; MYSQL_WAIT_TIMEOUT:
   the time is up. */
static int await(MYSQL *my, int wanted, int64_t until_us)
{
    short events = (short)((wanted & MYSQL_WAIT_READ ? POLLIN : 0) |
                           (wanted & MYSQL_WAIT_WRITE ? POLLOUT : 0) |
                           (wanted & MYSQL_WAIT_EXCEPT ? POLLPRI : 0));
    struct pollfd p = {(int)mysql_get_socket(my), events, 0};
    if (hf__gate_wait_until(&p, 1, until_us) <= 0) return MYSQL_WAIT_TIMEOUT;
    if (p.revents & ~events) return wanted & ~MYSQL_WAIT_TIMEOUT;
    return (p.revents & POLLIN ? MYSQL_WAIT_READ : 0) |
           (p.revents & POLLOUT ? MYSQL_WAIT_WRITE : 0) |
           (p.revents & POLLPRI ? MYSQL_WAIT_EXCEPT : 0);
}

void hf__my_finish(MYSQL *my, int status, int (*go)(void *arg, int ready), void *arg,
                   int64_t until_us)
{
    while (status) {
        int ready = await(my, status, until_us);
        /* The call then ends by itself: it finds that the connection has ended. */
        if (ready == MYSQL_WAIT_TIMEOUT) shutdown((int)mysql_get_socket(my), SHUT_RDWR);
        status = go(arg, ready);
    }
}

/* A call of the library that is under way, and what it returned. */
struct call {
    MYSQL *my;
    int rc;
    MYSQL_RES *rows;
};

static int query_cont(void *arg, int ready)
{
    struct call *c = arg;
    return mysql_real_query_cont(&c->rc, c->my, ready);
}

static int next_cont(void *arg, int ready)
{
    struct call *c = arg;
    return mysql_next_result_cont(&c->rc, c->my, ready);
}

static int store_cont(void *arg, int ready)
{
    struct call *c = arg;
    return mysql_store_result_cont(&c->rows, c->my, ready);
}

/* ---- what an error means ---- */

/*
 * Returns the code for an error of a statement, by its number, because its text is in the server's
 * language. `ambiguous`: the statement was carried out, or may have been. Any other code: nothing
 * was done, because the statement was refused, or was rolled back as a whole: deadlocks, a failed
 * certification in a Galera cluster (which has the number of a deadlock), a lock not granted in
 * time.
 */
static int code_of(unsigned number, int ambiguous)
{
    static const struct {
        int code;
        unsigned short number[20]; /* 0 at the end */
    } all[] = {
        {HF_CONFLICT, {ER_LOCK_DEADLOCK, ER_CHECKREAD, ER_DUP_ENTRY}},
        {HF_UNAVAILABLE,
         {ER_LOCK_WAIT_TIMEOUT, ER_OPTION_PREVENTS_STATEMENT, ER_READ_ONLY_MODE,
          ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION, ER_UNKNOWN_COM_ERROR, ER_NO_SUCH_TABLE,
          ER_OUT_OF_RESOURCES, ER_OUTOFMEMORY, ER_LOCK_TABLE_FULL, ER_USER_LIMIT_REACHED,
          ER_CON_COUNT_ERROR, ER_TOO_MANY_USER_CONNECTIONS}},
        {HF_DENIED,
         {ER_DBACCESS_DENIED_ERROR, ER_ACCESS_DENIED_ERROR, ER_TABLEACCESS_DENIED_ERROR,
          ER_COLUMNACCESS_DENIED_ERROR, ER_SPECIFIC_ACCESS_DENIED_ERROR, ER_PROCACCESS_DENIED_ERROR,
          ER_MUST_CHANGE_PASSWORD}},
        {HF_FULL, {ER_DISK_FULL, ER_RECORD_FILE_FULL}},
        {HF_INVALID, {ER_BAD_DB_ERROR, ER_NO_DB_ERROR}},
        {HF_CORRUPT,
         {ER_BAD_FIELD_ERROR, ER_DATA_TOO_LONG, ER_WARN_DATA_OUT_OF_RANGE,
          ER_TRUNCATED_WRONG_VALUE_FOR_FIELD, ER_NO_DEFAULT_FOR_FIELD, ER_BAD_NULL_ERROR,
          ER_WRONG_OBJECT, ER_NON_INSERTABLE_TABLE, ER_NON_UPDATABLE_TABLE, ER_PARSE_ERROR,
          ER_CRASHED_ON_USAGE, ER_CRASHED_ON_REPAIR, ER_INDEX_CORRUPT, ER_ROW_IS_REFERENCED_2,
          ER_NO_REFERENCED_ROW_2, ER_CONSTRAINT_FAILED, ER_WRONG_USAGE}},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (const unsigned short *n = all[i].number; *n; n++)
            if (*n == number) return all[i].code;
    return ambiguous;
}

/* Returns 1 if the server has become read-only: another server is the primary now. */
static int is_read_only(unsigned number)
{
    return number == ER_OPTION_PREVENTS_STATEMENT || number == ER_READ_ONLY_MODE ||
           number == ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION || number == ER_UNKNOWN_COM_ERROR;
}

/* Returns 1 if the connection is gone: an error of the library, or the server's message that it
   ends the connection. */
static int is_gone(unsigned number)
{
    return (number >= CR_MIN_ERROR && number <= CR_MAX_ERROR) || number >= CER_MIN_ERROR ||
           number == ER_SERVER_SHUTDOWN || number == ER_CONNECTION_KILLED ||
           number == ER_NORMAL_SHUTDOWN || number == ER_NET_PACKET_TOO_LARGE;
}

/* ---- a request ---- */

/* Reads the rows of a statement's reply into c->rows. Returns 0; -1: that failed. */
static int store(struct call *c, int64_t until_us)
{
    if (!mysql_field_count(c->my)) return 0;
    hf__my_finish(c->my, mysql_store_result_start(&c->rows, c->my), store_cont, c, until_us);
    return c->rows ? 0 : -1;
}

/* Returns 1 if the connection is in autocommit, outside a transaction: each write commits itself.
 */
static int commits(const MYSQL *my)
{
    return my->server_status & SERVER_STATUS_AUTOCOMMIT &&
           !(my->server_status & SERVER_STATUS_IN_TRANS);
}

void hf__my_put_settings(struct hf__sql *sql, const struct hf__my_how *how)
{
    long long s = how->io_timeout_ms / 1000, lock_s = s > 1 ? s - 1 : 1;
    hf__sql_put(sql,
                "SET autocommit = 1, timestamp = DEFAULT, sql_mode = 'STRICT_ALL_TABLES', "
                "innodb_lock_wait_timeout = %lld, lock_wait_timeout = %lld, "
                "max_statement_time = %lld.%03lld, sql_select_limit = DEFAULT;\n"
                "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ WRITE",
                lock_s, lock_s, s, (long long)(how->io_timeout_ms % 1000));
}

/* Reads all replies, and passes each to `each`, but for the first ones, whose number is *at below
   0. Returns 0; otherwise *at is the statement that failed. */
static int converse(struct call *c, const struct hf__my_link *link, const struct hf__sql *sql,
                    int64_t until_us, const struct hf__my_each *each, int *at)
{
    hf__my_finish(c->my, mysql_real_query_start(&c->rc, c->my, sql->text, sql->len), query_cont, c,
                  until_us);
    for (; !c->rc && !(c->rc = store(c, until_us)); ++*at) {
        if (link->settled && !commits(c->my)) return -1;
        if (*at >= 0) each->see(each->arg, *at, c->rows);
        c->rows = NULL; /* a setting has none */
        if (!mysql_more_results(c->my)) return 0;
        hf__my_finish(c->my, mysql_next_result_start(&c->rc, c->my), next_cont, c, until_us);
    }
    return -1;
}

/* Writes the request of a link behind a pooler. */
static void put_pooled(struct hf__sql *to, const struct hf__my_how *how, const struct hf__sql *sql)
{
    hf__my_put_settings(to, how);
    hf__sql_put(to, ";\n%s", sql->no_memory ? "" : sql->text);
    to->no_memory |= sql->no_memory;
}

static int ask(const struct hf__my_how *how, struct hf__my_link *link, const struct hf__sql *sql,
               int ambiguous, const struct hf__my_each *each, struct hf__my_failure *failure)
{
    int64_t until_us = link->until_us ? link->until_us : hf__local_us() + how->io_timeout_ms * 1000;
    struct call c = {link->my, 0, NULL};
    struct hf__sql pooled = {NULL, 0, 0, 0};
    *failure = (struct hf__my_failure){.at = 0};
    if (link->pooled && link->settled) {
        put_pooled(&pooled, how, sql);
        sql = &pooled;
        failure->at = -HF_MY_SETTINGS;
    }
    int no_memory = sql->no_memory;
    int rc = no_memory ? -1 : converse(&c, link, sql, until_us, each, &failure->at);
    hf__sql_free(&pooled);
    if (!rc) return 0;
    if (failure->at < 0) failure->at = 0;
    if (no_memory) {
        snprintf(failure->why, sizeof failure->why, "out of memory");
        return HF_NOMEM;
    }
    mysql_free_result(c.rows);
    failure->number = mysql_errno(link->my);
    snprintf(failure->why, sizeof failure->why, "%.*s", (int)strcspn(mysql_error(link->my), "\n"),
             mysql_error(link->my));
    failure->gone = is_gone(failure->number) || !failure->number;
    if (!failure->gone)
        snprintf(failure->state, sizeof failure->state, "%s", mysql_sqlstate(link->my));
    if (!failure->number)
        snprintf(failure->why, sizeof failure->why, "the session isn't in autocommit");
    else if (failure->gone && hf__local_us() >= until_us)
        snprintf(failure->why, sizeof failure->why, "no answer in time");
    if (failure->gone || is_read_only(failure->number)) hf__my_disconnect(link);
    return failure->gone ? ambiguous : code_of(failure->number, ambiguous);
}

int hf__my_ask_each(const struct hf__my_how *how, struct hf__my_link *link,
                    const struct hf__sql *sql, int ambiguous, const struct hf__my_each *each,
                    struct hf__my_failure *failure)
{
    struct hf__quiet quiet;
    if (how->tls) hf__quiet(&quiet);
    int rc = ask(how, link, sql, ambiguous, each, failure);
    if (how->tls) hf__loud(&quiet);
    return rc;
}

static void keep_last(void *arg, int at, MYSQL_RES *rows)
{
    MYSQL_RES **last = arg;
    (void)at;
    mysql_free_result(*last);
    *last = rows;
}

int hf__my_ask(const struct hf__my_how *how, struct hf__my_link *link, const struct hf__sql *sql,
               int ambiguous, MYSQL_RES **ret, struct hf__my_failure *failure)
{
    const struct hf__my_each each = {keep_last, ret};
    *ret = NULL;
    int rc = hf__my_ask_each(how, link, sql, ambiguous, &each, failure);
    if (!rc) return 0;
    mysql_free_result(*ret);
    *ret = NULL;
    return failure->at ? ambiguous : rc; /* the statements before this one were carried out */
}
