/*
 * replace_many.c - s3: many replaces, each by requests of its own, several of which are under way
 * at a time. See replace_many in holdfast_driver.h.
 *
 * In each round every replace that has no result yet makes its next request: a read, if the ETag
 * isn't known or its write was refused; else the write.
 */
#include "store.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 12, READS = 6 };
enum state { TO_READ, TO_WRITE, HAS_RESULT };

/* One replace. */
struct change {
    hf_replace *item;
    enum state state;
    char name[HF_S3_NAME + 1], tag[HF_REST_TAG];
    char *text; /* what is to be written */
    int reads;
};

struct many {
    hf_store *st;
    size_t n;
    int64_t until_us;
    struct change *change;
    struct hf__s3_asked *asked; /* the requests of one round */
    size_t *of;                 /* the change that each request is for */
};

static void ends(struct change *c, int result)
{
    c->state = HAS_RESULT;
    c->item->result = result;
}

/* Makes a request for each replace that has no result. Returns how many. */
static size_t ask_all(struct many *m)
{
    size_t k = 0;
    for (size_t i = 0; i < m->n; i++) {
        struct change *c = &m->change[i];
        if (c->state == HAS_RESULT) continue;
        m->of[k] = i;
        m->asked[k++] = (struct hf__s3_asked){.call = {.what = "replace",
                                                       .key = c->item->key->text,
                                                       .name = c->name,
                                                       .put = c->state == TO_WRITE ? c->text : NULL,
                                                       .tag = c->tag},
                                              .err = c->item->err};
    }
    if (k) hf__s3_ask_many(m->st, m->asked, k, m->until_us);
    return k;
}

/* Takes in an object that was read: the replace is to be written, or has its result. If the ETag
   and the body don't belong together, the object is read again in the next round. */
static void saw(hf_store *st, struct change *c, const struct hf__s3_asked *a)
{
    hf_replace *r = c->item;
    int rc = hf__s3_tagged(&a->reply, a->rc, "replace", r->key, r->err);
    int belongs = rc || hf__s3_belongs(st, &a->reply);
    if (!belongs && c->reads++ < READS) return;
    r->clock_us = a->clock_us;
    int written = !rc && hf__s3_is_text(st, &a->reply, c->text);
    rc = hf__s3_reads(st, r->key, rc, &a->reply, a->clock_us, r->cur, "replace", r->err);
    if (!belongs && !rc) __atomic_store_n(&st->others, 1, __ATOMIC_RELAXED);
    if (written) {
        ends(c, 0);
        return;
    }
    if (rc || r->cur->rev != r->seen) {
        ends(c, rc ? rc : HF_CONFLICT);
        return;
    }
    snprintf(c->tag, sizeof c->tag, "%s", a->reply.tag);
    c->state = TO_WRITE;
}

/* Takes in the reply to a write. If the write was refused, the row is read in the next round: only
   that shows whether it still is the row that was seen. */
static void wrote(hf_store *st, struct change *c, const struct hf__s3_asked *a)
{
    const hf_replace *r = c->item;
    c->item->clock_us = a->clock_us;
    if (!a->rc) hf__s3_written(st, r->key, c->text, r->row->rev, a->reply.tag);
    if (a->rc == HF_CONFLICT || a->rc == HF_S3_ABSENT)
        c->state = TO_READ;
    else
        ends(c, a->rc);
}

static void make_rounds(struct many *m)
{
    size_t n = 1;
    for (int round = 0; n && round < ROUNDS; round++) {
        n = ask_all(m);
        for (size_t k = 0; k < n; k++) {
            struct change *c = &m->change[m->of[k]];
            if (c->state == TO_WRITE)
                wrote(m->st, c, &m->asked[k]);
            else
                saw(m->st, c, &m->asked[k]);
            hf__rest_reply_free(&m->asked[k].reply);
        }
    }
    for (size_t i = 0; i < m->n; i++)
        if (m->change[i].state != HAS_RESULT)
            ends(&m->change[i], hf_fail(m->change[i].item->err, HF_UNAVAILABLE, 0,
                                        "s3: replace '%s': other writes were under way",
                                        m->change[i].item->key->text));
}

static void plan(struct many *m, size_t i, hf_replace *r)
{
    struct change *c = &m->change[i];
    int rc;
    c->item = r;
    hf__s3_name(r->key->text, r->key->len, c->name);
    c->text = hf__s3_encode(m->st, r->key, r->row, &rc, r->err);
    c->state = hf__s3_tag_of(m->st, r->key, r->seen, r->row, c->tag) ? TO_WRITE : TO_READ;
    if (!c->text) ends(c, rc);
}

int hf__s3_replace_many(hf_store *st, hf_replace *item, size_t n, int64_t until_us)
{
    struct many m = {st, n, until_us, NULL, NULL, NULL};
    if (!n) return 0;
    m.change = calloc(n, sizeof *m.change);
    m.asked = calloc(n, sizeof *m.asked);
    m.of = calloc(n, sizeof *m.of);
    int rc = m.change && m.asked && m.of ? 0 : HF_NOMEM;
    if (!rc) {
        for (size_t i = 0; i < n; i++) plan(&m, i, &item[i]);
        make_rounds(&m);
        for (size_t i = 0; i < n; i++) free(m.change[i].text);
    }
    free(m.change);
    free(m.asked);
    free(m.of);
    return rc;
}
