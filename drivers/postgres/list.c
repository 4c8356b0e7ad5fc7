/*
 * list.c - postgres: lists the rows of a table, page by page.
 */
#include "store.h"

#include "kit/sql.h"

static int see_page(hf_store *st, struct hf__sql_scan *s)
{
    const char *values[] = {s->all.prefix, s->after};
    PGresult *r;
    int rc = hf__pg_request(st, &st->sql.scan, 2, values, HF_UNAVAILABLE, &r, "list", s->all.prefix,
                            s->err);
    if (rc) return rc;
    int n = PQntuples(r);
    for (int i = 0; i < n && !s->all.stop && !rc; i++) {
        const struct hf__sql_row row = hf__pg_row(r, i);
        rc = hf__sql_scan_row(s, PQgetvalue(r, i, 0), (size_t)PQgetlength(r, i, 0),
                              hf__pg_number(r, i, 1), &row);
    }
    PQclear(r);
    if (n < HF_PG_PAGE) s->all.stop = 1;
    return rc;
}

int hf__pg_scan(hf_store *st, const char *prefix,
                int (*see)(void *arg, const hf_rowkey *, hf_row *), void *arg,
                int64_t *ret_clock_us, hf_error *err)
{
    struct hf__sql_scan s = {.where = {"postgres", "list", "", st->empty}, .err = err};
    hf__listing_begin(&s.all, prefix, see, arg, ret_clock_us);
    return hf__sql_scan(&s, st, see_page);
}
