/*
 * rows.c - postgres: requests on a free connection; the rows that they read, acquire and enter.
 *
 * Contents: connections; rows. A replace: replace.c; many rows: list.c, replace_many.c.
 *
 * Every operation is one statement in autocommit (a replace two at most), so no transaction can be
 * left open. The reply to a write that is refused has the row as of the statement's snapshot. That
 * row is used, because at that moment the write would have been refused. But if the snapshot shows
 * the rev that the write expected, another client has written while the statement ran, and the row
 * is read again.
 */
#include "kit/text.h"
#include "store.h"

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

static int works(const void *link) { return ((const struct hf__pg_link *)link)->pg != NULL; }

const struct hf__link_kind hf__pg_link_kind = {
    "postgres", sizeof(struct hf__pg_link), 1, usable, make, works, hf__pg_replace_some};

int hf__pg_no_table(hf_store *st, const char *what, const char *at, hf_error *err)
{
    st->absent = 1;
    return hf__sql_no_table("postgres", what, at, st->how.table, err);
}

/* Handles a statement that failed, having done nothing, because the table doesn't exist. In a store
   that was opened as `existing` a read finds no row (*ret is NULL for a page). Otherwise the table
   is made, and the statement sent again. */
static int ask_without_table(hf_store *st, struct hf__pg_link *link,
                             const struct hf__pg_often *often, int n, const char *const *values,
                             int ambiguous, PGresult **ret, const char *what, const char *key,
                             hf_error *err)
{
    int gets = st->existing && often == &st->sql.get;
    const char *sql = gets ? st->sql.no_row : st->sql.create;
    char state[6];
    if (st->existing && !st->how.opened) return hf__pg_no_table(st, what, key, err);
    *ret = NULL;
    if (st->existing && often == &st->sql.scan) return 0;
    int rc = hf__pg_ask(&st->how, link, HF_PG_ONCE(sql), 0, NULL, HF_UNAVAILABLE, ret, state, what,
                        key, err);
    if (gets) return rc;
    if (!rc) PQclear(*ret);
    if (!hf__pg_was_made(rc, state)) return rc;
    return hf__pg_ask(&st->how, link, often, n, values, ambiguous, ret, state, what, key, err);
}

/* Explains an error about a missing column: if the table has format 1, the error says so. */
static int missing_column(hf_store *st, struct hf__pg_link *link, int rc, const char *what,
                          const char *key, hf_error *err)
{
    const struct hf__row_reader where = {"postgres", what, key, st->empty};
    char state[6];
    PGresult *r;
    if (hf__pg_ask(&st->how, link, HF_PG_ONCE(st->sql.is_old), 0, NULL, HF_UNAVAILABLE, &r, state,
                   what, key, NULL))
        return rc;
    PQclear(r);
    if (!st->how.opened) st->old = 1;
    return hf__format_refused(&where, 1, err);
}

/* Runs one statement on a free connection. If the table is missing, makes it and sends the
   statement again. */
int hf__pg_request(hf_store *st, const struct hf__pg_often *often, int n, const char *const *values,
                   int ambiguous, PGresult **ret, const char *what, const char *key, hf_error *err)
{
    char state[6] = "";
    int rc;
    struct hf__pg_link *link = hf__links_get(&st->links, &rc, err);
    if (!rc)
        rc = hf__pg_ask(&st->how, link, often, n, values, ambiguous, ret, state, what, key, err);
    if (rc && !strcmp(state, "42703")) rc = missing_column(st, link, rc, what, key, err);
    if (rc && !strcmp(state, "42P01"))
        rc = ask_without_table(st, link, often, n, values, ambiguous, ret, what, key, err);
    hf__links_put(&st->links, link);
    return rc;
}

/* ---- rows ---- */

int64_t hf__pg_number(const PGresult *r, int row, int column)
{
    return strtoll(PQgetvalue(r, row, column), NULL, 10);
}

struct hf__sql_row hf__pg_row(const PGresult *r, int at)
{
    struct hf__sql_row row;
    for (int i = 0; i < HF_FIELDS; i++) {
        row.value[i] = PQgetisnull(r, at, i + 2) ? NULL : PQgetvalue(r, at, i + 2);
        row.len[i] = (size_t)PQgetlength(r, at, i + 2);
    }
    return row;
}

int hf__pg_decode(const hf_store *st, const PGresult *r, int at, hf_row *row, const char *what,
                  const char *key, hf_error *err)
{
    const struct hf__row_reader where = {"postgres", what, key, st->empty};
    const struct hf__sql_row from = hf__pg_row(r, at);
    return hf__sql_read(&where, &from, row, err);
}

int hf__pg_has_row(const PGresult *r) { return !PQgetisnull(r, 0, 2 + HF_FIELD_REV); }

int hf__pg_get(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
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

int hf__pg_read(hf_store *st, struct hf__pg_link *link, const hf_rowkey *key, hf_row *row)
{
    const char *values[] = {key->text};
    char state[6];
    PGresult *r;
    int rc = hf__pg_ask(&st->how, link, &st->sql.get, 1, values, HF_UNAVAILABLE, &r, state, "get",
                        key->text, NULL);
    if (rc) return rc;
    if (hf__pg_has_row(r)) rc = hf__pg_decode(st, r, 0, row, "get", key->text, NULL);
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
        rc = hf__pg_get(st, key, cur, ret_clock_us, err);
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

int hf__pg_acquire(hf_store *st, const hf_rowkey *key, const hf_party *party, uint32_t may_queue,
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

int hf__pg_enter(hf_store *st, const hf_rowkey *key, uint64_t token, int alone, const char *where,
                 hf_error *err)
{
    char text[24], state[6] = "";
    const char *values[] = {key->text, text};
    PGresult *r;
    (void)alone; /* the guard reads all holders, so any of them may enter */
    int rc = hf__sql_enter_at("postgres", key, where, err);
    if (rc) return rc;
    snprintf(text, sizeof text, "%llu", (unsigned long long)token);
    struct hf__pg_link *link = hf__links_get(&st->links, &rc, err);
    /* The NULL tells the function that this statement only enters, and reads nothing else. */
    if (!rc)
        rc = hf__pg_ask(&st->how, link,
                        HF_PG_ONCE("SELECT holdfast_enter($1::text, $2::bigint, NULL)"), 2, values,
                        HF_UNKNOWN, &r, state, "enter", key->text, err);
    hf__links_put(&st->links, link);
    if (rc) return hf__sql_enter_failed("postgres", key, rc, !strcmp(state, "42883"), state, err);
    PQclear(r);
    return 0;
}
