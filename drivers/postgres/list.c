/*
 * list.c - postgres: the rows of a table are listed, a page after the other.
 */
#include "store.h"

#include <string.h>

int hf__pg_scan(hf_store *st, const char *prefix,
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
        rc = hf__pg_request(st, &st->sql.scan, 2, values, HF_UNAVAILABLE, &r, "list", prefix, err);
        if (rc) break;
        n = PQntuples(r);
        for (int i = 0; i < n && !stop && !rc; i++) {
            hf_rowkey key = {.text = PQgetvalue(r, i, 0), .len = (uint32_t)PQgetlength(r, i, 0)};
            if (key.len >= HF_KEY_CAP)
                rc = hf_fail(err, HF_CORRUPT, 0,
                             "postgres: list: a row whose key is not a legal one");
            else if (strncmp(key.text, prefix, n_prefix))
                stop = 1;
            if (rc || stop) break;
            key.hash = hf_key_hash(key.text, key.len);
            *ret_clock_us = hf__pg_number(r, i, 1);
            memcpy(after, key.text, key.len + 1);
            rc = hf__pg_decode(st, r, i, &row, "list", key.text, err);
            if (!rc || rc == HF_CORRUPT) stop = see(arg, &key, rc ? NULL : &row);
            if (rc == HF_CORRUPT) rc = 0;
        }
        PQclear(r);
    } while (!rc && !stop && n == HF_PG_PAGE);
    hf_row_clear(&row);
    return rc;
}
