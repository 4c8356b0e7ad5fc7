/*
 * list.c - etcd: reads many rows, a page of keys at a time.
 */
#include "group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 1000 };

struct scan {
    hf_store *st;
    int (*see)(void *arg, const hf_rowkey *, hf_row *);
    void *arg;
    hf_row row;
    hf_error *err;
};

/* Shows the row of a group. Returns 1: stop; 0; or an error. */
static int tell(struct scan *s, const struct hf__et_group *g, int64_t term)
{
    const char *why;
    /* This driver makes no key with a NUL in it. */
    if (!g->key || g->len < s->st->n_prefix || strlen(g->key) != g->len) return 0;
    hf_rowkey key = {.text = g->key + s->st->n_prefix, .len = (uint32_t)(g->len - s->st->n_prefix)};
    if (!key.len || key.len >= HF_KEY_CAP) return 0;
    key.hash = hf_key_hash(key.text, key.len);
    int rc = hf__et_group_row(g, term, &s->row, &why);
    if (rc == HF_CORRUPT) return s->see(s->arg, &key, NULL) != 0;
    if (rc) return hf_fail(s->err, rc, 0, "etcd: list '%s': out of memory", key.text);
    return s->row.rev ? s->see(s->arg, &key, &s->row) != 0 : 0;
}

/* Shows the rows of one page. If there is a next page, the last group is left for it, because the
   keys of a group must be read at one moment; *ret_next is where that group begins (NULL: there is
   no next page). Returns 1 if the scan is to stop. */
static int tell_page(struct scan *s, const HfEt__RangeResponse *page, int64_t term, char **ret_next)
{
    int more = page->more, rc = 0;
    struct hf__et_group g = {0};
    *ret_next = NULL;
    for (size_t i = 0; !rc && i < page->n_kvs; i++) {
        rc = hf__et_group_add(&g, page->kvs[i]);
        if (rc == 1) {
            rc = tell(s, &g, term);
            hf__et_group_free(&g);
            if (!rc) rc = hf__et_group_add(&g, page->kvs[i]);
        }
        if (rc == HF_NOMEM) hf_fail(s->err, rc, 0, "etcd: list: out of memory");
    }
    if (!rc && !more) rc = tell(s, &g, term);
    if (!rc && more) {
        *ret_next = g.key;
        g.key = NULL;
    }
    hf__et_group_free(&g);
    return rc;
}

int hf__et_scan(hf_store *st, const char *prefix,
                int (*see)(void *arg, const hf_rowkey *, hf_row *), void *arg,
                int64_t *ret_clock_us, hf_error *err)
{
    struct scan s = {.st = st, .see = see, .arg = arg, .err = err};
    char from[HF_ET_KEY_CAP], end[HF_ET_KEY_CAP], *next;
    int64_t limit = PAGE;
    int rc = 0;
    /* Inboxes stand before all keys. */
    snprintf(from, sizeof from, "%s%s", st->prefix, *prefix ? prefix : " ");
    snprintf(end, sizeof end, "%s%s", st->prefix, prefix);
    end[strlen(end) - 1] =
        (char)((unsigned char)end[strlen(end) - 1] +
               1); /* behind all keys with this prefix; no prefix ends in the byte 255 */
    hf_row_init(&s.row);
    do {
        struct hf__et_reply reply = {NULL, 0, 0};
        HfEt__RangeRequest request = HF_ET__RANGE_REQUEST__INIT;
        request.has_key = request.has_range_end = request.has_limit = 1;
        request.key = (ProtobufCBinaryData){strlen(from), (uint8_t *)from};
        request.range_end = (ProtobufCBinaryData){strlen(end), (uint8_t *)end};
        request.limit = limit;
        next = NULL;
        rc = hf__et_post(&st->http, HF_ET_RANGE, &request.base, NULL, HF_UNAVAILABLE, &reply,
                         "list", prefix, err);
        if (rc) break;
        *ret_clock_us = reply.clock_us;
        rc = tell_page(&s, (HfEt__RangeResponse *)reply.message, reply.term, &next);
        hf__et_free(&reply);
        /* the keys of one row don't fit into a page */
        if (next && !strcmp(next, from)) limit *= 4;
        if (next) snprintf(from, sizeof from, "%s", next);
        free(next);
    } while (!rc && next);
    hf_row_clear(&s.row);
    return rc > 0 ? 0 : rc;
}
