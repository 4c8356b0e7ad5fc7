/*
 * rows.c - rows as keys of etcd's: see etcd.h for what they are.
 */
#include "etcd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 1000 };

/* Copies a key into the request's memory. A key that is too long fails as if there were no
   memory. */
static ProtobufCBinaryData copied(struct hf__et_mem *mem, const char *key, int n)
{
    if (n >= 0 && n < HF_ET_KEY_CAP) return hf__et_copy(mem, key, (size_t)n);
    mem->failed = 1;
    return (ProtobufCBinaryData){0, NULL};
}

ProtobufCBinaryData hf__et_key(const hf_store *st, struct hf__et_mem *mem, const char *text,
                               const char *tail)
{
    char key[HF_ET_KEY_CAP];
    return copied(mem, key, snprintf(key, sizeof key, "%s%s%s", st->prefix, text, tail));
}

ProtobufCBinaryData hf__et_inbox(const hf_store *st, struct hf__et_mem *mem, const char *text,
                                 uint64_t session)
{
    char key[HF_ET_KEY_CAP];
    return copied(mem, key,
                  snprintf(key, sizeof key, "%s\t%016llx\t%s", st->prefix,
                           (unsigned long long)session, text));
}

/* ---- a range of keys as rows ---- */

/* A session as the keys beside a row show it: its key, and the lease by which that key was put
   back. */
struct life {
    uint64_t session, by; /* by: 0: it wasn't */
    int there;
};

/* The keys that belong to one key of ours, from kvs[*at] on. */
struct group {
    char *key;                        /* with the prefix; NULL: none */
    size_t len;                       /* of it */
    const ProtobufCBinaryData *value; /* the row's value, which belongs to the answer; NULL: there
                                         is no row */
    uint64_t rev;                     /* 0: there is none */
    struct life *life;
    size_t n_lives, cap;
};

static void group_free(struct group *g)
{
    free(g->key);
    free(g->life);
    memset(g, 0, sizeof *g);
}

static struct life *life_of(const struct group *g, uint64_t session)
{
    for (size_t i = g->n_lives; i-- > 0;)
        if (g->life[i].session == session) return &g->life[i];
    return NULL;
}

/* Adds the session of a key "SESSION" or "SESSION.". Other names are passed over, and so is a
   session's key without a lease, which a session has left behind (txn.c). Returns 0 if there is no
   memory. */
static int add_life(struct group *g, const char *name, const char *value, int64_t lease)
{
    char *end;
    uint64_t session = strtoull(name, &end, 16);
    if (end - name != 16 || (*end && strcmp(end, ".") != 0)) return 1;
    struct life *life = life_of(g, session);
    if (!life) {
        if (g->n_lives == g->cap) {
            size_t cap = g->cap ? g->cap * 2 : 8;
            struct life *more = realloc(g->life, cap * sizeof *more);
            if (!more) return 0;
            g->life = more;
            g->cap = cap;
        }
        life = &g->life[g->n_lives++];
        *life = (struct life){.session = session};
    }
    if (*end)
        life->by = strtoull(value, NULL, 16);
    else
        life->there = lease != 0;
    return 1;
}

/* Copies the beginning of a value, which isn't NUL-terminated, for a number to be read. */
static const char *short_text(const ProtobufCBinaryData *value, char to[32])
{
    size_t len = value->len < 31 ? value->len : 31;
    if (len) memcpy(to, value->data, len);
    to[len] = 0;
    return to;
}

/* Adds a key that stands beside the row: its rev, or a session. Returns 0 or HF_NOMEM. */
static int add_beside(struct group *g, const HfEt__KeyValue *kv, const char *tail, size_t len)
{
    char name[32], value[32];
    const ProtobufCBinaryData text = {len, (uint8_t *)(uintptr_t)tail};
    if (len >= sizeof name) return 0; /* nothing of ours */
    short_text(&text, name);
    short_text(&kv->value, value);
    if (!strcmp(name, "rev"))
        g->rev = strtoull(value, NULL, 10);
    else if (!add_life(g, name, value, kv->lease))
        return HF_NOMEM;
    return 0;
}

/* Adds one of etcd's keys to the group. Returns 0; 1: the key belongs to the next group;
   HF_NOMEM. */
static int group_add(struct group *g, const HfEt__KeyValue *kv)
{
    const char *key = kv->key.len ? (const char *)kv->key.data : "";
    const char *tab = memchr(key, '\t', kv->key.len);
    size_t own = tab ? (size_t)(tab - key) : kv->key.len;
    if (g->key && (own != g->len || memcmp(g->key, key, own))) return 1;
    if (!g->key) {
        g->key = malloc(own + 1);
        if (!g->key) return HF_NOMEM;
        memcpy(g->key, key, own);
        g->key[own] = 0;
        g->len = own;
    }
    if (tab) return add_beside(g, kv, tab + 1, kv->key.len - own - 1);
    g->value = &kv->value;
    return 0;
}

static int is_there(const struct life *life) { return life && life->there; }

/* Returns 1 if a party's session has ended, by a reply of that term. */
static int is_over(const struct life *life, const hf_party *p, int holds, int64_t term)
{
    if (!p->session || is_there(life)) return 0;
    return !holds || hf__et_made_in(life && life->by ? life->by : p->session, term);
}

/* Makes the row of a group of keys that was read in that term. `row` is initialized. */
static int group_row(const struct group *g, int64_t term, hf_row *row, const char **ret_why)
{
    hf_row_clear(row);
    *ret_why = "a rev without a row";
    if (!g->value) return g->rev ? HF_CORRUPT : 0;
    int rc = hf__et_read_row(g->value, row, ret_why);
    if (rc) return rc;
    *ret_why = "another rev beside it than in it";
    if (row->rev != g->rev) {
        hf_row_clear(row);
        return HF_CORRUPT;
    }
    for (uint32_t i = 0; i < row->n_holders + row->n_queue; i++) {
        hf_party *p = &row->party[i];
        if (is_over(life_of(g, p->session), p, i < row->n_holders, term)) p->flags |= HF_PARTY_DEAD;
    }
    return 0;
}

/* Finds in a range's answer the row of `key` and the keys beside it, to be freed in any case. */
static int read_range(const HfEt__RangeResponse *range, int64_t term, const hf_rowkey *key,
                      hf_row *row, struct group *g, const char *what, hf_error *err)
{
    const char *why = "out of memory";
    int rc = 0;
    for (size_t i = 0; !rc && range && i < range->n_kvs; i++) {
        rc = group_add(g, range->kvs[i]);
        if (rc > 0) rc = HF_CORRUPT;
    }
    if (rc == HF_CORRUPT) why = "keys that aren't ours";
    if (!rc) rc = group_row(g, term, row, &why);
    if (!rc) return 0;
    if (rc == HF_NOMEM) why = "out of memory";
    return hf_fail(err, rc, 0, "etcd: %s '%s': the row is damaged: %s", what, key->text, why);
}

void hf__et_range_of(const hf_store *st, struct hf__et_mem *mem, const char *text,
                     HfEt__RangeRequest *ret)
{
    ret->has_key = ret->has_range_end = 1;
    ret->key = hf__et_key(st, mem, text, "");
    ret->range_end = hf__et_key(st, mem, text, "\n");
}

/* ---- reading ---- */

/* Returns 1 if a holder's session is missing, but the holder may still believe in it: see
   leases.c. */
static int in_doubt(const struct group *g, const hf_party *p)
{
    return p->session && !(p->flags & HF_PARTY_DEAD) && !is_there(life_of(g, p->session));
}

/* Returns 1 for a note (K \t SESSION ".") about a session that the row doesn't name any more. */
static int is_stale_note(const struct life *life, const hf_row *row)
{
    return life->by && !hf__et_names(row, life->session);
}

/* Returns for how many seconds such holders may believe at most; 0: there are none. */
static int64_t longest_doubt_s(const struct group *g, const hf_row *row)
{
    int64_t s = 0;
    for (uint32_t i = 0; i < row->n_holders; i++) {
        if (!in_doubt(g, &row->party[i])) continue;
        int64_t own = hf__et_session_s(row->party[i].session);
        int64_t lease = ((int64_t)row->party[i].lease_ms + 999) / 1000;
        s = s > own ? s : own;
        s = s > lease ? s : lease;
        s = s ? s : 1;
    }
    return s;
}

/* Puts back the keys of sessions that may still be believed in, under the lease `by`, which isn't
   kept alive. */
static void add_doubts(struct hf__et_txn *t, const hf_store *st, const hf_rowkey *key,
                       const hf_row *row, const struct group *g, uint64_t by)
{
    char tail[HF_ET_TAIL_CAP], name[20];
    int n = snprintf(name, sizeof name, "%016llx", (unsigned long long)by);
    for (uint32_t i = 0; i < row->n_holders; i++) {
        if (!in_doubt(g, &row->party[i])) continue;
        if (t->msg.n_success + t->msg.n_compare > HF_ET_OPS_CAP) break;
        hf__et_tail(row->party[i].session, "", tail);
        ProtobufCBinaryData its = hf__et_key(st, &t->mem, key->text, tail);
        hf__et_add_unbound(t, its);
        hf__et_add_put(t, its, (ProtobufCBinaryData){0, NULL}, by);
        hf__et_tail(row->party[i].session, ".", tail);
        hf__et_add_put(t, hf__et_key(st, &t->mem, key->text, tail),
                       hf__et_copy(&t->mem, name, (size_t)n), 0);
    }
}

static void delete_stale_notes(struct hf__et_txn *t, const hf_store *st, const hf_rowkey *key,
                               const hf_row *row, const struct group *g)
{
    char tail[HF_ET_TAIL_CAP];
    for (size_t i = 0; i < g->n_lives; i++) {
        if (!is_stale_note(&g->life[i], row)) continue;
        if (t->msg.n_success > HF_ET_OPS_CAP) break;
        hf__et_tail(g->life[i].session, ".", tail);
        hf__et_add_delete(t, hf__et_key(st, &t->mem, key->text, tail));
    }
}

/* Puts back the keys of sessions in doubt and deletes stale notes, if the row still is this one.
   A failure is ignored: the next reader does the same. The new lease isn't revoked even if the
   write seems to have failed. The write may have landed, and the lease's end would then say that
   all those sessions are over. */
static void settle(hf_store *st, const hf_rowkey *key, const hf_row *row, const struct group *g)
{
    int64_t s = longest_doubt_s(g, row);
    uint64_t by = 0;
    int stale_notes = 0;
    for (size_t i = 0; i < g->n_lives; i++) stale_notes |= is_stale_note(&g->life[i], row);
    if ((!s && !stale_notes) || (s && hf__et_lease_unkept(st, s, &by))) return;
    struct hf__et_txn t;
    struct hf__et_reply reply = {NULL, 0, 0};
    hf__et_txn_open(&t);
    hf__et_add_compare(&t, st, key, row->rev);
    if (s) add_doubts(&t, st, key, row, g, by);
    delete_stale_notes(&t, st, key, row, g);
    (void)hf__et_post(&st->http, HF_ET_TXN, &t.msg.base, &t.mem, HF_UNKNOWN, &reply, "get",
                      key->text, NULL);
    hf__et_free(&reply);
    hf__et_txn_close(&t);
}

int hf__et_take_range(hf_store *st, const HfEt__RangeResponse *range, int64_t term,
                      const hf_rowkey *key, hf_row *row, const char *what, hf_error *err)
{
    struct group g = {0};
    int rc = read_range(range, term, key, row, &g, what, err);
    if (!rc && row->rev) settle(st, key, row, &g);
    group_free(&g);
    return rc;
}

int hf__et_look(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
                hf_error *err)
{
    struct hf__et_reply reply = {NULL, 0, 0};
    struct hf__et_mem mem = {NULL, 0};
    HfEt__RangeRequest request = HF_ET__RANGE_REQUEST__INIT;
    hf__et_range_of(st, &mem, key->text, &request);
    int rc = hf__et_post(&st->http, HF_ET_RANGE, &request.base, &mem, HF_UNAVAILABLE, &reply, "get",
                         key->text, err);
    hf__et_mem_free(&mem);
    if (rc) return rc;
    *ret_clock_us = reply.clock_us;
    rc = hf__et_take_range(st, (HfEt__RangeResponse *)reply.message, reply.term, key, row, "get",
                           err);
    hf__et_free(&reply);
    return rc;
}

int hf__et_get(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
               hf_error *err)
{
    int rc = hf__et_look(st, key, row, ret_clock_us, err);
    if (!rc) *ret_clock_us = hf__et_date_of_row(&st->http, row->rev, *ret_clock_us);
    return rc;
}

/* ---- many rows ---- */

struct scan {
    hf_store *st;
    int (*see)(void *arg, const hf_rowkey *, hf_row *);
    void *arg;
    hf_row row;
    hf_error *err;
};

/* Tells a row. 1: stop. */
static int tell(struct scan *s, const struct group *g, int64_t term)
{
    const char *why;
    /* A key with a NUL in it isn't one of ours. */
    if (!g->key || g->len < s->st->n_prefix || strlen(g->key) != g->len) return 0;
    hf_rowkey key = {.text = g->key + s->st->n_prefix, .len = (uint32_t)(g->len - s->st->n_prefix)};
    if (!key.len || key.len >= HF_KEY_CAP) return 0;
    key.hash = hf_key_hash(key.text, key.len);
    int rc = group_row(g, term, &s->row, &why);
    if (rc == HF_CORRUPT) return s->see(s->arg, &key, NULL) != 0;
    if (rc) return hf_fail(s->err, rc, 0, "etcd: list '%s': out of memory", key.text);
    return s->row.rev ? s->see(s->arg, &key, &s->row) != 0 : 0;
}

/* Reports the groups of one page. The last group is left for the next page if there is one, because
   its keys must be read at one moment; *ret_next is where it begins (NULL: there is no next page).
   Returns 1 if the scan is to stop. */
static int tell_page(struct scan *s, const HfEt__RangeResponse *page, int64_t term, char **ret_next)
{
    int more = page->more, rc = 0;
    struct group g = {0};
    *ret_next = NULL;
    for (size_t i = 0; !rc && i < page->n_kvs; i++) {
        rc = group_add(&g, page->kvs[i]);
        if (rc == 1) {
            rc = tell(s, &g, term);
            group_free(&g);
            if (!rc) rc = group_add(&g, page->kvs[i]);
        }
        if (rc == HF_NOMEM) hf_fail(s->err, rc, 0, "etcd: list: out of memory");
    }
    if (!rc && !more) rc = tell(s, &g, term);
    if (!rc && more) {
        *ret_next = g.key;
        g.key = NULL;
    }
    group_free(&g);
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
               1); /* behind all keys with this prefix: no key of ours ends in the byte 255 */
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
        /* the keys beside one row are more than a page */
        if (next && !strcmp(next, from)) limit *= 4;
        if (next) snprintf(from, sizeof from, "%s", next);
        free(next);
    } while (!rc && next);
    hf_row_clear(&s.row);
    return rc > 0 ? 0 : rc;
}
