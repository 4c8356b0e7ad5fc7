/*
 * link.c - mariadb: sends a request and reads its replies. See store.h.
 *
 * Contents: waiting; what an error means; a request; connections; replies; a request on a free
 * connection.
 *
 * Each request is one packet of one or more statements, in autocommit. The server carries them out
 * one after the other, and stops at the first one that fails. Behind a pooler the session may be
 * another one at each request, with the settings of other clients: so the settings stand before the
 * statements, in the same request.
 */
#include "store.h"

#include <errmsg.h>
#include <mysqld_error.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
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

/* An error that says nothing of what was done; one of a server that isn't the primary any more,
   where nothing was done; one by which the connection is gone. */
enum { UNCERTAIN = 100, LEAVES, GONE };

/* Returns one of these, or a code by which nothing was done: the statement was refused, or was
   rolled back as a whole. By its number, because its text is in the server's language. */
static int meaning_of(unsigned number)
{
    static const struct {
        int meaning;
        unsigned short number[20]; /* 0 at the end */
    } all[] = {
        /* Deadlocks, and a failed certification in a Galera cluster, which has their number. */
        {HF_CONFLICT, {ER_LOCK_DEADLOCK, ER_CHECKREAD, ER_DUP_ENTRY}},
        {HF_UNAVAILABLE,
         {ER_LOCK_WAIT_TIMEOUT, ER_NO_SUCH_TABLE, ER_OUT_OF_RESOURCES, ER_OUTOFMEMORY,
          ER_LOCK_TABLE_FULL, ER_USER_LIMIT_REACHED, ER_CON_COUNT_ERROR,
          ER_TOO_MANY_USER_CONNECTIONS}},
        {LEAVES,
         {ER_OPTION_PREVENTS_STATEMENT, ER_READ_ONLY_MODE, ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION,
          ER_UNKNOWN_COM_ERROR}},
        {HF_DENIED,
         {ER_DBACCESS_DENIED_ERROR, ER_ACCESS_DENIED_ERROR, ER_TABLEACCESS_DENIED_ERROR,
          ER_COLUMNACCESS_DENIED_ERROR, ER_SPECIFIC_ACCESS_DENIED_ERROR, ER_PROCACCESS_DENIED_ERROR,
          ER_MUST_CHANGE_PASSWORD, ER_ACCESS_DENIED_NO_PASSWORD_ERROR, ER_HOST_NOT_PRIVILEGED,
          ER_ACCOUNT_HAS_BEEN_LOCKED, ER_MUST_CHANGE_PASSWORD_LOGIN, ER_NOT_SUPPORTED_AUTH_MODE}},
        {HF_FULL, {ER_DISK_FULL, ER_RECORD_FILE_FULL}},
        {HF_INVALID, {ER_BAD_DB_ERROR, ER_NO_DB_ERROR}},
        {HF_CORRUPT,
         {ER_BAD_FIELD_ERROR, ER_DATA_TOO_LONG, ER_WARN_DATA_OUT_OF_RANGE,
          ER_TRUNCATED_WRONG_VALUE_FOR_FIELD, ER_NO_DEFAULT_FOR_FIELD, ER_BAD_NULL_ERROR,
          ER_WRONG_OBJECT, ER_NON_INSERTABLE_TABLE, ER_NON_UPDATABLE_TABLE, ER_PARSE_ERROR,
          ER_CRASHED_ON_USAGE, ER_CRASHED_ON_REPAIR, ER_INDEX_CORRUPT, ER_ROW_IS_REFERENCED_2,
          ER_NO_REFERENCED_ROW_2, ER_CONSTRAINT_FAILED, ER_WRONG_USAGE}},
        {GONE,
         {ER_SERVER_SHUTDOWN, ER_CONNECTION_KILLED, ER_NORMAL_SHUTDOWN, ER_NET_PACKET_TOO_LARGE}},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (const unsigned short *n = all[i].number; *n; n++)
            if (*n == number) return all[i].meaning;
    /* The library's own numbers, or a failure without one. */
    int own = (number >= CR_MIN_ERROR && number <= CR_MAX_ERROR) || number >= CER_MIN_ERROR;
    return own || !number ? GONE : UNCERTAIN;
}

int hf__my_code(unsigned number, int otherwise)
{
    int meaning = meaning_of(number);
    return meaning == LEAVES ? HF_UNAVAILABLE : meaning < UNCERTAIN ? meaning : otherwise;
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
    MYSQL *my = link->my;
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
    if (sql->no_memory) {
        r->code = HF_NOMEM;
        r->at = 0; /* nothing was sent */
        snprintf(r->why, sizeof r->why, "out of memory");
    } else {
        int status = mysql_real_query_start(&r->rc, my, sql->text, sql->len);
        while (status)
            status = mysql_real_query_cont(&r->rc, my, hf__my_await(my, status, r->until_us));
    }
    hf__sql_free(&whole);
}

/* Ends the request. Returns 0. */
static int end(struct hf__my_reply *r)
{
    if (r->read_only) hf__my_disconnect(r->link);
    if (r->link->how->tls) hf__loud(&r->quiet);
    return 0;
}

/* Ends the request, which failed. Returns 0. */
static int failed(struct hf__my_reply *r)
{
    MYSQL *my = r->link->my;
    unsigned number = r->number = mysql_errno(my);
    int gone = meaning_of(number) == GONE;
    r->code = hf__my_code(number, r->ambiguous);
    const char *why = !number                                 ? "the session isn't in autocommit"
                      : gone && hf__local_us() >= r->until_us ? "no answer in time"
                                                              : mysql_error(my);
    snprintf(r->why, sizeof r->why, "%.*s", (int)strcspn(why, "\n"), why);
    if (!gone) snprintf(r->state, sizeof r->state, "%s", mysql_sqlstate(my));
    mysql_free_result(r->rows);
    r->rows = NULL;
    r->row = NULL;
    if (r->at < 0) r->at = 0;
    if (gone || meaning_of(number) == LEAVES) hf__my_disconnect(r->link);
    return end(r);
}

int hf__my_next(struct hf__my_reply *r)
{
    MYSQL *my = r->link->my;
    do {
        if (r->code || (r->begun && !mysql_more_results(my))) return end(r);
        int status = 0;
        mysql_free_result(r->rows);
        r->rows = NULL;
        if (r->begun) r->at++, status = mysql_next_result_start(&r->rc, my);
        while (status)
            status = mysql_next_result_cont(&r->rc, my, hf__my_await(my, status, r->until_us));
        r->begun = 1;
        if (r->rc) return failed(r);
        if (mysql_field_count(my)) status = mysql_store_result_start(&r->rows, my);
        while (status)
            status = mysql_store_result_cont(&r->rows, my, hf__my_await(my, status, r->until_us));
        if (mysql_field_count(my) && !r->rows) return failed(r);
        /* Each write has to commit itself: in autocommit, outside a transaction. */
        unsigned commits = my->server_status & (SERVER_STATUS_AUTOCOMMIT | SERVER_STATUS_IN_TRANS);
        if (r->link->settled && commits != SERVER_STATUS_AUTOCOMMIT) return failed(r);
    } while (r->at < 0); /* a setting's reply */
    r->read_only |= hf__my_fetch(r) && mysql_num_fields(r->rows) >= HF_MY_FIRST &&
                    hf__my_number(r, HF_MY_IS_READ_ONLY);
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

/* ---- connections ---- */

/* A connection is broken if the other end has sent something, or has gone, since the last request.
 */
static int usable(void *of)
{
    struct hf__my_link *link = of;
    struct pollfd p = {link->my ? (int)mysql_get_socket(link->my) : -1, POLLIN, 0};
    if (poll(&p, 1, 0) > 0) hf__my_disconnect(link);
    return link->my != NULL;
}

static int works(const void *link) { return ((const struct hf__my_link *)link)->my != NULL; }

const struct hf__link_kind hf__my_link_kind = {
    "mariadb", sizeof(struct hf__my_link), 1, usable, hf__my_connect, works, hf__my_replace_some};

/* ---- replies ---- */

int64_t hf__my_number(const struct hf__my_reply *r, int column)
{
    return r->row[column] ? strtoll(r->row[column], NULL, 10) : 0;
}

struct hf__sql_row hf__my_row(const struct hf__my_reply *r)
{
    struct hf__sql_row row;
    for (int i = 0; i < HF_FIELDS; i++) {
        row.value[i] = r->row[HF_MY_FIRST + i];
        row.len[i] = r->len[HF_MY_FIRST + i];
    }
    return row;
}

int hf__my_decode(const hf_store *st, const struct hf__my_reply *r, hf_row *row, const char *what,
                  const char *key, hf_error *err)
{
    const struct hf__row_reader where = {"mariadb", what, key, st->empty};
    const struct hf__sql_row from = hf__my_row(r);
    hf_row_clear(row);
    return from.value[HF_FIELD_REV] ? hf__sql_read(&where, &from, row, err) : 0;
}

/* ---- a request on a free connection ---- */

static void put_create(struct hf__sql *sql, const char *table)
{
    static const int cap[HF_FIELDS] = {
        [HF_FIELD_OWNER] = HF_OWNER_CAP, [HF_FIELD_REQUEST] = 32, [HF_FIELD_NOTE] = HF_NOTE_CAP};
    hf__sql_put(sql, "CREATE TABLE IF NOT EXISTS %s (`key` VARBINARY(%d) NOT NULL PRIMARY KEY",
                table, HF_KEY_CAP - 1);
    for (int i = 0; i < HF_FIELDS; i++) {
        hf__sql_put(sql, ", `%s` ", hf__field[i].name);
        if (hf__field[i].kind == HF_NUMBER) hf__sql_put(sql, "BIGINT NOT NULL");
        if (hf__field[i].kind == HF_TEXT) hf__sql_put(sql, "VARBINARY(%d) NOT NULL", cap[i]);
        if (hf__field[i].kind == HF_JSON) hf__sql_put(sql, "MEDIUMBLOB NOT NULL DEFAULT ''");
    }
    hf__sql_put(sql, ") ENGINE=InnoDB");
}

void hf__my_put_told(struct hf__sql *sql, const hf_store *st, const hf_rowkey *key, int write)
{
    hf__sql_put(sql, "SELECT %s, " HF_MY_HEAD ", ", write ? "ROW_COUNT()" : "0");
    hf__sql_put_names(sql, "o.", '`', HF_FIELDS);
    hf__sql_put(sql, " FROM (SELECT 1) AS one LEFT JOIN %s AS o ON %so.`key` = ", st->table,
                write ? "ROW_COUNT() < 1 AND " : "");
    hf__sql_put_bytes(sql, key->text, key->len);
}

/* Handles an error that the table isn't there. In a store that was opened as `existing` a read
   finds no row. Otherwise the table is made, and the statement sent again. */
static int ask_without_table(hf_store *st, struct hf__my_link *link, const struct hf__sql *sql,
                             int reads, int ambiguous, struct hf__my_reply *r)
{
    struct hf__sql other = {NULL, 0, 0, 0};
    int read_nothing = st->existing && reads;
    if (read_nothing && reads == HF_MY_PAGE) return 0;
    if (read_nothing) {
        hf__sql_put(&other, "SELECT 0, " HF_MY_HEAD);
        for (int i = 0; i < HF_FIELDS; i++) hf__sql_put(&other, ", NULL");
    } else {
        put_create(&other, st->table);
    }
    int rc = hf__my_ask(link, &other, HF_UNAVAILABLE, r);
    hf__sql_free(&other);
    return rc || read_nothing ? rc : hf__my_ask(link, sql, ambiguous, r);
}

int hf__my_request(hf_store *st, struct hf__sql *sql, int reads, struct hf__my_reply *r,
                   const char *what, const char *key, hf_error *err)
{
    int rc, ambiguous = reads ? HF_UNAVAILABLE : HF_UNKNOWN;
    struct hf__my_link *link = hf__links_get(&st->links, &rc, err);
    *r = (struct hf__my_reply){.rows = NULL};
    if (link) rc = hf__my_ask(link, sql, ambiguous, r);
    int missing = rc && r->number == ER_NO_SUCH_TABLE && !r->at;
    if (missing && st->existing && !st->how.opened) st->absent = 1;
    if (missing && !st->absent) rc = ask_without_table(st, link, sql, reads, ambiguous, r);
    hf__sql_free(sql);
    if (!link) return rc;
    const char *why = r->why;
    if (!rc && r->read_only)
        why = HF_MY_REPLICA;
    else if (!rc && !r->row && reads <= 1)
        why = HF_MY_UNFIT;
    hf__links_put(&st->links, link);
    if (st->absent) return hf__sql_no_table("mariadb", what, key, st->table, err);
    if (!rc && why == r->why) return 0;
    if (!rc) mysql_free_result(r->rows);
    if (!rc) rc = ambiguous;
    if (rc == HF_CONFLICT && !reads) return rc;
    if (rc == HF_CONFLICT) rc = HF_UNAVAILABLE;
    return hf_fail(err, rc, 0, "mariadb: %s '%s': %s", what, key, why);
}
