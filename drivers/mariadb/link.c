/*
 * link.c - mariadb: sends a request and reads its replies. See store.h.
 *
 * Contents: waiting; what an error means; a request.
 *
 * Each request is one packet of one or more statements, in autocommit. The server carries them out
 * one after the other, and stops at the first one that fails. Behind a pooler the session may be
 * another one at each request, with the settings of other clients: so the settings stand before the
 * statements, in the same request.
 */
#include "store.h"

#include <errmsg.h>
#include <mysqld_error.h>
#include <stdio.h>
#include <string.h>

/* ---- waiting ---- */

short hf__my_events(int wanted)
{
    return (short)((wanted & MYSQL_WAIT_READ ? POLLIN : 0) |
                   (wanted & MYSQL_WAIT_WRITE ? POLLOUT : 0));
}

int hf__my_await(MYSQL *my, int wanted, int64_t until_us)
{
    struct pollfd p = {(int)mysql_get_socket(my), hf__my_events(wanted), 0};
    if (hf__gate_wait_until(&p, 1, until_us) > 0) return wanted & ~MYSQL_WAIT_TIMEOUT;
    /* The call then ends by itself: it finds that the connection has ended. */
    shutdown(p.fd, SHUT_RDWR);
    return MYSQL_WAIT_TIMEOUT;
}

/* ---- what an error means ---- */

/* LEAVES: another server is the primary now. GONE: so is the connection. */
enum { STAYS, LEAVES, GONE };

/* By its number, because its text is in the server's language. */
struct meaning {
    int code; /* nothing was done: the statement was refused, or was rolled back as a whole. 0: the
                 number says nothing of what was done */
    int then;
    unsigned short number[20]; /* 0 at the end */
};

static const struct meaning *meaning_of(unsigned number)
{
    static const struct meaning unknown = {0, STAYS, {0}}, gone = {0, GONE, {0}};
    static const struct meaning all[] = {
        /* Deadlocks, and a failed certification in a Galera cluster, which has their number. */
        {HF_CONFLICT, STAYS, {ER_LOCK_DEADLOCK, ER_CHECKREAD, ER_DUP_ENTRY}},
        {HF_UNAVAILABLE,
         STAYS,
         {ER_LOCK_WAIT_TIMEOUT, ER_NO_SUCH_TABLE, ER_OUT_OF_RESOURCES, ER_OUTOFMEMORY,
          ER_LOCK_TABLE_FULL, ER_USER_LIMIT_REACHED, ER_CON_COUNT_ERROR,
          ER_TOO_MANY_USER_CONNECTIONS}},
        {HF_UNAVAILABLE,
         LEAVES,
         {ER_OPTION_PREVENTS_STATEMENT, ER_READ_ONLY_MODE, ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION,
          ER_UNKNOWN_COM_ERROR}},
        {HF_DENIED,
         STAYS,
         {ER_DBACCESS_DENIED_ERROR, ER_ACCESS_DENIED_ERROR, ER_TABLEACCESS_DENIED_ERROR,
          ER_COLUMNACCESS_DENIED_ERROR, ER_SPECIFIC_ACCESS_DENIED_ERROR, ER_PROCACCESS_DENIED_ERROR,
          ER_MUST_CHANGE_PASSWORD, ER_ACCESS_DENIED_NO_PASSWORD_ERROR, ER_HOST_NOT_PRIVILEGED,
          ER_ACCOUNT_HAS_BEEN_LOCKED, ER_MUST_CHANGE_PASSWORD_LOGIN, ER_NOT_SUPPORTED_AUTH_MODE}},
        {HF_FULL, STAYS, {ER_DISK_FULL, ER_RECORD_FILE_FULL}},
        {HF_INVALID, STAYS, {ER_BAD_DB_ERROR, ER_NO_DB_ERROR}},
        {HF_CORRUPT,
         STAYS,
         {ER_BAD_FIELD_ERROR, ER_DATA_TOO_LONG, ER_WARN_DATA_OUT_OF_RANGE,
          ER_TRUNCATED_WRONG_VALUE_FOR_FIELD, ER_NO_DEFAULT_FOR_FIELD, ER_BAD_NULL_ERROR,
          ER_WRONG_OBJECT, ER_NON_INSERTABLE_TABLE, ER_NON_UPDATABLE_TABLE, ER_PARSE_ERROR,
          ER_CRASHED_ON_USAGE, ER_CRASHED_ON_REPAIR, ER_INDEX_CORRUPT, ER_ROW_IS_REFERENCED_2,
          ER_NO_REFERENCED_ROW_2, ER_CONSTRAINT_FAILED, ER_WRONG_USAGE}},
        {0,
         GONE,
         {ER_SERVER_SHUTDOWN, ER_CONNECTION_KILLED, ER_NORMAL_SHUTDOWN, ER_NET_PACKET_TOO_LARGE}},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (const unsigned short *n = all[i].number; *n; n++)
            if (*n == number) return &all[i];
    /* The library's own numbers, or a failure without one. */
    int own = (number >= CR_MIN_ERROR && number <= CR_MAX_ERROR) || number >= CER_MIN_ERROR;
    return own || !number ? &gone : &unknown;
}

int hf__my_code(unsigned number, int otherwise)
{
    int code = meaning_of(number)->code;
    return code ? code : otherwise;
}

/* ---- a request ---- */

enum { SETTINGS = 2 };

/* Writes the settings of a session: that many statements. */
static void put_settings(struct hf__sql *sql, const struct hf__my_how *how)
{
    long long s = how->io_timeout_ms / 1000, lock_s = s > 1 ? s - 1 : 1;
    hf__sql_put(sql,
                "SET autocommit = 1, timestamp = DEFAULT, sql_mode = 'STRICT_ALL_TABLES', "
                "innodb_lock_wait_timeout = %lld, lock_wait_timeout = %lld, "
                "max_statement_time = %lld.%03lld, sql_select_limit = DEFAULT;\n"
                "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ WRITE;\n",
                lock_s, lock_s, s, (long long)(how->io_timeout_ms % 1000));
}

void hf__my_send(struct hf__my_link *link, const struct hf__sql *sql, int ambiguous,
                 struct hf__my_reply *r)
{
    struct hf__sql whole = {NULL, 0, 0, 0};
    int64_t own_us = hf__local_us() + link->how->io_timeout_ms * 1000;
    *r = (struct hf__my_reply){.link = link, .ambiguous = ambiguous};
    r->until_us = link->until_us ? link->until_us : own_us;
    if (link->how->tls) hf__quiet(&r->quiet);
    if (link->pooled) {
        put_settings(&whole, link->how);
        hf__sql_put(&whole, "%s", sql->no_memory ? "" : sql->text);
        whole.no_memory |= sql->no_memory;
        sql = &whole;
        r->at = -SETTINGS;
    }
    r->code = sql->no_memory ? HF_NOMEM : 0;
    int status = r->code ? 0 : mysql_real_query_start(&r->rc, link->my, sql->text, sql->len);
    while (status)
        status =
            mysql_real_query_cont(&r->rc, link->my, hf__my_await(link->my, status, r->until_us));
    hf__sql_free(&whole);
}

/* Ends the request. Returns 0. */
static int end(struct hf__my_reply *r)
{
    if (r->link->how->tls) hf__loud(&r->quiet);
    return 0;
}

/* Ends the request, which failed. Returns 0. */
static int failed(struct hf__my_reply *r)
{
    MYSQL *my = r->link->my;
    int late = hf__local_us() >= r->until_us, no_memory = r->code == HF_NOMEM;
    const struct meaning *m = meaning_of(r->number = mysql_errno(my));
    r->gone = m->then == GONE && !no_memory;
    const char *why = no_memory         ? "out of memory"
                      : !r->number      ? "the session isn't in autocommit"
                      : r->gone && late ? "no answer in time"
                                        : mysql_error(my);
    snprintf(r->why, sizeof r->why, "%.*s", (int)strcspn(why, "\n"), why);
    if (!r->gone) snprintf(r->state, sizeof r->state, "%s", mysql_sqlstate(my));
    mysql_free_result(r->rows);
    r->rows = NULL;
    r->row = NULL;
    if (r->at < 0) r->at = 0;
    if (!no_memory) r->code = m->code ? m->code : r->ambiguous;
    if (m->then && !no_memory) hf__my_disconnect(r->link);
    return end(r);
}

/* Returns 1 if the connection is in autocommit, outside a transaction: each write commits itself.
 */
static int commits(const MYSQL *my)
{
    return my->server_status & SERVER_STATUS_AUTOCOMMIT &&
           !(my->server_status & SERVER_STATUS_IN_TRANS);
}

int hf__my_next(struct hf__my_reply *r)
{
    MYSQL *my = r->link->my;
    do {
        if (r->begun && !mysql_more_results(my)) return end(r);
        int status = 0;
        mysql_free_result(r->rows);
        r->rows = NULL;
        if (r->begun) r->at++, status = mysql_next_result_start(&r->rc, my);
        while (status)
            status = mysql_next_result_cont(&r->rc, my, hf__my_await(my, status, r->until_us));
        r->begun = 1;
        if (r->rc || r->code) return failed(r);
        if (mysql_field_count(my)) status = mysql_store_result_start(&r->rows, my);
        while (status)
            status = mysql_store_result_cont(&r->rows, my, hf__my_await(my, status, r->until_us));
        if (mysql_field_count(my) && !r->rows) return failed(r);
        if (r->link->settled && !commits(my)) return failed(r);
    } while (r->at < 0); /* a setting's reply */
    hf__my_fetch(r);
    return 1;
}

int hf__my_ask(struct hf__my_link *link, const struct hf__sql *sql, int ambiguous,
               struct hf__my_reply *r)
{
    hf__my_send(link, sql, ambiguous, r);
    while (hf__my_next(r)) continue;
    if (r->code && r->at) r->code = ambiguous; /* the statements before it were carried out */
    return r->code;
}

int hf__my_fetch(struct hf__my_reply *r)
{
    r->row = r->rows ? mysql_fetch_row(r->rows) : NULL;
    r->len = r->row ? mysql_fetch_lengths(r->rows) : NULL;
    return r->row != NULL;
}
