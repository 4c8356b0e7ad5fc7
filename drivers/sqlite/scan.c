/*
 * scan.c - sqlite: the list of rows, page by page. See store.h.
 */
#include "store.h"

#include <stdlib.h>
#include <string.h>

struct seen {
    char key[HF_KEY_CAP];
    size_t len;
    int damaged;
    hf_row row;
};

/* Makes the first step of the statement SQ_SCAN. A missing table is made again, once, as in find()
   of rows.c. */
static int first_of_page(hf_store *st, const char *prefix, const char *after)
{
    for (int again = 0;; again++) {
        sqlite3_stmt *s = st->stmt[SQ_SCAN];
        int sq = SQLITE_ERROR;
        if (s) {
            hf__sq_bind_text(s, 1, prefix, strlen(prefix));
            hf__sq_bind_text(s, 2, after, strlen(after));
            sq = sqlite3_step(s);
        }
        if (sq != SQLITE_ERROR || again) return sq;
        if (s) sqlite3_reset(s);
        if ((sq = hf__sq_make(st, 0))) return sq;
    }
}

struct paging {
    const char *prefix, *after;
    struct seen *page;
    int n;
    int64_t clock_us;
};

/* Reads a page of rows: the next keys after `after` that have the prefix. */
static int page_op(hf_store *st, void *arg, int *ret_code, hf_error *err)
{
    struct paging *p = arg;
    size_t n_prefix = strlen(p->prefix);
    int rc = 0, sq = first_of_page(st, p->prefix, p->after);
    if (hf__sq_no_rows(st, sq)) sq = SQLITE_DONE;
    sqlite3_stmt *s = st->stmt[SQ_SCAN];
    (void)ret_code; /* not set: a read may be repeated */
    for (p->n = 0; !rc && sq == SQLITE_ROW; sq = sqlite3_step(s)) {
        const char *key = (const char *)sqlite3_column_text(s, 0);
        struct seen *to = &p->page[p->n];
        to->len = (size_t)sqlite3_column_bytes(s, 0);
        if (!key) {
            sq = SQLITE_NOMEM;
            break;
        }
        if (to->len >= HF_KEY_CAP || memchr(key, 0, to->len)) {
            rc = hf_fail(err, HF_CORRUPT, 0, "sqlite: list: a row whose key is not a legal one");
            break;
        }
        if (to->len < n_prefix || memcmp(key, p->prefix, n_prefix)) break;
        memcpy(to->key, key, to->len);
        to->key[to->len] = 0;
        rc = hf__sq_decode(st, s, 1, &to->row, "list", to->key, err);
        to->damaged = rc == HF_CORRUPT;
        if (to->damaged) rc = 0;
        p->n++;
    }
    if (!rc && sq != SQLITE_ROW && sq != SQLITE_DONE)
        rc = hf__sq_failed(st, sq, "list", p->prefix, HF_UNAVAILABLE, err);
    if (s) sqlite3_reset(s);
    p->clock_us = hf__sq_now_us(st);
    return rc;
}

int hf__sq_scan(hf_store *st, const char *prefix,
                int (*see)(void *arg, const hf_rowkey *, hf_row *), void *arg,
                int64_t *ret_clock_us, hf_error *err)
{
    char after[HF_KEY_CAP] = "";
    int rc, stop = 0;
    struct seen *page = malloc(SQ_PAGE_ROWS * sizeof *page);
    if (!page) return hf_fail(err, HF_NOMEM, 0, "sqlite: list '%s': out of memory", prefix);
    for (int i = 0; i < SQ_PAGE_ROWS; i++) hf_row_init(&page[i].row);
    struct paging p = {prefix, after, page, 0, *ret_clock_us};
    do {
        rc = hf__sq_attempt(st, "list", prefix, page_op, &p, err);
        for (int i = 0; !rc && i < p.n && !stop; i++) {
            hf_rowkey key = {.text = page[i].key, .len = (uint32_t)page[i].len};
            key.hash = hf_key_hash(key.text, key.len);
            stop = see(arg, &key, page[i].damaged ? NULL : &page[i].row);
        }
        if (p.n > 0) memcpy(after, page[p.n - 1].key, page[p.n - 1].len + 1);
    } while (!rc && p.n == SQ_PAGE_ROWS && !stop);
    *ret_clock_us = p.clock_us;
    for (int i = 0; i < SQ_PAGE_ROWS; i++) hf_row_clear(&page[i].row);
    free(page);
    return rc;
}
