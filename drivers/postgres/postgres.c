/*
 * postgres.c - postgres://USER@HOST/DB, rows in a table. See link.h, doc/stores/postgres.md.
 *
 * This file opens a store and inspects it. The operations: rows.c, replace.c; many rows: list.c,
 * replace_many.c; the statements: sql.c; the table: table.c.
 *
 * Waiters are notified of changes by LISTEN on a connection of its own (notify.c). Only a write to
 * a row that has a waiter, before or after, notifies: all notifying transactions of a server commit
 * one after the other.
 */
#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void pg_close(hf_store *st)
{
    for (int i = 0; i < HF_LINKS; i++) hf__pg_disconnect(&st->link[i]);
    hf__pg_notify_close(&st->listener);
    hf__pg_how_free(&st->how);
    hf__pg_sql_free(&st->sql);
    hf__links_close(&st->links);
    free(st);
}

static int options(hf_store *st, const hf_url *url, hf_error *err)
{
    int rc = hf__pg_read_table(st, url, err);
    if (!rc) rc = hf__pg_how(url, &st->how, err);
    return rc ? rc : hf__pg_check(&st->how, err);
}

/* Finds the table, or makes it if that is permitted, and checks that it can be read. */
static int prepare(hf_store *st, hf_error *err)
{
    const hf_rowkey any = {.text = "holdfast", .len = 8};
    int64_t clock_us;
    hf_row row;
    int rc = *st->schema ? 0 : hf__pg_find_schema(st, err);
    if (!rc) rc = hf__pg_quote_table(st);
    snprintf(st->empty, sizeof st->empty, "DROP TABLE %s", st->how.table);
    if (!rc && !hf__pg_sql(&st->sql, st->how.table))
        rc = hf_fail(err, HF_NOMEM, 0, "postgres: open: out of memory");
    if (rc) return rc;
    hf__pg_name_channel(st);
    hf_row_init(&row);
    rc = hf__pg_get(st, &any, &row, &clock_us, err);
    hf_row_clear(&row);
    /* If that row is damaged, the client that uses it reports the damage. */
    return rc == HF_CORRUPT && !st->old ? 0 : rc;
}

static int pg_open(const hf_url *url, int64_t io_timeout_ms, hf_store **ret, hf_caps *caps,
                   hf_error *err)
{
    hf_store *st = calloc(1, sizeof *st);
    if (!st) return hf_fail(err, HF_NOMEM, 0, "postgres: open '%s': out of memory", url->safe);
    hf__links_open(&st->links, &hf__pg_link_kind, st, st->link, io_timeout_ms);
    st->how.io_timeout_ms = io_timeout_ms;
    st->existing = url->existing;
    int sys = hf__pg_notify_open(&st->listener), rc = options(st, url, err);
    if (!rc && !PQisthreadsafe())
        rc = hf_fail(err, HF_UNSUPPORTED, 0, "postgres: open: this libpq is without threads");
    if (!rc && sys)
        rc = hf_fail(err, HF_UNAVAILABLE, sys, "postgres: open: eventfd: %s", strerror(sys));
    if (!rc) rc = prepare(st, err);
    if (rc && st->absent) hf__sql_no_store(url, st->how.table, rc, err);
    if (rc) {
        pg_close(st);
        return rc;
    }
    st->how.opened = 1;
    /* LISTEN belongs to a session of the server, which a pooler gives to others. */
    st->polls = st->link[0].pooled;
    if (st->polls) caps->notify = NULL;
    *ret = st;
    return 0;
}

static int pg_replace_many(hf_store *st, hf_replace *item, size_t n, int64_t until_us)
{
    return hf__links_replace_many(&st->links, item, n, until_us);
}

static int pg_inspect(hf_store *st, void (*say)(void *arg, int ok, const char *text), void *arg,
                      hf_error *err)
{
    char text[300], state[6];
    PGresult *r;
    int rc;
    struct hf__pg_link *link = hf__links_get(&st->links, &rc, err);
    if (!rc)
        rc = hf__pg_ask(
            &st->how, link,
            HF_PG_ONCE(
                "SELECT current_setting('server_version'), current_setting('fsync'), "
                "current_setting('full_page_writes'), current_setting('synchronous_commit')"),
            0, NULL, HF_UNAVAILABLE, &r, state, "inspect", "", err);
    char database[sizeof link->database] = "";
    if (!rc) memcpy(database, link->database, sizeof database);
    hf__links_put(&st->links, link);
    if (rc) return rc;
    snprintf(text, sizeof text, "the locks are in the table %s.%s of the database %s", st->schema,
             st->name, database);
    say(arg, 1, text);
    snprintf(text, sizeof text, "PostgreSQL %s, which may be written", PQgetvalue(r, 0, 0));
    say(arg, 1, text);
    int whole = !strcmp(PQgetvalue(r, 0, 1), "on") && !strcmp(PQgetvalue(r, 0, 2), "on");
    say(arg, whole,
        whole ? "fsync and full_page_writes: a power cut doesn't damage the tables"
              : "fsync or full_page_writes is off: a power cut may damage the tables");
    int kept = strcmp(PQgetvalue(r, 0, 3), "off") != 0;
    say(arg, kept,
        kept ? "synchronous_commit: what was answered is on disk"
             : "synchronous_commit is off: what was answered may not be on disk");
    PQclear(r);
    say(arg, 1,
        st->polls ? "a pooler is in between: waiters poll"
                  : "no pooler in between: waiters are woken");
    return 0;
}

HF_DRIVER_ENTRY(postgres) = {
    .abi = HF_DRIVER_ABI,
    .name = "postgres",
    .about = "a table in a PostgreSQL database",
    .caps =
        {.queue_cap = 256, .holders_cap = 256, .threads = 1, .queues = 1, .notify = &hf__pg_notify},
    .open = pg_open,
    .close = pg_close,
    .get = hf__pg_get,
    .replace = hf__pg_replace,
    .replace_many = pg_replace_many,
    .acquire = hf__pg_acquire,
    .scan = hf__pg_scan,
    .inspect = pg_inspect,
    .enter = hf__pg_enter,
};
