/*
 * key_table.c - the hash table of a handle's entries, one for each key that it uses or has used.
 */
#include "handle.h"

#include <stdlib.h>
#include <string.h>

enum { IDLE_ENTRIES = 16384 };

static void forget_idle(hf *h)
{
    for (uint32_t i = 0; i < h->buckets; i++) {
        struct hf_entry **at = &h->table[i];
        while (*at) {
            struct hf_entry *e = *at;
            if (e->refs) {
                at = &e->next;
                continue;
            }
            *at = e->next;
            if (h->last_row.e == e) h->last_row.e = NULL;
            free(e);
            h->entries--;
        }
    }
}

static void grow_table(hf *h)
{
    uint32_t n = h->buckets * 4;
    struct hf_entry **bigger = calloc(n, sizeof *bigger);
    if (!bigger) return; /* the chains get longer, nothing worse */
    for (uint32_t i = 0; i < h->buckets; i++)
        for (struct hf_entry *e = h->table[i], *next; e; e = next) {
            next = e->next;
            e->next = bigger[e->key.hash & (n - 1)];
            bigger[e->key.hash & (n - 1)] = e;
        }
    free(h->table);
    h->table = bigger;
    h->buckets = n;
}

/* Adds the entry of a key. Entries without references are kept for what the driver caches in them
   (hint). When the table is full, and has IDLE_ENTRIES entries or more (about 4 MB), all entries
   without references are freed: a program that uses ever new keys must not grow for ever. */
HF_COLD int hf__new_entry(hf *h, const char *key, struct hf_entry **ret, hf_error *err)
{
    hf_rowkey k;
    int rc = hf_key_make(key, &k, err);
    if (rc) return rc;
    if (h->entries >= h->buckets && h->entries >= IDLE_ENTRIES) {
        forget_idle(h);
        if (h->entries >= h->buckets / 2) grow_table(h);
    } else if (h->entries >= h->buckets) {
        grow_table(h);
    }
    struct hf_entry *e = calloc(1, sizeof *e + k.len + 1);
    if (!e) return hf_fail(err, HF_NOMEM, 0, "key '%s': out of memory", key);
    memcpy(e->text, key, (size_t)k.len + 1);
    e->key = k;
    e->key.text = e->text;
    e->key.hint = &e->hint;
    e->refs = 1;
    e->next = h->table[k.hash & (h->buckets - 1)];
    h->table[k.hash & (h->buckets - 1)] = e;
    h->entries++;
    *ret = e;
    return 0;
}

void hf__each_lock(hf *h, void (*see)(hf_lock *lock, void *arg), void *arg)
{
    for (uint32_t i = 0; i < h->buckets; i++)
        for (struct hf_entry *e = h->table[i]; e; e = e->next)
            for (hf_lock *l = e->locks; l; l = l->next) see(l, arg);
}
