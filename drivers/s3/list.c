/*
 * list.c - s3: lists the objects of a prefix, and reads the rows in them. See store.h.
 */
#include "kit/listing.h"
#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct listing {
    hf_store *st;
    struct hf__listing all;
    char begin[HF_S3_PREFIX + HF_S3_NAME]; /* how the names that are listed begin */
    char after[2 * HF_S3_NAME];            /* the last name that was shown */
    int more;
};

/* Writes a text for a URL's query: all characters but letters, digits and - . _ ~ are
   percent-encoded. */
static void put_encoded(FILE *to, const char *text)
{
    for (; *text; text++)
        if (strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~", *text))
            fputc(*text, to);
        else
            fprintf(to, "%%%02X", (unsigned char)*text);
}

/* Returns the query of the next page, to be freed, with its parameters sorted, as a signature
   needs; NULL: no memory. */
static char *query_of(const struct listing *l)
{
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    if (!f) return NULL;
    fputs("list-type=2&prefix=", f);
    put_encoded(f, l->begin);
    if (*l->after) {
        fputs("&start-after=", f);
        put_encoded(f, l->after);
    }
    int bad = ferror(f);
    if (!fclose(f) && !bad) return text;
    free(text);
    return NULL;
}

/* Reads and shows the row of an object whose name is that of a key with the prefix. Ignores other
   objects. */
static int see_object(struct listing *l, const char *name, hf_error *err)
{
    char text[HF_KEY_CAP];
    hf_rowkey key = {.text = text};
    if (!hf__s3_key(name, text, &key.len) || !hf__listing_has(&l->all, text)) return 0;
    key.hash = hf_key_hash(text, key.len);
    int rc = hf__s3_read(l->st, &key, &l->all.row, l->all.ret_clock_us, "list", err);
    return hf__listing_show(&l->all, &key, rc);
}

static int see_page(struct listing *l, hf_error *err)
{
    char name[sizeof l->after], more[8];
    size_t skip = strlen(l->st->at.prefix);
    char *query = query_of(l);
    struct hf__s3_call call = {.what = "list", .key = l->all.prefix, .query = query};
    struct hf__rest_reply r = {.status = 0};
    int rc = query ? hf__s3_ask(l->st, &call, &r, l->all.ret_clock_us, err)
                   : hf_fail(err, HF_NOMEM, 0, "s3: list '%s': out of memory", l->all.prefix);
    free(query);
    const char *at = rc ? NULL : r.body;
    if (!rc && !hf__s3_element(at, "IsTruncated", more, sizeof more))
        rc = hf_fail(err, HF_UNAVAILABLE, 0, "s3: list '%s': not an answer of S3", l->all.prefix);
    l->more = !rc && !strcmp(more, "true");
    if (rc == HF_S3_ABSENT)
        rc = hf_fail(err, HF_UNAVAILABLE, 0, "s3: list '%s': no such bucket", l->all.prefix);
    while (!rc && !l->all.stop && (at = hf__s3_element(at, "Key", name, sizeof name))) {
        memcpy(l->after, name, strlen(name) + 1);
        if (!strncmp(name, l->st->at.prefix, skip)) rc = see_object(l, name + skip, err);
    }
    hf__rest_reply_free(&r);
    return rc;
}

static int list(struct listing *l, const char *begin, hf_error *err)
{
    int rc = 0;
    snprintf(l->begin, sizeof l->begin, "%s%s", l->st->at.prefix, begin);
    l->after[0] = 0;
    l->more = 1;
    while (!rc && l->more && !l->all.stop) rc = see_page(l, err);
    return rc;
}

int hf__s3_scan(hf_store *st, const char *prefix,
                int (*see)(void *arg, const hf_rowkey *, hf_row *), void *arg,
                int64_t *ret_clock_us, hf_error *err)
{
    struct listing l = {.st = st};
    char begin[HF_S3_NAME + 1];
    int rc = 0;
    hf__listing_begin(&l.all, prefix, see, arg, ret_clock_us);
    if (hf__s3_name_prefix(prefix, begin)) rc = list(&l, begin, err);
    if (!rc && !l.all.stop && *prefix) rc = list(&l, HF_S3_LONGS, err);
    hf_row_clear(&l.all.row);
    return rc;
}
