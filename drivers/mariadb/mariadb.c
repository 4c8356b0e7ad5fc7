/*
 * mariadb.c - mariadb://USER@HOST/DB, rows in a table. See store.h, doc/stores/mariadb.md.
 *
 * Contents: rows; the guard's fence; opening; what doctor looks at. Replaces: replace.c.
 *
 * Texts are stored as bytes, so that no collation compares or pads them.
 *
 * The driver has 1,100 lines, not the 400 of a driver on the kit, for the library has neither a
 * deadline nor an end to a wait. Some 500 are connections and calls that wait for the socket with a
 * deadline, with TLS, several hosts and the meaning of each error (dial.c, link.c); 90 are hundreds
 * of replaces by one request (replace.c).
 */
#include "store.h"

#include <mysqld_error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- rows ---- */

int hf__my_get(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
               hf_error *err)
{
    struct hf__sql sql = {NULL, 0, 0, 0};
    struct hf__my_reply r;
    hf_row_clear(row);
    hf__my_put_told(&sql, st, key, 0);
    int rc = hf__my_request(st, &sql, 1, &r, "get", key->text, err);
    if (rc) return rc;
    *ret_clock_us = hf__my_number(&r, HF_MY_CLOCK);
    rc = hf__my_decode(st, &r, row, "get", key->text, err);
    mysql_free_result(r.rows);
    return rc;
}

/* ---- many rows ---- */

static int my_replace_many(hf_store *st, hf_replace *item, size_t n, int64_t until_us)
{
    return hf__links_replace_many(&st->links, item, n, until_us);
}

static int see_page(hf_store *st, struct hf__sql_scan *s)
{
    struct hf__sql sql = {NULL, 0, 0, 0};
    struct hf__my_reply r;
    int n = 0;
    hf__sql_put(&sql, "SELECT o.`key`, " HF_MY_HEAD ", ");
    hf__sql_put_names(&sql, "o.", '`', HF_FIELDS);
    hf__sql_put(&sql, " FROM %s AS o WHERE o.`key` >= ", st->table);
    hf__sql_put_bytes(&sql, s->all.prefix, strlen(s->all.prefix));
    hf__sql_put(&sql, " AND o.`key` > ");
    hf__sql_put_bytes(&sql, s->after, s->after_len);
    hf__sql_put(&sql, " ORDER BY o.`key` LIMIT %d", HF_MY_PAGE);
    int rc = hf__my_request(st, &sql, HF_MY_PAGE, &r, "list", s->all.prefix, s->err);
    if (rc) return rc;
    for (; !rc && !s->all.stop && r.row; n++, hf__my_fetch(&r)) {
        const struct hf__sql_row row = hf__my_row(&r);
        rc = hf__sql_scan_row(s, r.row[HF_MY_DONE], r.len[HF_MY_DONE],
                              hf__my_number(&r, HF_MY_CLOCK), &row);
    }
    mysql_free_result(r.rows);
    if (n < HF_MY_PAGE) s->all.stop = 1;
    return rc;
}

static int my_scan(hf_store *st, const char *prefix,
                   int (*see)(void *arg, const hf_rowkey *, hf_row *), void *arg,
                   int64_t *ret_clock_us, hf_error *err)
{
    struct hf__sql_scan s = {.where = {"mariadb", "list", "", st->empty}, .err = err};
    hf__listing_begin(&s.all, prefix, see, arg, ret_clock_us);
    return hf__sql_scan(&s, st, see_page);
}

/* ---- the guard's fence ---- */

static int my_enter(hf_store *st, const hf_rowkey *key, uint64_t token, int alone,
                    const char *where, hf_error *err)
{
    struct hf__sql sql = {NULL, 0, 0, 0};
    struct hf__my_reply r;
    (void)alone; /* the guard reads all holders, so any of them may enter */
    int rc = hf__sql_enter_at("mariadb", key, where, err);
    if (rc) return rc;
    /* With the database's name, because a pooler may choose another database. */
    hf__sql_put(&sql, "CALL %.*s.holdfast_enter(", (int)(strstr(st->table, ".`") - st->table),
                st->table);
    hf__sql_put_bytes(&sql, key->text, key->len);
    hf__sql_put(&sql, ", %llu);\nSELECT 0, " HF_MY_HEAD, (unsigned long long)token);
    rc = hf__my_request(st, &sql, 0, &r, "enter", key->text, err);
    if (!rc) mysql_free_result(r.rows);
    if (rc == HF_CONFLICT) /* rolled back, as a deadlock is: the request can be sent again */
        return hf_fail(err, HF_UNKNOWN, 0, "mariadb: enter '%s': %s", key->text, r.why);
    if (!rc) return 0;
    return hf__sql_enter_failed("mariadb", key, rc, r.number == ER_SP_DOES_NOT_EXIST, r.state, err);
}

/* ---- opening ---- */

static void my_close(hf_store *st)
{
    for (int i = 0; i < HF_LINKS; i++) hf__my_disconnect(&st->link[i]);
    hf__secret_forget(&st->how.secret);
    explicit_bzero(&st->how, sizeof st->how);
    hf__links_close(&st->links);
    free(st);
}

static int my_open(const hf_url *url, int64_t io_timeout_ms, hf_store **ret, hf_caps *caps,
                   hf_error *err)
{
    const hf_rowkey any = {.text = "holdfast", .len = 8};
    int64_t clock_us;
    hf_row row;
    (void)caps;
    hf_store *st = calloc(1, sizeof *st);
    if (!st) return hf_fail(err, HF_NOMEM, 0, "mariadb: open '%s': out of memory", url->safe);
    hf__links_open(&st->links, &hf__my_link_kind, st, st->link, io_timeout_ms);
    st->how.io_timeout_ms = io_timeout_ms;
    st->existing = url->existing;
    int rc = hf__my_options(st, url, err);
    hf_row_init(&row);
    /* Finds the table, or makes it if that is permitted, and checks that it can be read. */
    if (!rc) rc = hf__my_get(st, &any, &row, &clock_us, err);
    hf_row_clear(&row);
    if (rc == HF_CORRUPT) rc = 0; /* the client that uses that row reports the damage */
    if (rc && st->absent) hf__sql_no_store(url, st->table, rc, err);
    if (rc) {
        my_close(st);
        return rc;
    }
    st->how.opened = 1;
    *ret = st;
    return 0;
}

/* ---- what doctor looks at ---- */

static int my_inspect(hf_store *st, void (*say)(void *arg, int ok, const char *text), void *arg,
                      hf_error *err)
{
    struct hf__sql sql = {NULL, 0, 0, 0};
    char text[400];
    struct hf__my_reply r;
    const char *name = strstr(st->table, ".`") + 1;
    hf__sql_put(&sql, "SELECT 0, " HF_MY_HEAD
                      ", VERSION(), (SELECT ENGINE FROM information_schema.TABLES "
                      "WHERE TABLE_SCHEMA = ");
    hf__sql_put_bytes(&sql, st->table + 1, (size_t)(name - st->table) - 3);
    hf__sql_put(&sql, " AND TABLE_NAME = ");
    hf__sql_put_bytes(&sql, name + 1, strlen(name) - 2);
    hf__sql_put(&sql, "), @@innodb_flush_method <> 'nosync' AND "
                      "@@innodb_flush_log_at_trx_commit IN (1, 3), "
                      "CONCAT(@@innodb_doublewrite) NOT IN ('0', 'OFF'), "
                      "(SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_VARIABLES "
                      "WHERE VARIABLE_NAME = 'WSREP_ON')");
    int rc = hf__my_request(st, &sql, 1, &r, "inspect", st->table, err);
    if (rc) return rc;
    const char *value[5];
    for (int i = 0; i < 5; i++)
        value[i] = r.row[HF_MY_FIRST + i] ? r.row[HF_MY_FIRST + i] : "not known";
    int inno = !strcmp(value[1], "InnoDB"), kept = !strcmp(value[2], "1"), whole = *value[3] != '0';
    snprintf(text, sizeof text, "the locks are in the table %s", st->table);
    say(arg, 1, text);
    snprintf(text, sizeof text, "MariaDB %s, which may be written; waiters poll", value[0]);
    say(arg, 1, text);
    snprintf(text, sizeof text, "the table's engine is %s%s", value[1],
             inno ? "" : ", not InnoDB: a crash may damage it");
    say(arg, inno, text);
    say(arg, kept,
        kept
            ? "innodb_flush_log_at_trx_commit: what was answered is on disk"
            : "innodb_flush_log_at_trx_commit or innodb_flush_method: what was answered may not be "
              "on disk");
    say(arg, whole,
        whole ? "innodb_doublewrite: a power cut doesn't damage the tables"
              : "innodb_doublewrite is off: a power cut may damage the tables");
    if (!strcmp(value[4], "ON"))
        say(arg, 1, "Galera: a write that another node has overtaken is made again");
    mysql_free_result(r.rows);
    return 0;
}

HF_DRIVER_ENTRY(mariadb) = {
    .abi = HF_DRIVER_ABI,
    .name = "mariadb",
    .about = "a table in a MariaDB database",
    .caps = {.queue_cap = 256, .holders_cap = 256, .threads = 1, .queues = 1},
    .open = my_open,
    .close = my_close,
    .get = hf__my_get,
    .replace = hf__my_replace,
    .replace_many = my_replace_many,
    .scan = my_scan,
    .enter = my_enter,
    .inspect = my_inspect,
};
