/*
 * redis.c - redis://HOST, rows as hashes of a Redis server. See link.h, doc/stores/redis.md.
 *
 * Contents: rows; replace, acquire; entering; opening.
 *
 * Each operation on one row is one script, which the server runs without anything in between. The
 * texts are in options.c. calls.c sends scripts, list.c reads many rows, notify.c reads
 * notifications, facts.c checks the server.
 */
#include "kit/await.h"
#include "store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- rows ---- */

static int read_number(const char *text, size_t len, int64_t *ret)
{
    char *end;
    errno = 0;
    *ret = strtoll(text, &end, 10);
    return len && !*end && !errno && end == text + len && text[0] != ' ';
}

int hf__rd_number(const redisReply *r, int64_t *ret)
{
    return r->type == REDIS_REPLY_STRING && read_number(r->str, r->len, ret);
}

int hf__rd_row_of(const char *const text[], const size_t len[], hf_row *row,
                  const struct hf__row_reader *by, hf_error *err)
{
    struct hf__fields f = HF_NO_FIELDS;
    const char *why;
    int64_t n;
    for (int i = 0; i < HF_FIELDS; i++) {
        if (!text[i]) continue;
        if (hf__field[i].kind != HF_NUMBER)
            hf__got_text(&f, i, text[i], len[i]);
        else if (read_number(text[i], len[i], &n))
            hf__got_number(&f, i, n);
        else
            hf__got_other(&f, i);
    }
    int rc = hf__read_fields(&f, HF_JSON_TEXT, row, &why);
    if (rc && by) hf__fields_refused(by, &f, rc, why, err);
    hf__free_fields(&f);
    return rc;
}

int hf__rd_decode(const redisReply *r, hf_row *row, const char *what, const char *key,
                  hf_error *err)
{
    const struct hf__row_reader by = {HF_RD, what, key,
                                      "delete the keys that begin with its prefix"};
    const char *text[HF_FIELDS];
    size_t len[HF_FIELDS];
    hf_row_clear(row);
    if (r->elements < 4 || r->element[2]->type != REDIS_REPLY_INTEGER ||
        r->element[3]->type != REDIS_REPLY_ARRAY || r->element[3]->elements != HF_FIELDS)
        return hf_fail(err, HF_CORRUPT, 0, HF_RD ": %s '%s': the answer doesn't fit the request",
                       what, key);
    if (!r->element[2]->integer) return 0;
    for (int i = 0; i < HF_FIELDS; i++) {
        const redisReply *field = r->element[3]->element[i];
        text[i] = field->type == REDIS_REPLY_STRING ? field->str : NULL;
        len[i] = field->len;
    }
    return hf__rd_row_of(text, len, row, &by, err);
}

static int rd_get(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
                  hf_error *err)
{
    char name[HF_RD_NAME_CAP];
    struct hf__rd_args a;
    redisReply *r;
    hf__rd_call_args(&a, st, key, name);
    hf__rd_arg_text(&a, st->how.wait ? "1" : "0");
    int rc = hf__rd_ask(st, HF_RD_GET, &a, HF_UNAVAILABLE, &r, "get", key, err);
    if (rc) return rc;
    *ret_clock_us = hf__rd_clock_of(r);
    rc = hf__rd_decode(r, row, "get", key->text, err);
    freeReplyObject(r);
    return rc;
}

/* Writes a number as printf would, in a tenth of the time. */
static void arg_number(struct hf__rd_args *a, int64_t n, char room[24])
{
    char *end = room + 24, *at = end;
    uint64_t rest = n < 0 ? 0 - (uint64_t)n : (uint64_t)n;
    do *--at = (char)('0' + rest % 10);
    while (rest /= 10);
    if (n < 0) *--at = '-';
    hf__rd_arg(a, at, (size_t)(end - at));
}

/* Appends the values of these fields to the arguments. */
static void arg_values(struct hf__rd_args *a, const struct hf__fields *f, uint32_t which,
                       char room[HF_FIELDS][24])
{
    for (int i = 0; i < HF_FIELDS; i++) {
        if (!(which >> i & 1)) continue;
        if (hf__field[i].kind == HF_NUMBER)
            arg_number(a, f->n[i], room[i]);
        else
            hf__rd_arg(a, f->text[i], f->len[i]);
    }
}

/* ---- replace, acquire ---- */

/* Reads the row from the reply to a refused write into *cur, unless that is NULL. Returns
   HF_CONFLICT or an error. */
static int conflict(const redisReply *r, const char *what, const hf_rowkey *key, hf_row *cur,
                    hf_error *err)
{
    int rc = cur ? hf__rd_decode(r, cur, what, key->text, err) : 0;
    return rc ? rc : HF_CONFLICT;
}

/* Appends the arguments of a replace that follow `wait`. */
static void arg_replace(struct hf__rd_replace *s, const hf_store *st, const hf_row *row)
{
    struct hf__rd_args *a = &s->args;
    s->word[0] = s->addresses[0] = 0;
    hf__rd_arg_text(a, row && row->n_queue ? "1" : "0");
    int word_at = a->n;
    hf__rd_arg_text(a, s->word);
    if (row) hf__put_addresses(s->addresses, row);
    hf__rd_arg_text(a, st->how.prefix);
    hf__rd_arg_text(a, st->how.channels);
    hf__rd_arg_text(a, s->addresses);
    if (row) arg_values(a, &s->fields, hf__rd_fields_of_replace, s->room);
    /* With ?wait= the notification doesn't have the row: its readers wouldn't use it. */
    if (row && !st->how.wait) a->len[word_at] = hf__rd_word(row, a, s->word);
}

int hf__rd_replace_make(struct hf__rd_replace *s, const hf_store *st, const hf_rowkey *key,
                        uint64_t seen, const hf_row *row, hf_error *err)
{
    const char *why;
    s->fields = (struct hf__fields)HF_NO_FIELDS;
    int rc = row ? hf__put_fields(row, HF_JSON_TEXT, &s->fields, &why) : 0;
    if (rc) return hf_fail(err, rc, 0, HF_RD ": replace '%s': %s", key->text, why);
    hf__rd_call_args(&s->args, st, key, s->name);
    arg_number(&s->args, (int64_t)seen, s->seen);
    hf__rd_arg_text(&s->args, st->how.wait ? "1" : "0");
    arg_replace(s, st, row);
    return 0;
}

void hf__rd_replace_clear(struct hf__rd_replace *s) { hf__free_fields(&s->fields); }

int hf__rd_replace_end(const hf_rowkey *key, const redisReply *r, hf_row *cur,
                       int64_t *ret_clock_us, hf_error *err)
{
    *ret_clock_us = hf__rd_clock_of(r);
    return hf__rd_done(r) ? 0 : conflict(r, "replace", key, cur, err);
}

static int rd_replace(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                      hf_row *cur, int64_t *ret_clock_us, hf_error *err)
{
    struct hf__rd_replace s;
    redisReply *r;
    int rc = hf__rd_replace_make(&s, st, key, seen, row, err);
    if (!rc) rc = hf__rd_ask(st, HF_RD_SWAP, &s.args, HF_UNKNOWN, &r, "replace", key, err);
    hf__rd_replace_clear(&s);
    if (rc) return rc;
    rc = hf__rd_replace_end(key, r, cur, ret_clock_us, err);
    freeReplyObject(r);
    return rc;
}

/* Makes *cur the row after an acquire that was done. The reply to a grant has only the rev and the
   time, and the row is computed from the request; but if the row has the marker of a once-event, or
   if the request was queued, the reply has the whole row. Returns 0; HF_UNKNOWN: the row in the
   reply doesn't have this request as its last party, or there is no memory; HF_CORRUPT: the row is
   damaged. */
static int acquired(const redisReply *r, const hf_rowkey *key, const hf_party *party, hf_row *cur,
                    hf_error *err)
{
    int64_t rev = 0;
    const char *why = "the answer doesn't fit the request";
    hf_row_clear(cur);
    if (r->elements > 3 && r->element[2]->type == REDIS_REPLY_INTEGER) {
        int rc = hf__done_but(hf__rd_decode(r, cur, "acquire", key->text, err), err);
        uint32_t n = cur->n_holders + cur->n_queue;
        if (rc || (n && !memcmp(cur->party[n - 1].id, party->id, sizeof party->id))) return rc;
        hf_row_clear(cur);
    }
    if (r->elements != 3 || !hf__rd_number(r->element[2], &rev) || rev <= 0)
        return hf_fail(err, HF_UNKNOWN, 0, HF_RD ": acquire '%s': %s", key->text, why);
    cur->rev = (uint64_t)rev - 1;
    int rc = hf_row_acquire(cur, party, 0, hf__rd_clock_of(r));
    if (!rc) rc = hf_row_check(cur, &why);
    return rc ? hf_fail(err, rc, 0, HF_RD ": acquire '%s': the row is damaged: %s", key->text, why)
              : 0;
}

static int rd_acquire(hf_store *st, const hf_rowkey *key, const hf_party *party, uint32_t may_queue,
                      hf_row *cur, int64_t *ret_clock_us, hf_error *err)
{
    char name[HF_RD_NAME_CAP], room[HF_FIELDS][24], most[24], claim[24];
    struct hf__fields f = HF_NO_FIELDS;
    const char *why = "out of memory";
    struct hf__rd_args a;
    hf_row grant;
    redisReply *r;
    hf_row_init(&grant);
    int rc = hf_row_acquire(&grant, party, 0, 1);
    if (!rc) rc = hf__put_fields(&grant, HF_JSON_TEXT, &f, &why);
    if (!rc) {
        hf__rd_call_args(&a, st, key, name);
        arg_number(&a, may_queue, most);
        hf__rd_arg_text(&a, st->how.wait ? "1" : "0");
        arg_number(&a, party->claim_ms, claim);
        hf__rd_arg_text(&a, st->how.prefix);
        hf__rd_arg_text(&a, st->how.channels);
        arg_values(&a, &f, hf__rd_fields_of_acquire, room);
        rc = hf__rd_ask(st, HF_RD_ACQUIRE, &a, HF_UNKNOWN, &r, "acquire", key, err);
    } else {
        hf_fail(err, rc, 0, HF_RD ": acquire '%s': %s", key->text, why);
    }
    hf__free_fields(&f);
    hf_row_clear(&grant);
    if (rc) return rc;
    *ret_clock_us = hf__rd_clock_of(r);
    if (r->element[0]->integer)
        rc = acquired(r, key, party, cur, err);
    else
        rc = conflict(r, "acquire", key, cur, err);
    freeReplyObject(r);
    return rc;
}

/* ---- entering ---- */

/* Raises the fence of a row: a key of Redis's, named `where` or, by default, fence:ROW. The fence
   can't have the name of a row. In a cluster it is in the row's slot if the prefix has a hash
   tag. */
static int rd_enter(hf_store *st, const hf_rowkey *key, uint64_t token, int alone,
                    const char *where, hf_error *err)
{
    char name[HF_RD_NAME_CAP], fence[HF_RD_NAME_CAP + 8], text[24];
    struct hf__rd_args a;
    redisReply *r;
    (void)alone; /* the script reads all holders, so any of them may enter */
    if (where && !*where)
        return hf_fail(err, HF_INVALID, 0, HF_RD ": enter '%s': a fence without a name", key->text);
    hf__rd_call_args(&a, st, key, name);
    snprintf(fence, sizeof fence, "fence:%s", name);
    snprintf(text, sizeof text, "%llu", (unsigned long long)token);
    a.n = 2;
    hf__rd_arg_text(&a, "2");
    hf__rd_arg_text(&a, where ? where : fence);
    hf__rd_arg_text(&a, name);
    hf__rd_arg_text(&a, text);
    int rc = hf__rd_ask(st, HF_RD_ENTER, &a, HF_UNKNOWN, &r, "enter", key, err);
    if (!rc) freeReplyObject(r);
    return rc;
}

/* ---- opening ---- */

static void rd_close(hf_store *st)
{
    for (int i = 0; i < HF_LINKS; i++) hf__rd_disconnect(&st->link[i]);
    hf__rd_disconnect(&st->listener);
    hf__sub_free(&st->sub);
    for (int i = 0; i < HF_RD_SCRIPTS; i++) free(st->how.script[i]);
    if (hf__rd_filter) hf__rd_filter->forget(st->how.tls);
    explicit_bzero(st->how.password, sizeof st->how.password);
    hf__secret_forget(&st->how.secret);
    if (st->wake_fd >= 0) close(st->wake_fd);
    hf__links_close(&st->links);
    free(st);
}

static int rd_replace_many(hf_store *st, hf_replace *item, size_t n, int64_t until_us)
{
    return hf__links_replace_many(&st->links, item, n, until_us);
}

static int rd_open(const hf_url *url, int64_t io_timeout_ms, hf_store **ret, hf_caps *caps,
                   hf_error *err)
{
    (void)caps;
    hf_store *st = calloc(1, sizeof *st);
    if (!st) return hf_fail(err, HF_NOMEM, 0, HF_RD ": open '%s': out of memory", url->safe);
    hf__links_open(&st->links, &hf__rd_link_kind, st, st->link, io_timeout_ms);
    st->how.io_timeout_ms = io_timeout_ms;
    st->listener.fd = -1;
    for (int i = 0; i < HF_LINKS; i++) st->link[i].fd = -1;
    hf__sub_open(&st->sub, 0, NULL);
    st->wake_fd = hf__wake_fd();
    int no_wake = errno;
    int rc = hf__rd_options(st, url, err);
    if (!rc && st->wake_fd < 0)
        rc = hf_fail(err, HF_UNAVAILABLE, no_wake, HF_RD ": open '%s': %s", url->safe,
                     strerror(no_wake));
    if (!rc && hf__rd_scripts(&st->how))
        rc = hf_fail(err, HF_NOMEM, 0, HF_RD ": open '%s': out of memory", url->safe);
    if (!rc) hf__links_put(&st->links, hf__links_get(&st->links, &rc, err));
    if (rc) {
        rd_close(st);
        return rc;
    }
    st->how.opened = 1;
    *ret = st;
    return 0;
}

#ifdef HF_REDIS_TLS
#define ABOUT "hashes in a Redis server, over TLS"
#define ENTRY HF_DRIVER_ENTRY(rediss)
#else
#define ABOUT "hashes in a Redis server"
#define ENTRY HF_DRIVER_ENTRY(redis)
#endif

ENTRY = {
    .abi = HF_DRIVER_ABI,
    .name = HF_RD,
    .about = ABOUT,
    .caps =
        {.queue_cap = 256, .holders_cap = 256, .threads = 1, .queues = 1, .notify = &hf__rd_notify},
    .open = rd_open,
    .close = rd_close,
    .get = rd_get,
    .replace = rd_replace,
    .replace_many = rd_replace_many,
    .acquire = rd_acquire,
    .scan = hf__rd_scan,
    .inspect = hf__rd_inspect,
    .enter = rd_enter,
};
