/*
 * request.c - mariadb: a request on one of the handle's connections, and what its reply says. See
 * store.h.
 */
#include "store.h"

#include <mysqld_error.h>
#include <stdlib.h>

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

static int make(hf_store *st, void *link, int64_t until_us, hf_error *err)
{
    return hf__my_connect(&st->how, link, until_us, err);
}

const struct hf__link_kind hf__my_link_kind = {"mariadb", sizeof(struct hf__my_link), 1, usable,
                                               make};

void hf__my_put_link(hf_store *st, struct hf__my_link *link)
{
    hf__links_put(&st->links, link, link && link->my);
}

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

/* ---- requests ---- */

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

/* Handles an error that the table isn't there. In a store that was opened as `existing` a read gets
   *ret without rows (with a clock, if it is a read of one key). Otherwise the table is made, and
   the statement sent again. */
static int ask_without_table(hf_store *st, struct hf__my_link *link, const struct hf__sql *sql,
                             int reads, int ambiguous, struct hf__my_reply *r)
{
    struct hf__sql other = {NULL, 0, 0, 0};
    int read_nothing = st->existing && reads;
    if (read_nothing) {
        hf__sql_put(&other, "SELECT 0, " HF_MY_HEAD);
        for (int i = 0; i < HF_FIELDS; i++) hf__sql_put(&other, ", NULL");
        if (reads == HF_MY_PAGE) hf__sql_put(&other, " LIMIT 0");
    } else {
        put_create(&other, st->table);
    }
    int rc = hf__my_ask(link, &other, HF_UNAVAILABLE, r);
    hf__sql_free(&other);
    return rc || read_nothing ? rc : hf__my_ask(link, sql, ambiguous, r);
}

int hf__my_request(hf_store *st, const struct hf__sql *sql, int reads, struct hf__my_reply *r,
                   const char *what, const char *key, hf_error *err)
{
    int rc, ambiguous = reads ? HF_UNAVAILABLE : HF_UNKNOWN;
    int64_t until_us = hf__local_us() + st->how.io_timeout_ms * 1000;
    struct hf__my_link *link = hf__links_get(&st->links, until_us, &rc, err);
    *r = (struct hf__my_reply){.rows = NULL};
    if (!link) return rc;
    rc = hf__my_ask(link, sql, ambiguous, r);
    int missing = rc && r->number == ER_NO_SUCH_TABLE && !r->at;
    if (missing && st->existing && !st->how.opened) st->absent = 1;
    if (missing && !st->absent) rc = ask_without_table(st, link, sql, reads, ambiguous, r);
    /* A replica may not have the latest rows, and this server has become one. */
    int replica = !rc && r->row && hf__my_number(r, HF_MY_IS_READ_ONLY);
    if (replica) hf__my_disconnect(link);
    hf__my_put_link(st, link);
    if (st->absent) return hf__sql_no_table("mariadb", what, key, st->table, err);
    if (!rc && !replica && (r->row || reads > 1)) return 0;
    if (!rc) mysql_free_result(r->rows);
    if (rc == HF_CONFLICT && !reads) return rc;
    if (rc == HF_CONFLICT) rc = HF_UNAVAILABLE;
    return hf_fail(err, rc ? rc : ambiguous, 0, "mariadb: %s '%s': %s", what, key,
                   rc        ? r->why
                   : replica ? "the server is read-only"
                             : "the answer doesn't fit the request");
}
