/*
 * rows.c - rows as keys of etcd's: see etcd.h for what they are.
 */
#include "etcd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 1000 };

json_t *hf__et_key(const hf_store *st, const char *text, const char *tail)
{
    char key[HF_ET_KEY_CAP];
    int n = snprintf(key, sizeof key, "%s%s%s", st->prefix, text, tail);
    return n < 0 || (size_t)n >= sizeof key ? NULL : hf__et_bytes(key, (size_t)n);
}

json_t *hf__et_letter(const hf_store *st, const char *text, uint64_t session)
{
    char key[HF_ET_KEY_CAP];
    int n =
        snprintf(key, sizeof key, "%s\t%016llx\t%s", st->prefix, (unsigned long long)session, text);
    return n < 0 || (size_t)n >= sizeof key ? NULL : hf__et_bytes(key, (size_t)n);
}

/* ---- a range of keys as rows ---- */

/* What stands beside a row of a session: its key, and by which lease that was put back. */
struct life {
    uint64_t session, by; /* by: 0: it wasn't */
    int there;
};

/* The keys of one key of ours, from kvs[*at] on. */
struct group {
    char *key;   /* with the prefix; NULL: none */
    size_t len;  /* of it */
    char *value; /* of the row; NULL: there is none */
    size_t value_len;
    uint64_t rev; /* 0: there is none */
    struct life *life;
    size_t n_lives, cap;
};

static void group_free(struct group *g)
{
    free(g->key);
    free(g->value);
    free(g->life);
    memset(g, 0, sizeof *g);
}

static struct life *life_of(const struct group *g, uint64_t session)
{
    for (size_t i = g->n_lives; i-- > 0;)
        if (g->life[i].session == session) return &g->life[i];
    return NULL;
}

/* Of "SESSION" or "SESSION."; another name counts for nothing, and so does a session's key without
   a lease, which is of one that has left (txn.c). 0: no memory. */
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

/* One key of etcd's. 1: it is the next group's; 0; HF_NOMEM, HF_CORRUPT. */
static int group_add(struct group *g, const json_t *kv)
{
    size_t len = 0, value_len = 0;
    char *key, *value = NULL;
    int rc = hf__et_read_bytes(json_object_get(kv, "key"), &key, &len);
    if (!rc) rc = hf__et_read_bytes(json_object_get(kv, "value"), &value, &value_len);
    char *tab = key ? memchr(key, '\t', len) : NULL;
    size_t own = tab ? (size_t)(tab - key) : len;
    if (!rc && g->key && (own != g->len || memcmp(g->key, key, own))) rc = 1;
    if (!rc && !g->key) {
        g->key = malloc(own + 1);
        g->len = own;
        if (g->key) {
            memcpy(g->key, key, own);
            g->key[own] = 0;
        } else {
            rc = HF_NOMEM;
        }
    }
    if (!rc && !tab) {
        free(g->value);
        g->value = value;
        g->value_len = value_len;
        value = NULL;
    } else if (!rc && !strcmp(tab, "\trev")) {
        g->rev = strtoull(value, NULL, 10);
    } else if (!rc && tab && !add_life(g, tab + 1, value, hf__et_number(kv, "lease"))) {
        rc = HF_NOMEM;
    }
    free(key);
    free(value);
    return rc;
}

static int is_there(const struct life *life) { return life && life->there; }

/* Is it over, as a reply of that term shows it? */
static int is_over(const struct life *life, const hf_party *p, int holds, int64_t term)
{
    if (!p->session || is_there(life)) return 0;
    return !holds || hf__et_made_in(life && life->by ? life->by : p->session, term);
}

/* What the group says, in that term. `row` is initialized. */
static int group_row(const struct group *g, int64_t term, hf_row *row, const char **ret_why)
{
    hf_row_clear(row);
    *ret_why = "a rev without a row";
    if (!g->value) return g->rev ? HF_CORRUPT : 0;
    int rc = hf__et_read_row(g->value, g->value_len, row, ret_why);
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

/* The row of `key` in a range's answer, and what stands beside it, to be freed in any case. */
static int read_range(const json_t *range, int64_t term, const hf_rowkey *key, hf_row *row,
                      struct group *g, const char *what, hf_error *err)
{
    const json_t *kvs = json_object_get(range, "kvs");
    const char *why = "out of memory";
    int rc = 0;
    for (size_t i = 0; !rc && i < json_array_size(kvs); i++) {
        rc = group_add(g, json_array_get(kvs, i));
        if (rc > 0) rc = HF_CORRUPT;
    }
    if (rc == HF_CORRUPT) why = "keys that aren't ours";
    if (!rc) rc = group_row(g, term, row, &why);
    if (!rc) return 0;
    if (rc == HF_NOMEM) why = "out of memory";
    return hf_fail(err, rc, 0, "etcd: %s '%s': the row is damaged: %s", what, key->text, why);
}

json_t *hf__et_range_of(const hf_store *st, const char *text)
{
    return json_pack("{s:o, s:o}", "key", hf__et_key(st, text, ""), "range_end",
                     hf__et_key(st, text, "\n"));
}

/* ---- reading ---- */

/* A holder's session is missing, and may have been kept: see leases.c. */
static int in_doubt(const struct group *g, const hf_party *p)
{
    return p->session && !(p->flags & HF_PARTY_DEAD) && !is_there(life_of(g, p->session));
}

/* It was noted of a session that the row doesn't name any more. */
static int is_leftover(const struct life *life, const hf_row *row)
{
    return life->by && !hf__et_names(row, life->session);
}

/* For how many seconds such holders may believe at most; 0: there are none. */
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

/* Their keys are put back, by a lease that nobody keeps. */
static void add_doubts(struct hf__et_txn *t, const hf_store *st, const hf_rowkey *key,
                       const hf_row *row, const struct group *g, uint64_t by)
{
    char tail[HF_ET_TAIL_CAP], name[20];
    int n = snprintf(name, sizeof name, "%016llx", (unsigned long long)by);
    for (uint32_t i = 0; i < row->n_holders; i++) {
        if (!in_doubt(g, &row->party[i])) continue;
        if (json_array_size(t->success) + json_array_size(t->compare) > HF_ET_OPS_CAP) break;
        hf__et_tail(row->party[i].session, "", tail);
        hf__et_add_unbound(t, hf__et_key(st, key->text, tail));
        hf__et_add_put(t, hf__et_key(st, key->text, tail), json_string(""), by);
        hf__et_tail(row->party[i].session, ".", tail);
        hf__et_add_put(t, hf__et_key(st, key->text, tail), hf__et_bytes(name, (size_t)n), 0);
    }
}

static void add_leftovers(struct hf__et_txn *t, const hf_store *st, const hf_rowkey *key,
                          const hf_row *row, const struct group *g)
{
    char tail[HF_ET_TAIL_CAP];
    for (size_t i = 0; i < g->n_lives; i++) {
        if (!is_leftover(&g->life[i], row)) continue;
        if (json_array_size(t->success) > HF_ET_OPS_CAP) break;
        hf__et_tail(g->life[i].session, ".", tail);
        hf__et_add_delete(t, hf__et_key(st, key->text, tail));
    }
}

/* Sees to what the row leaves open, if it is still this one. Who can't leaves it to the next. The
   lease isn't ended even if it seems to be of no use: what was written with it may have landed
   although nothing was heard of it, and that it is gone says that all of them are over. */
static void settle(hf_store *st, const hf_rowkey *key, const hf_row *row, const struct group *g)
{
    int64_t s = longest_doubt_s(g, row);
    uint64_t by = 0;
    int leftovers = 0;
    for (size_t i = 0; i < g->n_lives; i++) leftovers |= is_leftover(&g->life[i], row);
    if ((!s && !leftovers) || (s && hf__et_lease_unkept(st, s, &by))) return;
    struct hf__et_txn t = {json_array(), json_array(), 0};
    struct hf__et_reply reply = {NULL, 0, 0};
    hf__et_add_compare(&t, st, key, row->rev);
    if (s) add_doubts(&t, st, key, row, g, by);
    add_leftovers(&t, st, key, row, g);
    json_t *body = json_pack("{s:o, s:o}", "compare", t.compare, "success", t.success);
    if (body && !t.bad)
        (void)hf__et_post(&st->http, "/v3/kv/txn", body, HF_UNKNOWN, &reply, "get", key->text,
                          NULL);
    hf__et_free(&reply);
    json_decref(body);
}

int hf__et_take_range(hf_store *st, const json_t *range, int64_t term, const hf_rowkey *key,
                      hf_row *row, const char *what, hf_error *err)
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
    json_t *body = hf__et_range_of(st, key->text);
    int rc =
        hf__et_post(&st->http, "/v3/kv/range", body, HF_UNAVAILABLE, &reply, "get", key->text, err);
    json_decref(body);
    if (rc) return rc;
    *ret_clock_us = reply.clock_us;
    rc = hf__et_take_range(st, reply.json, reply.term, key, row, "get", err);
    hf__et_free(&reply);
    return rc;
}

int hf__et_get(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
               hf_error *err)
{
    int rc = hf__et_look(st, key, row, ret_clock_us, err);
    if (!rc && !row->rev) *ret_clock_us = hf__et_date_of_new(&st->http, *ret_clock_us);
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
    /* With a NUL in it, it is somebody else's. */
    if (!g->key || g->len < s->st->n_prefix || strlen(g->key) != g->len) return 0;
    hf_rowkey key = {.text = g->key + s->st->n_prefix, .len = (uint32_t)(g->len - s->st->n_prefix)};
    if (!key.len || key.len >= HF_KEY_CAP) return 0;
    key.hash = hf_key_hash(key.text, key.len);
    int rc = group_row(g, term, &s->row, &why);
    if (rc == HF_CORRUPT) return s->see(s->arg, &key, NULL) != 0;
    if (rc) return hf_fail(s->err, rc, 0, "etcd: list '%s': out of memory", key.text);
    return s->row.rev ? s->see(s->arg, &key, &s->row) != 0 : 0;
}

/* The groups of one page. The last is left for the next page if there is one, for its keys must be
   read at one moment: *ret_next is where that begins (NULL: no next page). 1: stop. */
static int tell_page(struct scan *s, const json_t *page, int64_t term, char **ret_next)
{
    const json_t *kvs = json_object_get(page, "kvs");
    int more = json_is_true(json_object_get(page, "more")), rc = 0;
    struct group g = {0};
    *ret_next = NULL;
    for (size_t i = 0; !rc && i < json_array_size(kvs); i++) {
        rc = group_add(&g, json_array_get(kvs, i));
        if (rc == 1) {
            rc = tell(s, &g, term);
            group_free(&g);
            if (!rc) rc = group_add(&g, json_array_get(kvs, i));
        }
        if (rc == HF_NOMEM) hf_fail(s->err, rc, 0, "etcd: list: out of memory");
        if (rc == HF_CORRUPT) hf_fail(s->err, rc, 0, "etcd: list: an answer of no form");
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
    /* Letters stand before all keys. */
    snprintf(from, sizeof from, "%s%s", st->prefix, *prefix ? prefix : " ");
    snprintf(end, sizeof end, "%s%s", st->prefix, prefix);
    end[strlen(end) - 1] =
        (char)((unsigned char)end[strlen(end) - 1] +
               1); /* behind all that begin so: no key ends in the last byte there is */
    hf_row_init(&s.row);
    do {
        struct hf__et_reply reply = {NULL, 0, 0};
        json_t *body =
            json_pack("{s:o, s:o, s:I}", "key", hf__et_bytes(from, strlen(from)), "range_end",
                      hf__et_bytes(end, strlen(end)), "limit", (json_int_t)limit);
        next = NULL;
        rc = hf__et_post(&st->http, "/v3/kv/range", body, HF_UNAVAILABLE, &reply, "list", prefix,
                         err);
        json_decref(body);
        if (rc) break;
        *ret_clock_us = reply.clock_us;
        rc = tell_page(&s, reply.json, reply.term, &next);
        hf__et_free(&reply);
        /* One key of ours that is more than a page. */
        if (next && !strcmp(next, from)) limit *= 4;
        if (next) snprintf(from, sizeof from, "%s", next);
        free(next);
    } while (!rc && next);
    hf_row_clear(&s.row);
    return rc > 0 ? 0 : rc;
}
