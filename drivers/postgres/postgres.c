/*
 * postgres.c - postgres://USER@HOST/DB, rows in a table. See link.h, doc/stores/postgres.md.
 *
 * Contents: connections; rows; waiters; opening. The statements: sql.c; the table: table.c; many
 * rows: list.c.
 *
 * Every operation is one statement of its own (a replace two at most), in autocommit: there is no
 * transaction to be left open. A write that is refused tells the row as of the statement's
 * snapshot. That is an answer (at that moment the write would have been refused), unless the
 * snapshot shows the rev that the write expected: then another client was quicker within the
 * statement, and the row is read again.
 *
 * Waiters are notified of changes by LISTEN on a connection of its own (notify.c). Only a write to
 * a row that has a waiter, before or after, notifies: all notifying transactions of a server commit
 * one after the other.
 */
#include "kit/text.h"
#include "store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- connections ---- */

static int usable(void *of)
{
    struct hf__pg_link *link = of;
    if (link->pg && hf__pg_broken(link)) hf__pg_disconnect(link);
    return link->pg != NULL;
}

static int make(hf_store *st, void *link, int64_t until_us, hf_error *err)
{
    return hf__pg_connect(&st->how, link, until_us, err);
}

static const struct hf__link_kind link_kind = {"postgres", sizeof(struct hf__pg_link), 1, usable,
                                               make};

int hf__pg_get_link(hf_store *st, struct hf__pg_link **ret, hf_error *err)
{
    int rc;
    *ret = hf__links_get(&st->links, hf__local_us() + st->how.io_timeout_ms * 1000, &rc, err);
    return rc;
}

void hf__pg_put_link(hf_store *st, struct hf__pg_link *link)
{
    hf__links_put(&st->links, link, link && link->pg);
}

int hf__pg_no_table(hf_store *st, const char *what, const char *at, hf_error *err)
{
    st->absent = 1;
    return hf_fail(err, HF_UNAVAILABLE, ENOENT,
                   "postgres: %s '%s': no store is there: the database has no table '%s'", what, at,
                   st->name);
}

/* Returns the statement to send if the table doesn't exist: in a store that was opened as
   `existing` one that reads no rows, otherwise the one that makes the table. NULL: a store is being
   opened as `existing`. */
static const char *instead(const hf_store *st, const struct hf__pg_often *often)
{
    if (!st->existing) return st->sql.create;
    if (!st->how.opened) return NULL;
    return often == &st->sql.get    ? st->sql.no_row
           : often == &st->sql.scan ? st->sql.no_page
                                    : st->sql.create;
}

/* Asks again after a statement failed, having done nothing, because the table doesn't exist. */
static int ask_without_table(hf_store *st, struct hf__pg_link *link,
                             const struct hf__pg_often *often, int n, const char *const *values,
                             int ambiguous, PGresult **ret, const char *what, const char *key,
                             hf_error *err)
{
    const char *sql = instead(st, often);
    char state[6];
    if (!sql) return hf__pg_no_table(st, what, key, err);
    int rc = hf__pg_ask(&st->how, link, sql, 0, NULL, HF_UNAVAILABLE, ret, state, what, key, err);
    if (sql != st->sql.create) return rc;
    if (!rc) PQclear(*ret);
    if (!hf__pg_was_made(rc, state)) return rc;
    return hf__pg_ask_often(&st->how, link, often, n, values, ambiguous, ret, state, what, key,
                            err);
}

/* Explains an error about a missing column: if the table has format 1, the error says so. */
static int missing_column(hf_store *st, struct hf__pg_link *link, int rc, const char *what,
                          const char *key, hf_error *err)
{
    const struct hf__row_reader where = {"postgres", what, key, st->empty};
    char state[6];
    PGresult *r;
    if (hf__pg_ask(&st->how, link, st->sql.is_old, 0, NULL, HF_UNAVAILABLE, &r, state, what, key,
                   NULL))
        return rc;
    PQclear(r);
    if (!st->how.opened) st->old = 1;
    return hf__format_refused(&where, 1, err);
}

/* Runs one statement. */
int hf__pg_request(hf_store *st, const struct hf__pg_often *often, int n, const char *const *values,
                   int ambiguous, PGresult **ret, const char *what, const char *key, hf_error *err)
{
    struct hf__pg_link *link;
    char state[6] = "";
    int rc = hf__pg_get_link(st, &link, err);
    if (!rc)
        rc = hf__pg_ask_often(&st->how, link, often, n, values, ambiguous, ret, state, what, key,
                              err);
    if (rc && !strcmp(state, "42703")) rc = missing_column(st, link, rc, what, key, err);
    if (rc && !strcmp(state, "42P01"))
        rc = ask_without_table(st, link, often, n, values, ambiguous, ret, what, key, err);
    hf__pg_put_link(st, link);
    return rc;
}

/* ---- rows ---- */

int64_t hf__pg_number(const PGresult *r, int row, int column)
{
    return strtoll(PQgetvalue(r, row, column), NULL, 10);
}

/* Reads the row after the first two columns. */
int hf__pg_decode(const hf_store *st, const PGresult *r, int at, hf_row *row, const char *what,
                  const char *key, hf_error *err)
{
    struct hf__fields f = HF_NO_FIELDS;
    const struct hf__row_reader where = {"postgres", what, key, st->empty};
    const char *why;
    for (int i = 0; i < HF_FIELDS; i++) {
        if (PQgetisnull(r, at, i + 2))
            hf__got_other(&f, i);
        else if (hf__field[i].kind == HF_NUMBER)
            hf__got_number(&f, i, hf__pg_number(r, at, i + 2));
        else
            hf__got_text(&f, i, PQgetvalue(r, at, i + 2), (size_t)PQgetlength(r, at, i + 2));
    }
    int rc = hf__read_fields(&f, HF_JSON_TEXT, row, &why);
    if (rc) rc = hf__fields_refused(&where, &f, rc, why, err);
    hf__free_fields(&f);
    return rc;
}

int hf__pg_has_row(const PGresult *r) { return !PQgetisnull(r, 0, 2 + HF_FIELD_REV); }

static int pg_get(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
                  hf_error *err)
{
    const char *values[] = {key->text};
    PGresult *r;
    hf_row_clear(row);
    int rc = hf__pg_request(st, &st->sql.get, 1, values, HF_UNAVAILABLE, &r, "get", key->text, err);
    if (rc) return rc;
    *ret_clock_us = hf__pg_number(r, 0, 1);
    if (hf__pg_has_row(r)) rc = hf__pg_decode(st, r, 0, row, "get", key->text, err);
    PQclear(r);
    return rc;
}

void hf__pg_fill(const struct hf__fields *f, const char **values, char room[HF_FIELDS][24])
{
    for (int i = 0; i < HF_FIELDS; i++) {
        values[i] = hf__field[i].kind == HF_NUMBER ? room[i] : f->text[i];
        if (values[i] == room[i]) snprintf(room[i], 24, "%lld", (long long)f->n[i]);
    }
}

/* Reads the present row after a write was refused: from the reply, unless the reply shows the row
   that the write expected. */
int hf__pg_conflict(hf_store *st, const hf_rowkey *key, const PGresult *r, int stale, hf_row *cur,
                    int64_t *ret_clock_us, const char *what, hf_error *err)
{
    int rc = 0;
    if (!cur) return HF_CONFLICT;
    hf_row_clear(cur);
    if (stale)
        rc = pg_get(st, key, cur, ret_clock_us, err);
    else if (hf__pg_has_row(r))
        rc = hf__pg_decode(st, r, 0, cur, what, key->text, err);
    return rc ? rc : HF_CONFLICT;
}

/* Reads the row that an acquire has made; the request must be the last party in it. */
static int acquired(hf_store *st, const hf_rowkey *key, const PGresult *r, const hf_party *party,
                    hf_row *cur, hf_error *err)
{
    int rc = 0;
    hf_row_clear(cur);
    if (hf__pg_has_row(r))
        rc = hf__done_but(hf__pg_decode(st, r, 0, cur, "acquire", key->text, err), err);
    uint32_t n = cur->n_holders + cur->n_queue;
    if (rc || (n && !memcmp(cur->party[n - 1].id, party->id, sizeof party->id))) return rc;
    return hf_fail(err, HF_UNKNOWN, 0, "postgres: acquire '%s': the answer doesn't fit the request",
                   key->text);
}

static int pg_acquire(hf_store *st, const hf_rowkey *key, const hf_party *party, uint32_t may_queue,
                      hf_row *cur, int64_t *ret_clock_us, hf_error *err)
{
    char room[HF_FIELDS][24], most[24], claim[24], hash[24];
    const char *values[HF_PG_ACQUIRE_VALUES] = {key->text}, *why = "";
    struct hf__fields f = HF_NO_FIELDS;
    hf_row grant;
    PGresult *r;
    hf_row_init(&grant);
    /* Decides nothing: it fills in the fields that the statement stores if the key is free. */
    int rc = hf_row_acquire(&grant, party, 0, 1);
    if (!rc) rc = hf__put_fields(&grant, HF_JSON_TEXT, &f, &why);
    if (!rc) {
        const char *rest[] = {most, claim, st->listener.channel, hash};
        hf__pg_fill(&f, values + 1, room);
        memcpy(values + 1 + HF_PG_ACQUIRE, rest, sizeof rest);
        snprintf(most, sizeof most, "%u", may_queue);
        snprintf(claim, sizeof claim, "%u", party->claim_ms);
        snprintf(hash, sizeof hash, "%llu", (unsigned long long)key->hash);
        rc = hf__pg_request(st, &st->sql.acquire, HF_PG_ACQUIRE_VALUES, values, HF_UNKNOWN, &r,
                            "acquire", key->text, err);
    } else {
        hf_fail(err, rc, 0, "postgres: acquire '%s': %s", key->text, why);
    }
    hf__free_fields(&f);
    hf_row_clear(&grant);
    if (rc) return rc;
    *ret_clock_us = hf__pg_number(r, 0, 1);
    if (hf__pg_number(r, 0, 0)) {
        rc = acquired(st, key, r, party, cur, err);
    } else {
        /* The reply shows the statement's snapshot. A held row in it can be used as the present
           row. */
        int stale = !hf__pg_has_row(r) || (!*PQgetvalue(r, 0, 2 + HF_FIELD_OWNER) &&
                                           !*PQgetvalue(r, 0, 2 + HF_FIELD_QUEUE));
        rc = hf__pg_conflict(st, key, r, stale, cur, ret_clock_us, "acquire", err);
    }
    PQclear(r);
    return rc;
}

static int pg_enter(hf_store *st, const hf_rowkey *key, uint64_t token, int alone,
                    const char *where, hf_error *err)
{
    struct hf__pg_link *link;
    (void)alone; /* the guard reads all holders, so any of them may enter */
    int rc = hf__pg_get_link(st, &link, err);
    if (!rc) rc = hf__pg_enter(&st->how, link, key->text, token, where, err);
    hf__pg_put_link(st, link);
    return rc;
}

/* ---- notifications ---- */

static int pg_subscribe(hf_store *st, const hf_rowkey *key)
{
    return hf__pg_subscribe(&st->listener, key);
}

static void pg_unsubscribe(hf_store *st, const hf_rowkey *key)
{
    hf__pg_unsubscribe(&st->listener, key);
}

static int pg_flush(hf_store *st, hf_event_count *ret, hf_error *err)
{
    return hf__pg_flush(&st->how, &st->listener, ret, err);
}

static int pg_sleep(hf_store *st, const hf_event_count *since, int64_t until_us, hf_error *err)
{
    return hf__pg_sleep(&st->listener, since, until_us, err);
}

static int pg_next_event(hf_store *st, hf_key_event *ret)
{
    return hf__pg_next_event(&st->listener, ret);
}

static int pg_payload(hf_store *st, const hf_rowkey *key, hf_row *row)
{
    return hf__pg_payload(&st->listener, key, row);
}

static void pg_interrupt(hf_store *st) { hf__pg_interrupt(&st->listener); }

static const hf_notify_ops pg_notify = {.subscribe = pg_subscribe,
                                        .unsubscribe = pg_unsubscribe,
                                        .flush = pg_flush,
                                        .sleep = pg_sleep,
                                        .next_event = pg_next_event,
                                        .payload = pg_payload,
                                        .interrupt = pg_interrupt};

/* Reads the row that a notification names, by the connection on which it came. */
static int read_notified(hf_store *st, struct hf__pg_link *link, const hf_rowkey *key, hf_row *row)
{
    const char *values[] = {key->text};
    char state[6];
    PGresult *r;
    int rc = hf__pg_ask_often(&st->how, link, &st->sql.get, 1, values, HF_UNAVAILABLE, &r, state,
                              "get", key->text, NULL);
    if (rc) return rc;
    if (hf__pg_has_row(r)) rc = hf__pg_decode(st, r, 0, row, "get", key->text, NULL);
    PQclear(r);
    return rc;
}

/* ---- opening ---- */

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
    static const char *const known[] = {"table", NULL};
    int rc = hf__pg_read_table(st, url, err);
    if (!rc) rc = hf__pg_how(url, known, &st->how, err);
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
    hf__pg_notify_channel(&st->listener, st->schema, st->name);
    hf_row_init(&row);
    rc = pg_get(st, &any, &row, &clock_us, err);
    hf_row_clear(&row);
    /* If that row is damaged, the client that uses it reports the damage. */
    return rc == HF_CORRUPT && !st->old ? 0 : rc;
}

static int pg_open(const hf_url *url, int64_t io_timeout_ms, hf_store **ret, hf_caps *caps,
                   hf_error *err)
{
    (void)caps;
    hf_store *st = calloc(1, sizeof *st);
    if (!st) return hf_fail(err, HF_NOMEM, 0, "postgres: open '%s': out of memory", url->safe);
    hf__links_open(&st->links, &link_kind, st, st->link);
    st->how.io_timeout_ms = io_timeout_ms;
    st->existing = url->existing;
    int sys = hf__pg_notify_open(&st->listener, st, read_notified), rc = options(st, url, err);
    if (!rc && !PQisthreadsafe())
        rc = hf_fail(err, HF_UNSUPPORTED, 0, "postgres: open: this libpq is without threads");
    if (!rc && sys)
        rc = hf_fail(err, HF_UNAVAILABLE, sys, "postgres: open: eventfd: %s", strerror(sys));
    if (!rc) rc = prepare(st, err);
    if (rc && st->absent)
        hf_fail(err, rc, ENOENT,
                "no store at '%s': the database has no table '%s'; the first lock makes it",
                url->safe, st->name);
    if (rc) {
        pg_close(st);
        return rc;
    }
    st->how.opened = 1;
    *ret = st;
    return 0;
}

static int pg_inspect(hf_store *st, void (*say)(void *arg, int ok, const char *text), void *arg,
                      hf_error *err)
{
    char text[300], state[6];
    struct hf__pg_link *link;
    PGresult *r;
    int rc = hf__pg_get_link(st, &link, err);
    if (!rc)
        rc =
            hf__pg_ask(&st->how, link,
                       "SELECT current_setting('server_version'), current_setting('fsync'), "
                       "current_setting('full_page_writes'), current_setting('synchronous_commit')",
                       0, NULL, HF_UNAVAILABLE, &r, state, "inspect", "", err);
    char database[sizeof link->database] = "";
    if (!rc) memcpy(database, link->database, sizeof database);
    hf__pg_put_link(st, link);
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
        st->link[0].pooled ? "a pooler is in between: waiters poll"
                           : "no pooler in between: waiters are woken");
    return 0;
}

HF_DRIVER_ENTRY(postgres) = {
    .abi = HF_DRIVER_ABI,
    .name = "postgres",
    .about = "a table in a PostgreSQL database",
    .caps = {.queue_cap = 256, .holders_cap = 256, .threads = 1, .queues = 1, .notify = &pg_notify},
    .open = pg_open,
    .close = pg_close,
    .get = pg_get,
    .replace = hf__pg_replace,
    .replace_many = hf__pg_replace_many,
    .acquire = pg_acquire,
    .scan = hf__pg_scan,
    .inspect = pg_inspect,
    .enter = pg_enter,
};
