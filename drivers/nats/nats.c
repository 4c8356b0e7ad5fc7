/*
 * nats.c - nats://HOST/BUCKET, rows as the keys of a JetStream key-value bucket. See store.h,
 * doc/stores/nats.md.
 *
 * Contents: many rows; opening.
 *
 * A row is a JSON object, in the last message for its key, which is the one that the bucket keeps.
 * bucket.c says where the clock comes from, rows.c how rows are read, replace.c how they are
 * compared and written.
 *
 * The driver has 2,200 lines, not the 400 of a driver on the kit. Some 660 lines do within a
 * deadline what the library does without one: connecting, the login, TLS, requests (dial.c,
 * login.c, tls.c, link.c). The library's key-value calls don't bring the server's time, and read
 * one row a round trip. So 270 lines are the bucket and its clock (bucket.c), 430 reading and
 * writing by requests of JetStream (rows.c, replace.c). 190 are notifications, 210 the URL and
 * names.
 */
#include "kit/listing.h"
#include "store.h"

#include "os.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- many rows ---- */

enum { PAGE = 64 };

struct scan {
    hf_store *st;
    struct hf__listing all;
    json_t *info;   /* the reply that lists subjects */
    void *next;     /* the next subject in `info` to be read; NULL: none is left */
    long long seen; /* how many subjects the pages so far had */
    int end;        /* 1: the last page was read, or the caller wants no more rows */
};

/* Reads the next page of subjects. */
static int list(struct scan *s, hf_error *err)
{
    char why[HF_NATS_WHY] = "", query[HF_NATS_NAME + 80];
    struct hf__nats_request r = {.subject = s->st->info, .data = query};
    int64_t until_us = hf__local_us() + s->st->how.io_timeout_ms * 1000;
    int len = snprintf(query, sizeof query, "{\"subjects_filter\":\"$KV.%s.>\",\"offset\":%lld}",
                       s->st->bucket, s->seen);
    r.len = (size_t)len;
    json_decref(s->info);
    s->info = NULL;
    s->next = NULL;
    int said = 0, rc;
    struct hf__nats_link *link = hf__links_get(&s->st->links, &rc, err);
    if (!rc) {
        rc = hf__nats_ask(link, &r, 1, until_us, why);
        if (!rc && (said = hf__nats_reply(r.reply, &s->info, why))) rc = hf__nats_code(said);
        if (!rc && !(*s->all.ret_clock_us = hf__nats_clock(s->info))) rc = HF_UNAVAILABLE;
        if (said == HF_NATS_NO_STREAM) /* no bucket, so there are no rows */
            rc = hf__nats_server_clock(s->st, link, until_us, s->all.ret_clock_us, why);
        hf__nats_done(&r, 1);
        if (rc) hf_fail(err, rc, 0, "nats: list: %s", why);
    }
    hf__links_put(&s->st->links, link);
    json_t *subjects = json_object_get(json_object_get(s->info, "state"), "subjects");
    s->next = json_object_iter(subjects);
    s->seen += (long long)json_object_size(subjects);
    s->end = s->seen >= json_integer_value(json_object_get(s->info, "total"));
    return rc;
}

struct page {
    char text[PAGE][HF_KEY_CAP], query[PAGE][HF_NATS_QUERY];
    hf_rowkey key[PAGE];
    struct hf__nats_request r[PAGE];
    size_t n;
};

/* Takes the next keys with the prefix from the list of subjects, and makes a request for the row of
   each. */
static void choose(struct scan *s, struct page *p)
{
    json_t *subjects = json_object_get(json_object_get(s->info, "state"), "subjects");
    for (p->n = 0; s->next && p->n < PAGE; s->next = json_object_iter_next(subjects, s->next)) {
        hf_rowkey *key = &p->key[p->n];
        *key = (hf_rowkey){.text = p->text[p->n]};
        const char *subject = json_object_iter_key(s->next);
        size_t head = strlen(s->st->bucket) + 5; /* $KV.BUCKET. */
        if (strlen(subject) <= head ||
            !hf__nats_key(s->st, subject + head, p->text[p->n], &key->len) ||
            !hf__listing_has(&s->all, key->text))
            continue;
        key->hash = hf_key_hash(key->text, key->len);
        hf__nats_ask_row(s->st, key, p->query[p->n], &p->r[p->n]);
        p->n++;
    }
}

/* Reads the rows of these keys, then shows them. The connection is given back before, because `see`
   may write. */
static int show(struct scan *s, struct page *p, hf_error *err)
{
    char why[HF_NATS_WHY] = "";
    int64_t until_us = hf__local_us() + s->st->how.io_timeout_ms * 1000;
    int said, rc;
    struct hf__nats_link *link = hf__links_get(&s->st->links, &rc, err);
    uint64_t seq;
    if (!rc && (rc = hf__nats_ask(link, p->r, p->n, until_us, why)))
        hf_fail(err, rc, 0, "nats: list: %s", why);
    hf__links_put(&s->st->links, link);
    for (size_t i = 0; !rc && i < p->n && !s->all.stop; i++) {
        rc = hf__nats_read_row(s->st, p->r[i].reply, "list", p->key[i].text, &s->all.row, &seq,
                               &said, err);
        if (said == HF_NATS_NO_STREAM) rc = 0; /* the bucket is gone, and its rows with it */
        rc = hf__listing_show(&s->all, &p->key[i], rc);
    }
    hf__nats_done(p->r, p->n);
    if (s->all.stop) s->end = 1, s->next = NULL;
    return rc;
}

static int nats_scan(hf_store *st, const char *prefix,
                     int (*see)(void *arg, const hf_rowkey *, hf_row *), void *arg,
                     int64_t *ret_clock_us, hf_error *err)
{
    struct scan s = {.st = st};
    struct page *p = malloc(sizeof *p);
    int rc = p ? 0 : hf_fail(err, HF_NOMEM, 0, "nats: list: out of memory");
    hf__listing_begin(&s.all, prefix, see, arg, ret_clock_us);
    while (!rc && !s.end) {
        rc = list(&s, err);
        while (!rc && s.next) {
            choose(&s, p);
            if (p->n) rc = show(&s, p, err);
        }
    }
    hf_row_clear(&s.all.row);
    json_decref(s.info);
    free(p);
    return rc;
}

/* ---- opening ---- */

static void nats_close(hf_store *st)
{
    for (int i = 0; i < HF_LINKS; i++) hf__nats_disconnect(&st->link[i]);
    hf__nats_notify_close(&st->notify);
    hf__secret_forget(&st->how.secret);
    explicit_bzero(&st->how, sizeof st->how);
    hf__links_close(&st->links);
    free(st);
}

static int usable(void *link)
{
    struct hf__nats_link *l = link;
    if (l->nc && hf__nats_ended(l)) hf__nats_disconnect(l);
    return l->nc != NULL;
}

static int connect_link(hf_store *st, void *link, int64_t until_us, hf_error *err)
{
    return hf__nats_connect(&st->how, link, until_us, err);
}

static int works(const void *link) { return ((const struct hf__nats_link *)link)->nc != NULL; }

static int nats_open(const hf_url *url, int64_t io_timeout_ms, hf_store **ret, hf_caps *caps,
                     hf_error *err)
{
    static const struct hf__link_kind kind = {
        "nats", sizeof(struct hf__nats_link), 1, usable, connect_link,
        works,  hf__nats_replace_some};
    hf_store *st = calloc(1, sizeof *st);
    if (!st) return hf_fail(err, HF_NOMEM, 0, "nats: open '%s': out of memory", url->safe);
    hf__links_open(&st->links, &kind, st, st->link, io_timeout_ms);
    st->how.io_timeout_ms = io_timeout_ms;
    st->existing = url->existing;
    int rc = hf__nats_options(url, &st->how, st->bucket, &st->replicas, err);
    snprintf(st->empty, sizeof st->empty, "nats kv del -f %s", st->bucket);
    snprintf(st->info, sizeof st->info, "$JS.API.STREAM.INFO.KV_%s", st->bucket);
    snprintf(st->query, sizeof st->query, "$JS.API.STREAM.MSG.GET.KV_%s", st->bucket);
    if (hf__nats_notify_open(&st->notify) && !rc)
        rc = hf_fail(err, HF_UNAVAILABLE, errno, "nats: open '%s': eventfd: %s", url->safe,
                     strerror(errno));
    if (!rc) rc = hf__nats_prepare(st, url->safe, err);
    if (rc) {
        nats_close(st);
        return rc;
    }
    st->how.opened = 1;
    if (!st->republished[0]) caps->notify = NULL;
    *ret = st;
    return 0;
}

static int nats_replace_many(hf_store *st, hf_replace *item, size_t n, int64_t until_us)
{
    return hf__links_replace_many(&st->links, item, n, until_us);
}

HF_DRIVER_ENTRY(nats) = {
    .abi = HF_DRIVER_ABI,
    .name = "nats",
    .about = "a key-value bucket of NATS JetStream",
    .caps = {.queue_cap = 256,
             .holders_cap = 256,
             .threads = 1,
             .queues = 1,
             .notify = &hf__nats_notify},
    .open = nats_open,
    .close = nats_close,
    .get = hf__nats_get,
    .replace = hf__nats_replace,
    .replace_many = nats_replace_many,
    .scan = nats_scan,
    .inspect = hf__nats_inspect,
};
