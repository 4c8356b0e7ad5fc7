/*
 * list.c - redis: every row whose key has a prefix.
 *
 * All names are collected first, because SCAN returns some of them twice, and in no order. Then the
 * rows are read, a page at a time.
 */
#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE_ROWS = 64 };

struct names {
    char **name;
    size_t n, cap;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int add_name(struct names *all, const char *prefix, const redisReply *r)
{
    size_t before = strlen(prefix);
    if (r->len < before || memcmp(r->str, prefix, before) != 0) return 0; /* not of this store */
    if (all->n == all->cap) {
        size_t cap = all->cap ? all->cap * 2 : 256;
        char **more = realloc(all->name, cap * sizeof *more);
        if (!more) return HF_NOMEM;
        all->name = more;
        all->cap = cap;
    }
    all->name[all->n] = strndup(r->str, (size_t)r->len);
    return all->name[all->n++] ? 0 : HF_NOMEM;
}

/* Writes a pattern that matches names which begin with `text`, with its special characters
   escaped. */
static void pattern_of(const char *prefix, const char *text, char *to)
{
    const char *part[] = {prefix, text};
    for (int i = 0; i < 2; i++)
        for (const char *s = part[i]; *s; s++) {
            if (strchr("*?[]^\\", *s)) *to++ = '\\';
            *to++ = *s;
        }
    memcpy(to, "*", 2);
}

/* Returns 1 if the reply is one of SCAN: a cursor and names. */
static int is_scan(const redisReply *r)
{
    if (r->type != REDIS_REPLY_ARRAY || r->elements != 2 ||
        r->element[0]->type != REDIS_REPLY_STRING || r->element[1]->type != REDIS_REPLY_ARRAY)
        return 0;
    for (size_t i = 0; i < r->element[1]->elements; i++)
        if (r->element[1]->element[i]->type != REDIS_REPLY_STRING) return 0;
    return 1;
}

/* Collects the names of all keys with the prefix. SCAN returns some of them twice. */
static int collect(hf_store *st, const char *prefix, struct names *all, hf_error *err)
{
    char pattern[2 * (HF_RD_PREFIX_CAP + HF_KEY_CAP) + 2], cursor[24] = "0";
    if (strlen(prefix) >= HF_KEY_CAP) return 0;
    pattern_of(st->how.prefix, prefix, pattern);
    do {
        struct hf__rd_batch batch = {NULL, 0, 0, 0, 0};
        redisReply *r = NULL;
        int rc;
        struct hf__rd_link *link = hf__links_get(&st->links, &rc, err);
        if (!rc) {
            hf__rd_say(&batch, "SCAN", cursor, "MATCH", pattern, "COUNT", "1000", NULL);
            rc = hf__rd_talk(&st->how, link, &batch, &r);
            if (rc)
                rc = hf_fail(err, HF_UNAVAILABLE, 0, HF_RD ": list '%s': %s", prefix, link->why);
        }
        if (!rc && r->type == REDIS_REPLY_ERROR) rc = hf__rd_complain(link, r, "list", prefix, err);
        hf__links_put(&st->links, link);
        if (!rc && !is_scan(r))
            rc = hf_fail(err, HF_UNAVAILABLE, 0,
                         HF_RD ": list '%s': the answer doesn't fit the request", prefix);
        if (!rc) snprintf(cursor, sizeof cursor, "%s", r->element[0]->str);
        for (size_t i = 0; !rc && i < r->element[1]->elements; i++)
            if (add_name(all, st->how.prefix, r->element[1]->element[i]))
                rc = hf_fail(err, HF_NOMEM, 0, HF_RD ": list '%s': out of memory", prefix);
        if (r) freeReplyObject(r);
        if (rc) return rc;
    } while (strcmp(cursor, "0") != 0);
    if (all->n) qsort(all->name, all->n, sizeof *all->name, by_name);
    return 0;
}

/* Reads the rows of n keys in one round trip. `again`: sends the script's text instead of its hash,
   because the server doesn't know the script. */
static int read_page(hf_store *st, char *const *name, size_t n, int again, redisReply **reply,
                     hf_error *err)
{
    struct hf__rd_batch batch = {NULL, 0, 0, 0, 0};
    int rc;
    struct hf__rd_link *link = hf__links_get(&st->links, &rc, err);
    for (size_t i = 0; !rc && i < n; i++) {
        struct hf__rd_args a = {.n = 2};
        hf__rd_arg(&a, "1", 1);
        hf__rd_arg_text(&a, name[i]);
        hf__rd_put_call(st, link, HF_RD_GET, again && !i, &a, &batch);
    }
    if (!rc) {
        rc = hf__rd_talk(&st->how, link, &batch, reply);
        if (rc) rc = hf_fail(err, HF_UNAVAILABLE, 0, HF_RD ": list: %s", link->why);
    }
    hf__links_put(&st->links, link);
    if (rc || again || !hf__rd_is_error(reply[0], "NOSCRIPT")) return rc;
    hf__rd_free(reply, (int)n);
    return read_page(st, name, n, 1, reply, err);
}

struct listing {
    int (*see)(void *arg, const hf_rowkey *, hf_row *);
    void *arg;
    int stopped;
};

/* Shows the row in one reply. Returns 0; 1: the caller wants no more; or an error. */
static int show(hf_store *st, const char *name, const redisReply *r, struct listing *l,
                int64_t *ret_clock_us, hf_error *err)
{
    hf_rowkey key;
    hf_row row;
    const char *text = name + strlen(st->how.prefix);
    /* another kind of key, whose name begins like a row's */
    if (hf_key_make(text, &key, NULL)) return 0;
    if (r->type == REDIS_REPLY_ERROR) {
        char why[HF_KIT_WHY];
        int code = hf__rd_code(r->str);
        hf__rd_words(r->str, why);
        if (code != HF_CORRUPT) return hf_fail(err, code, 0, HF_RD ": list '%s': %s", text, why);
        l->stopped = l->see(l->arg, &key, NULL);
        return 0;
    }
    hf_row_init(&row);
    int rc = hf__rd_shaped(r) ? hf__rd_decode(r, &row, "list", text, err) : HF_UNAVAILABLE;
    if (!hf__rd_shaped(r))
        hf_fail(err, rc, 0, HF_RD ": list '%s': the answer doesn't fit the request", text);
    if (!rc && row.rev) { /* rev 0: the row was deleted since SCAN */
        *ret_clock_us = hf__rd_clock_of(r);
        l->stopped = l->see(l->arg, &key, &row);
    }
    hf_row_clear(&row);
    if (rc != HF_CORRUPT) return rc;
    l->stopped = l->see(l->arg, &key, NULL);
    return 0;
}

int hf__rd_scan(hf_store *st, const char *prefix,
                int (*see)(void *arg, const hf_rowkey *, hf_row *), void *see_arg,
                int64_t *ret_clock_us, hf_error *err)
{
    struct names all = {NULL, 0, 0};
    struct listing l = {see, see_arg, 0};
    redisReply *reply[PAGE_ROWS];
    char *page[PAGE_ROWS];
    int rc = collect(st, prefix, &all, err);
    for (size_t i = 0; i < all.n && !rc && !l.stopped;) {
        size_t n = 0;
        for (; i < all.n && n < PAGE_ROWS; i++)
            if (!i || strcmp(all.name[i], all.name[i - 1]) != 0) page[n++] = all.name[i];
        if (!n) break;
        rc = read_page(st, page, n, 0, reply, err);
        if (rc) break;
        for (size_t k = 0; k < n && !rc && !l.stopped; k++)
            rc = show(st, page[k], reply[k], &l, ret_clock_us, err);
        hf__rd_free(reply, (int)n);
    }
    for (size_t i = 0; i < all.n; i++) free(all.name[i]);
    free(all.name);
    return rc;
}
