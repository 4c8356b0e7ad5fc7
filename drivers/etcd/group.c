/*
 * group.c - see group.h.
 */
#include "group.h"

#include <stdlib.h>
#include <string.h>

void hf__et_group_free(struct hf__et_group *g)
{
    free(g->key);
    free(g->life);
    memset(g, 0, sizeof *g);
}

struct hf__et_life *hf__et_life_of(const struct hf__et_group *g, uint64_t session)
{
    for (size_t i = g->n_lives; i-- > 0;)
        if (g->life[i].session == session) return &g->life[i];
    return NULL;
}

/* Adds what a key beside the row says of a session. `name` "SESSION": the session lives if the key
   has a lease; a key without a lease is left over from a session that has left the row (txn.c).
   "SESSION.": the value is the lease under which the session's key was put back. Other names are
   ignored. Returns 1; 0: out of memory. */
static int add_life(struct hf__et_group *g, const char *name, const char *value, int64_t lease)
{
    char *end;
    uint64_t session = strtoull(name, &end, 16);
    if (end - name != 16 || (*end && strcmp(end, ".") != 0)) return 1;
    struct hf__et_life *life = hf__et_life_of(g, session);
    if (!life) {
        if (g->n_lives == g->cap) {
            size_t cap = g->cap ? g->cap * 2 : 8;
            struct hf__et_life *more = realloc(g->life, cap * sizeof *more);
            if (!more) return 0;
            g->life = more;
            g->cap = cap;
        }
        life = &g->life[g->n_lives++];
        *life = (struct hf__et_life){.session = session};
    }
    if (*end)
        life->by = strtoull(value, NULL, 16);
    else
        life->there = lease != 0;
    return 1;
}

/* Copies the first 31 bytes of a value, and adds a NUL, so that a number can be read from it. */
static const char *short_text(const ProtobufCBinaryData *value, char to[32])
{
    size_t len = value->len < 31 ? value->len : 31;
    if (len) memcpy(to, value->data, len);
    to[len] = 0;
    return to;
}

/* Adds a key that stands beside the row: its rev, or a session. Returns 0 or HF_NOMEM. */
static int add_beside(struct hf__et_group *g, const HfEt__KeyValue *kv, const char *tail,
                      size_t len)
{
    char name[32], value[32];
    const ProtobufCBinaryData text = {len, (uint8_t *)(uintptr_t)tail};
    if (len >= sizeof name) return 0; /* longer than any name that this driver puts */
    short_text(&text, name);
    short_text(&kv->value, value);
    if (!strcmp(name, "rev"))
        g->rev = strtoull(value, NULL, 10);
    else if (!add_life(g, name, value, kv->lease))
        return HF_NOMEM;
    return 0;
}

int hf__et_group_add(struct hf__et_group *g, const HfEt__KeyValue *kv)
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

/* Returns 1 if a reply of that term shows that a party's session has ended for certain (leases.c).
   `holds`: the party is a holder, which may rightly believe that it holds after the key is gone. */
static int is_over(const struct hf__et_life *life, const hf_party *p, int holds, int64_t term)
{
    if (!p->session || hf__et_is_there(life)) return 0;
    return !holds || hf__et_made_in(life && life->by ? life->by : p->session, term);
}

int hf__et_group_row(const struct hf__et_group *g, int64_t term, hf_row *row, const char **ret_why)
{
    hf_row_clear(row);
    *ret_why = "a rev without a row";
    if (!g->value) return g->rev ? HF_CORRUPT : 0;
    int rc = hf__et_read_row(g->value, row, ret_why);
    if (rc) return rc;
    *ret_why = "the rev beside the row isn't the row's";
    if (row->rev != g->rev) {
        hf_row_clear(row);
        return HF_CORRUPT;
    }
    for (uint32_t i = 0; i < row->n_holders + row->n_queue; i++) {
        hf_party *p = &row->party[i];
        if (is_over(hf__et_life_of(g, p->session), p, i < row->n_holders, term))
            p->flags |= HF_PARTY_DEAD;
    }
    return 0;
}

int hf__et_group_read(const HfEt__RangeResponse *range, int64_t term, const hf_rowkey *key,
                      hf_row *row, struct hf__et_group *g, const char *what, hf_error *err)
{
    const char *why = "out of memory";
    int rc = 0;
    for (size_t i = 0; !rc && range && i < range->n_kvs; i++) {
        rc = hf__et_group_add(g, range->kvs[i]);
        if (rc > 0) rc = HF_CORRUPT;
    }
    if (rc == HF_CORRUPT) why = "keys that Holdfast doesn't write";
    if (!rc) rc = hf__et_group_row(g, term, row, &why);
    if (!rc) return 0;
    if (rc == HF_NOMEM) why = "out of memory";
    return hf_fail(err, rc, 0, "etcd: %s '%s': the row is damaged: %s", what, key->text, why);
}
