/*
 * list.c - mongodb: lists the rows of a collection, page by page.
 */
#include "kit/text.h"
#include "store.h"

#include <string.h>

enum { PAGE_ROWS = 64 };

/* Returns the length of the text without a character that was cut off at its end. */
static size_t whole_characters(const char *text)
{
    size_t len = strlen(text);
    while (len && !hf__is_utf8(text, len)) len--;
    return len;
}

static bson_t *list_command(const hf_store *st, const char *from, const char *after)
{
    bson_t *c = BCON_NEW("find", BCON_UTF8(st->how.collection), "filter", "{", "_id", "{", "$gte",
                         BCON_UTF8(from), "$gt", BCON_UTF8(after), "}", "}");
    BCON_APPEND(c, "sort", "{", "_id", BCON_INT32(1), "}", "limit", BCON_INT32(PAGE_ROWS),
                "batchSize", BCON_INT32(PAGE_ROWS), "singleBatch", BCON_BOOL(true));
    return c;
}

struct listing {
    const hf_store *st;
    const char *prefix;
    char from[HF_KEY_CAP], after[HF_KEY_CAP];
    int (*see)(void *arg, const hf_rowkey *, hf_row *);
    void *arg;
    int n, stop;
};

/* Shows the row of one document of a page. Returns 0; 1: stop; or an error. */
static int list_one(const bson_iter_t *at, struct listing *l, hf_row *row, hf_error *err)
{
    struct hf__mg_about about = {"list", l->prefix, HF_UNAVAILABLE};
    hf_rowkey key = {.text = ""};
    bson_iter_t id;
    bson_t doc;
    if (!hf__mg_document(at, &doc)) return hf__mg_garbled(&about, err);
    if (bson_iter_init_find(&id, &doc, "_id") && BSON_ITER_HOLDS_UTF8(&id))
        key.text = bson_iter_utf8(&id, &key.len);
    if (!key.len || key.len >= HF_KEY_CAP || memchr(key.text, 0, key.len))
        return hf_fail(err, HF_CORRUPT, 0,
                       "mongodb: list: a document whose _id is not a legal key (behind '%s')",
                       l->after);
    memcpy(l->after, key.text, key.len + 1);
    l->n++;
    if (strncmp(key.text, l->from, strlen(l->from)) != 0) l->stop = 1;
    if (l->stop || strncmp(key.text, l->prefix, strlen(l->prefix)) != 0) return 0;
    key.hash = hf_key_hash(key.text, key.len);
    about.key = key.text;
    int rc = hf__mg_row_of(l->st, &doc, row, &about, err);
    if (!rc || rc == HF_CORRUPT) l->stop = l->see(l->arg, &key, rc ? NULL : row);
    return rc == HF_CORRUPT ? 0 : rc;
}

/* Reads one whole page before it shows any row of it, because the caller's `see` may write. */
static int list_page(hf_store *st, struct listing *l, bson_t *ret, int64_t *ret_clock_us,
                     hf_error *err)
{
    struct hf__mg_about about = {"list", l->prefix, HF_UNAVAILABLE};
    int code, rc;
    struct hf__mg_link *link = hf__links_get(&st->links, &rc, err);
    if (!rc && !*ret_clock_us) rc = hf__mg_ask_clock(st, link, &about, ret_clock_us, err);
    if (!rc) {
        bson_t *command = list_command(st, l->from, l->after);
        hf__mg_put_read_concern(st, link, 0, command);
        rc = hf__mg_request(st, link, command, &about, ret, &code, err);
    }
    hf__links_put(&st->links, link);
    return rc;
}

int hf__mg_scan(hf_store *st, const char *prefix,
                int (*see)(void *arg, const hf_rowkey *, hf_row *), void *arg,
                int64_t *ret_clock_us, hf_error *err)
{
    struct listing l = {.st = st, .prefix = prefix, .see = see, .arg = arg};
    int rc;
    hf_row row;
    size_t len = whole_characters(prefix);
    if (len >= sizeof l.from) return 0; /* longer than any key, so no key has this prefix */
    memcpy(l.from, prefix, len);
    hf_row_init(&row);
    *ret_clock_us = 0;
    do {
        bson_t page;
        bson_iter_t it;
        l.n = 0;
        rc = list_page(st, &l, &page, ret_clock_us, err);
        if (rc) break;
        if (hf__mg_batch(&page, &it))
            while (!rc && !l.stop && bson_iter_next(&it)) rc = list_one(&it, &l, &row, err);
        bson_destroy(&page);
    } while (!rc && !l.stop && l.n == PAGE_ROWS);
    hf_row_clear(&row);
    return rc;
}
