/*
 * postgres.c - postgres://USER@HOST/DB, rows in a table. See link.h, doc/stores/postgres.md.
 *
 * Contents: statements; connections; rows; many rows; who waits; opening.
 *
 * Every operation is one statement of its own, in autocommit: there is no transaction to be left
 * open. A write that is refused tells the row as of the statement's snapshot. That is an answer (at
 * that moment the write would have been refused), unless the snapshot shows what the write wanted
 * to see: then somebody was quicker within the statement, and the row is read again.
 *
 * Waiters hear of changes by LISTEN on a connection of its own (ear.c). Only a write to a row in
 * which somebody waits, before or after, notifies: all notifying transactions of a server commit
 * one after the other.
 */
#include "columns.h"
#include "ear.h"
#include "link.h"
#include "pool.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SQL_CAP = 6144, PAGE_ROWS = 64, VALUES = HF_COLS + 4 };

struct hf_store {
    struct hf__pg_how how;
    struct hf__pool pool;
    struct hf__pg_link link[HF_POOL_LINKS];
    struct hf__pg_ear ear;
    char table[160];
    struct hf__pg_often get, insert, update, erase, take, scan;
    char *create;
};

/* The store's clock, in microseconds. */
#define NOW "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

/* ---- statements ---- */

struct text {
    char *to;
    size_t len, cap;
};

static void put(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(t->to + t->len, t->cap - t->len, format, args);
    va_end(args);
    t->len += n > 0 ? (size_t)n : 0;
    if (t->len >= t->cap) t->len = t->cap - 1;
}

static void put_columns(struct text *t, const char *before)
{
    for (int i = 0; i < HF_COLS; i++)
        put(t, "%s%s\"%s\"", i ? ", " : "", before, hf__column_name[i]);
}

/* $1 is the key, $2 the rev seen, $3 the channel, $4 the payload; from $5 on the columns. */
static void put_values(struct text *t)
{
    for (int i = 0; i < HF_COLS; i++)
        put(t, ", $%d::%s", i + 5, hf__column_is_text[i] ? "text" : "bigint");
}

/* Those who wait are told if the holders change, not of each other, else everybody who comes would
   wake all; and of the first who waits, who may have come for an end that nobody watches. */
static void put_matters(struct text *t)
{
    static const int holders[] = {HF_COL_GRANT, HF_COL_EXPIRES, HF_COL_OTHERS, HF_COL_FLAGS};
    put(t, " AND (");
    for (size_t i = 0; i < sizeof holders / sizeof *holders; i++) {
        int c = holders[i];
        put(t, "%so.\"%s\" <> $%d::%s", i ? " OR " : "", hf__column_name[c], c + 5,
            hf__column_is_text[c] ? "text" : "bigint");
    }
    put(t, ") OR coalesce(o.queue, '[]') = '[]' AND $%d::text <> '[]'", HF_COL_QUEUE + 5);
}

/* What a write says: whether it was done, the time, and the row that was there before it. */
static void put_told(struct text *t, const hf_store *st, int deletes)
{
    put(t, " RETURNING 1) SELECT (SELECT count(*) FROM w), " NOW ", ");
    put_columns(t, "o.");
    put(t, ", CASE WHEN EXISTS (SELECT 1 FROM w) AND (coalesce(o.queue, '[]') <> '[]'");
    if (!deletes) put_matters(t);
    put(t,
        ") THEN pg_notify($3::text, $4::text) END FROM (SELECT 1) AS one LEFT JOIN %s AS o ON "
        "o.key = $1::text",
        st->table);
}

enum { INSERT, UPDATE, ERASE, TAKE, GET, SCAN };

static char *sql_write(const hf_store *st, struct text *t, int kind)
{
    t->len = 0;
    if (kind == INSERT) {
        put(t, "WITH w AS (INSERT INTO %s (key, ", st->table);
        put_columns(t, "");
        put(t, ") SELECT $1::text");
        put_values(t);
        put(t, " WHERE $2::bigint = 0 ON CONFLICT (key) DO NOTHING");
    } else if (kind == UPDATE) {
        put(t, "WITH w AS (UPDATE %s AS t SET ", st->table);
        for (int i = 0; i < HF_COLS; i++)
            put(t, "%s\"%s\" = $%d::%s", i ? ", " : "", hf__column_name[i], i + 5,
                hf__column_is_text[i] ? "text" : "bigint");
        put(t, " WHERE t.key = $1::text AND t.rev = $2::bigint");
    } else {
        put(t, "WITH w AS (DELETE FROM %s AS t WHERE t.key = $1::text AND t.rev = $2::bigint",
            st->table);
    }
    put_told(t, st, kind == ERASE);
    return strdup(t->to);
}

static char *sql_take(const hf_store *st, struct text *t)
{
    t->len = 0;
    put(t, "WITH w AS (INSERT INTO %s AS t (key, ", st->table);
    put_columns(t, "");
    put(t, ") SELECT $1::text");
    for (int i = 0; i < HF_COLS; i++) {
        if (i == HF_COL_REV || i == HF_COL_TOKEN || i == HF_COL_GRANT || i == HF_COL_ACQUIRED)
            put(t, ", c.now");
        else if (i == HF_COL_EXPIRES)
            put(t, ", CASE WHEN $%d::bigint = 0 THEN 0 ELSE c.now + $%d::bigint * 1000 END",
                HF_COL_LEASE + 2, HF_COL_LEASE + 2);
        else
            put(t, ", $%d::%s", i + 2, hf__column_is_text[i] ? "text" : "bigint");
    }
    put(t, " FROM (SELECT " NOW " AS now) AS c ON CONFLICT (key) DO UPDATE SET ");
    for (int i = 0; i < HF_COL_DONE; i++) { /* the marker stays */
        int counts = i == HF_COL_REV || i == HF_COL_TOKEN || i == HF_COL_GRANT;
        put(t, "%s\"%s\" = ", i ? ", " : "", hf__column_name[i]);
        if (counts)
            put(t, "greatest(t.rev + 1, excluded.rev)");
        else
            put(t, "excluded.\"%s\"", hf__column_name[i]);
    }
    put(t,
        " WHERE t.owner = '' AND t.others = '[]' AND t.queue = '[]' AND t.format = excluded.format "
        "RETURNING t.*) SELECT 1, " NOW ", ");
    put_columns(t, "w.");
    put(t, " FROM w UNION ALL SELECT 0, " NOW ", ");
    put_columns(t, "o.");
    put(t,
        " FROM (SELECT 1) AS one LEFT JOIN %s AS o ON o.key = $1::text WHERE NOT EXISTS (SELECT 1 "
        "FROM w)",
        st->table);
    return strdup(t->to);
}

static int make_sql(hf_store *st)
{
    char buffer[SQL_CAP];
    struct text t = {buffer, 0, sizeof buffer};
    int made = hf__pg_often(&st->insert, INSERT, sql_write(st, &t, INSERT)) &&
               hf__pg_often(&st->update, UPDATE, sql_write(st, &t, UPDATE)) &&
               hf__pg_often(&st->erase, ERASE, sql_write(st, &t, ERASE)) &&
               hf__pg_often(&st->take, TAKE, sql_take(st, &t));
    t.len = 0;
    put(&t, "SELECT 0, " NOW ", ");
    put_columns(&t, "o.");
    put(&t, " FROM (SELECT 1) AS one LEFT JOIN %s AS o ON o.key = $1::text", st->table);
    made = made && hf__pg_often(&st->get, GET, strdup(t.to));
    t.len = 0;
    put(&t, "SELECT o.key, " NOW ", ");
    put_columns(&t, "o.");
    put(&t, " FROM %s AS o WHERE o.key >= $1::text AND o.key > $2::text ORDER BY o.key LIMIT %d",
        st->table, PAGE_ROWS);
    made = made && hf__pg_often(&st->scan, SCAN, strdup(t.to));
    t.len = 0;
    put(&t, "CREATE TABLE IF NOT EXISTS %s (key text COLLATE \"C\" PRIMARY KEY", st->table);
    for (int i = 0; i < HF_COLS; i++)
        put(&t, ", \"%s\" %s NOT NULL", hf__column_name[i],
            hf__column_is_text[i] ? "text" : "bigint");
    put(&t, ")");
    st->create = strdup(t.to);
    return made && st->create;
}

/* ---- connections ---- */

/* One that is free, the same again if it can be; connected. */
static int get_link(hf_store *st, struct hf__pg_link **ret, hf_error *err)
{
    struct hf__pg_link *link = &st->link[hf__pool_take(&st->pool)];
    *ret = link;
    if (link->pg && hf__pg_broken(link)) hf__pg_disconnect(link);
    return link->pg ? 0 : hf__pg_connect(&st->how, link, err);
}

static void put_link(hf_store *st, struct hf__pg_link *link)
{
    hf__pool_give(&st->pool, (int)(link - st->link));
}

/* One statement; if the table isn't there any more it is made again first, for then nothing was
   done. */
static int ask(hf_store *st, const struct hf__pg_often *often, int n, const char *const *values,
               int ambiguous, PGresult **ret, const char *what, const char *key, hf_error *err)
{
    struct hf__pg_link *link;
    char state[6] = "";
    int rc = get_link(st, &link, err);
    if (!rc)
        rc = hf__pg_ask_often(&st->how, link, often, n, values, ambiguous, ret, state, what, key,
                              err);
    if (rc && !strcmp(state, "42P01")) {
        PGresult *made;
        rc = hf__pg_ask(&st->how, link, st->create, 0, NULL, HF_UNAVAILABLE, &made, state, what,
                        key, err);
        if (!rc) PQclear(made);
        /* IF NOT EXISTS doesn't see one that somebody else is just making; nor its type. */
        if (!rc || !strcmp(state, "23505") || !strcmp(state, "42P07") || !strcmp(state, "42710"))
            rc = hf__pg_ask_often(&st->how, link, often, n, values, ambiguous, ret, state, what,
                                  key, err);
    }
    put_link(st, link);
    return rc;
}

/* ---- rows ---- */

static int64_t number(const PGresult *r, int row, int column)
{
    return strtoll(PQgetvalue(r, row, column), NULL, 10);
}

/* The row behind the first two columns. */
static int decode(const PGresult *r, int at, hf_row *row, const char *what, const char *key,
                  hf_error *err)
{
    struct hf__flat flat;
    const char *why = "a column is null";
    int rc = 0;
    for (int i = 0; i < HF_COLS; i++) {
        if (PQgetisnull(r, at, i + 2)) rc = HF_CORRUPT;
        flat.n[i] = hf__column_is_text[i] ? 0 : number(r, at, i + 2);
        flat.text[i] = PQgetvalue(r, at, i + 2);
        flat.len[i] = (size_t)PQgetlength(r, at, i + 2);
    }
    if (!rc) rc = hf__unflatten(&flat, row, &why);
    if (rc == HF_NOMEM) why = "out of memory";
    return rc ? hf_fail(err, rc, 0, "postgres: %s '%s': the row is damaged: %s", what, key, why)
              : 0;
}

static int has_row(const PGresult *r) { return !PQgetisnull(r, 0, 2 + HF_COL_REV); }

static int pg_get(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
                  hf_error *err)
{
    const char *values[] = {key->text};
    PGresult *r;
    hf_row_clear(row);
    int rc = ask(st, &st->get, 1, values, HF_UNAVAILABLE, &r, "get", key->text, err);
    if (rc) return rc;
    *ret_clock_us = number(r, 0, 1);
    if (has_row(r)) rc = decode(r, 0, row, "get", key->text, err);
    PQclear(r);
    return rc;
}

/* The columns as texts from `at` on; numbers are written into `room`. */
static void fill(const struct hf__flat *flat, const char **values, char room[HF_COLS][24])
{
    for (int i = 0; i < HF_COLS; i++) {
        snprintf(room[i], 24, "%lld", (long long)flat->n[i]);
        values[i] = hf__column_is_text[i] ? flat->text[i] : room[i];
    }
}

/* Refused: the row that is there, which the reply shows unless it is what the write wanted. */
static int conflict(hf_store *st, const hf_rowkey *key, const PGresult *r, int stale, hf_row *cur,
                    int64_t *ret_clock_us, const char *what, hf_error *err)
{
    int rc = 0;
    if (!cur) return HF_CONFLICT;
    hf_row_clear(cur);
    if (stale)
        rc = pg_get(st, key, cur, ret_clock_us, err);
    else if (has_row(r))
        rc = decode(r, 0, cur, what, key->text, err);
    return rc ? rc : HF_CONFLICT;
}

static int pg_swap(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                   hf_row *cur, int64_t *ret_clock_us, hf_error *err)
{
    char room[HF_COLS][24], seen_text[24], word[HF_PG_WORD_CAP];
    const char *values[VALUES] = {key->text, seen_text, st->ear.channel, word}, *why;
    struct hf__flat flat = {.others = NULL, .queue = NULL};
    PGresult *r;
    int rc = row ? hf__flatten(row, &flat, &why) : 0;
    if (rc) {
        hf__flat_free(&flat);
        return hf_fail(err, rc, 0, "postgres: swap '%s': %s", key->text, why);
    }
    snprintf(seen_text, sizeof seen_text, "%llu", (unsigned long long)seen);
    hf__pg_word(key, row, word);
    if (row) fill(&flat, values + 4, room);
    rc = ask(st,
             !row   ? &st->erase
             : seen ? &st->update
                    : &st->insert,
             row ? VALUES : 4, values, HF_UNKNOWN, &r, "swap", key->text, err);
    hf__flat_free(&flat);
    if (rc) return rc;
    *ret_clock_us = number(r, 0, 1);
    if (!number(r, 0, 0)) {
        uint64_t there = has_row(r) ? (uint64_t)number(r, 0, 2 + HF_COL_REV) : 0;
        rc = conflict(st, key, r, there == seen, cur, ret_clock_us, "swap", err);
    }
    PQclear(r);
    return rc;
}

static int pg_take(hf_store *st, const hf_rowkey *key, const hf_party *party, hf_row *cur,
                   int64_t *ret_clock_us, hf_error *err)
{
    char room[HF_COLS][24];
    const char *values[VALUES] = {key->text}, *why;
    struct hf__flat flat;
    hf_row grant;
    PGresult *r;
    hf_row_init(&grant);
    int rc = hf_row_take(&grant, party, 1);
    if (!rc) rc = hf__flatten(&grant, &flat, &why);
    hf_row_clear(&grant);
    if (rc) {
        hf__flat_free(&flat);
        return hf_fail(err, rc, 0, "postgres: take '%s': %s", key->text, why);
    }
    fill(&flat, values + 1, room);
    rc = ask(st, &st->take, HF_COLS + 1, values, HF_UNKNOWN, &r, "take", key->text, err);
    hf__flat_free(&flat);
    if (rc) return rc;
    *ret_clock_us = number(r, 0, 1);
    if (number(r, 0, 0)) {
        rc = decode(r, 0, cur, "take", key->text, err);
    } else {
        int stale = !has_row(r) || (!*PQgetvalue(r, 0, 2 + HF_COL_OWNER) &&
                                    !strcmp(PQgetvalue(r, 0, 2 + HF_COL_QUEUE), "[]"));
        rc = conflict(st, key, r, stale, cur, ret_clock_us, "take", err);
    }
    PQclear(r);
    return rc;
}

static int pg_enter(hf_store *st, const hf_rowkey *key, uint64_t token, int alone,
                    const char *where, hf_error *err)
{
    struct hf__pg_link *link;
    (void)alone; /* the guard knows of all holders */
    int rc = get_link(st, &link, err);
    if (!rc) rc = hf__pg_enter(&st->how, link, key->text, token, where, err);
    put_link(st, link);
    return rc;
}

/* ---- many rows ---- */

static int pg_scan(hf_store *st, const char *prefix,
                   int (*see)(void *arg, const hf_rowkey *, hf_row *), void *arg,
                   int64_t *ret_clock_us, hf_error *err)
{
    char after[HF_KEY_CAP] = "";
    const char *values[] = {prefix, after};
    size_t n_prefix = strlen(prefix);
    int rc, n, stop = 0;
    hf_row row;
    hf_row_init(&row);
    do {
        PGresult *r;
        rc = ask(st, &st->scan, 2, values, HF_UNAVAILABLE, &r, "list", prefix, err);
        if (rc) break;
        n = PQntuples(r);
        for (int i = 0; i < n && !stop && !rc; i++) {
            hf_rowkey key = {.text = PQgetvalue(r, i, 0), .len = (uint32_t)PQgetlength(r, i, 0)};
            if (key.len >= HF_KEY_CAP)
                rc = hf_fail(err, HF_CORRUPT, 0, "postgres: list: a key that is none");
            else if (strncmp(key.text, prefix, n_prefix))
                stop = 1;
            if (rc || stop) break;
            key.hash = hf_key_hash(key.text, key.len);
            *ret_clock_us = number(r, i, 1);
            memcpy(after, key.text, key.len + 1);
            rc = decode(r, i, &row, "list", key.text, err);
            if (!rc || rc == HF_CORRUPT) stop = see(arg, &key, rc ? NULL : &row);
            if (rc == HF_CORRUPT) rc = 0;
        }
        PQclear(r);
    } while (!rc && !stop && n == PAGE_ROWS);
    hf_row_clear(&row);
    return rc;
}

/* ---- who waits ---- */

static int pg_listen(hf_store *st, uint8_t bell, const hf_rowkey *const *keys, size_t n,
                     hf_ear *ret, hf_error *err)
{
    (void)bell;
    return hf__pg_listen(&st->how, &st->ear, keys, n, ret, err);
}

static int pg_watch(hf_store *st, uint8_t bell, const hf_ear *ear, int64_t until_us, hf_error *err)
{
    (void)bell;
    return hf__pg_watch(&st->ear, ear, until_us, err);
}

static int pg_told(hf_store *st, const hf_rowkey *key, hf_row *row)
{
    return hf__pg_told(&st->ear, key, row);
}

static uint64_t pg_rang(hf_store *st, const hf_rowkey *key) { return hf__pg_rang(&st->ear, key); }

/* By the connection that listens. */
static int read_heard(hf_store *st, struct hf__pg_link *link, const hf_rowkey *key, hf_row *row)
{
    const char *values[] = {key->text};
    char state[6];
    PGresult *r;
    int rc = hf__pg_ask_often(&st->how, link, &st->get, 1, values, HF_UNAVAILABLE, &r, state, "get",
                              key->text, NULL);
    if (rc) return rc;
    if (has_row(r)) rc = decode(r, 0, row, "get", key->text, NULL);
    PQclear(r);
    return rc;
}

static void pg_interrupt(hf_store *st, uint8_t bell)
{
    (void)bell;
    hf__pg_interrupt(&st->ear);
}

/* ---- opening ---- */

static void pg_close(hf_store *st)
{
    for (int i = 0; i < HF_POOL_LINKS; i++) hf__pg_disconnect(&st->link[i]);
    hf__pg_ear_close(&st->ear);
    hf__pg_how_free(&st->how);
    char *sql[] = {st->get.sql,  st->insert.sql, st->update.sql, st->erase.sql,
                   st->take.sql, st->scan.sql,   st->create};
    for (size_t i = 0; i < sizeof sql / sizeof *sql; i++) free(sql[i]);
    hf__pool_close(&st->pool);
    free(st);
}

static int options(hf_store *st, const hf_url *url, hf_error *err)
{
    static const char *const known[] = {"table", NULL};
    char name[64];
    int rc = hf_url_get(url, "table", name, sizeof name);
    if (rc == HF_UNSUPPORTED) snprintf(name, sizeof name, "holdfast");
    if (rc == HF_INVALID || strlen(name) > 50 || strchr(name, '"') ||
        hf__quote_name(name, st->table, sizeof st->table))
        return hf_fail(err, HF_INVALID, 0,
                       "postgres: open '%s': table: not a name of 1 to 50 bytes", url->safe);
    snprintf(st->ear.channel, sizeof st->ear.channel, "holdfast:%s", name);
    return hf__pg_how(url, known, &st->how, err);
}

/* The table, where it is missing and may be made. */
static int prepare(hf_store *st, hf_error *err)
{
    const hf_rowkey any = {.text = "holdfast", .len = 8};
    int64_t clock_us;
    hf_row row;
    hf_row_init(&row);
    int rc = pg_get(st, &any, &row, &clock_us, err);
    hf_row_clear(&row);
    /* Whatever may be wrong with that row is its user's to hear. */
    return rc == HF_CORRUPT ? 0 : rc;
}

static int pg_open(const hf_url *url, int64_t io_timeout_ms, hf_store **ret, hf_error *err)
{
    hf_store *st = calloc(1, sizeof *st);
    if (!st) return hf_fail(err, HF_NOMEM, 0, "postgres: open '%s': out of memory", url->safe);
    hf__pool_open(&st->pool);
    st->how.io_timeout_ms = io_timeout_ms;
    int sys = hf__pg_ear_open(&st->ear, st, read_heard), rc = options(st, url, err);
    if (!rc && !PQisthreadsafe())
        rc = hf_fail(err, HF_UNSUPPORTED, 0, "postgres: open: this libpq is without threads");
    if (!rc && sys)
        rc = hf_fail(err, HF_UNAVAILABLE, sys, "postgres: open: eventfd: %s", strerror(sys));
    if (!rc && !make_sql(st))
        rc = hf_fail(err, HF_NOMEM, 0, "postgres: open '%s': out of memory", url->safe);
    if (!rc) rc = prepare(st, err);
    if (rc) {
        pg_close(st);
        return rc;
    }
    *ret = st;
    return 0;
}

static int pg_inspect(hf_store *st, void (*say)(void *arg, int ok, const char *text), void *arg,
                      hf_error *err)
{
    char text[300], state[6];
    struct hf__pg_link *link;
    PGresult *r;
    int rc = get_link(st, &link, err);
    if (!rc)
        rc =
            hf__pg_ask(&st->how, link,
                       "SELECT current_setting('server_version'), current_setting('fsync'), "
                       "current_setting('full_page_writes'), current_setting('synchronous_commit')",
                       0, NULL, HF_UNAVAILABLE, &r, state, "inspect", "", err);
    put_link(st, link);
    if (rc) return rc;
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
        st->link[0].pooled ? "a pooler is in between: waiters poll"
                           : "no pooler in between: waiters are woken");
    return 0;
}

extern HF_API const hf_driver HF_DRIVER_SYMBOL;
const hf_driver HF_DRIVER_SYMBOL = {
    .abi = HF_DRIVER_ABI,
    .name = "postgres",
    .about = "a table in a PostgreSQL database",
    .can = HF_CAN_THREADS,
    .queue_cap = 256,
    .holders_cap = 256,
    .open = pg_open,
    .close = pg_close,
    .get = pg_get,
    .swap = pg_swap,
    .take = pg_take,
    .listen = pg_listen,
    .watch = pg_watch,
    .interrupt = pg_interrupt,
    .told = pg_told,
    .rang = pg_rang,
    .scan = pg_scan,
    .inspect = pg_inspect,
    .enter = pg_enter,
};
