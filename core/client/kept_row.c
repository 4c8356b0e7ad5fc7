/*
 * kept_row.c - see kept_row.h. The bytes are the head of the row, its marker if it has one, then
 * for each party its numbers and its two texts with their NULs.
 */
#include "kept_row.h"

#include "step.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 8192, PARTY_HEAD = offsetof(hf_party, owner) };

struct hf_kept_row {
    size_t cap; /* of bytes[] */
    uint64_t rev, token;
    int64_t done_us, keep_until_us;
    uint32_t n_holders, n_queue;
    uint16_t result_len;
    uint8_t done_by_len;
    uint8_t last_id[16];
    char bytes[];
};

static size_t texts(const hf_party *p) { return (size_t)p->owner_len + p->note_len + 2; }

static size_t size_of(const hf_row *row)
{
    size_t n = row->done_us ? (size_t)row->result_len + row->done_by_len + 2 : 0;
    for (uint32_t i = 0; i < row->n_holders + row->n_queue && n <= MOST_BYTES; i++)
        n += PARTY_HEAD + texts(&row->party[i]);
    return n;
}

static char *put(char *to, const void *from, size_t n)
{
    memcpy(to, from, n);
    return to + n;
}

static const char *get(const char *from, void *to, size_t n)
{
    memcpy(to, from, n);
    return from + n;
}

void hf__forget_row(struct hf_kept_row **at)
{
    free(*at);
    *at = NULL;
}

void hf__keep_row(struct hf_kept_row **at, const hf_row *row)
{
    struct hf_kept_row *k = *at;
    size_t n = row->rev ? size_of(row) : MOST_BYTES + 1;
    if (n > MOST_BYTES || (k && k->cap < n)) {
        hf__forget_row(at);
        k = NULL;
    }
    if (n > MOST_BYTES) return;
    if (!k && !(k = malloc(sizeof *k + n))) return;
    if (!*at) k->cap = n;
    *at = k;
    k->rev = row->rev;
    k->token = row->token;
    k->done_us = row->done_us;
    k->keep_until_us = row->keep_until_us;
    k->n_holders = row->n_holders;
    k->n_queue = row->n_queue;
    k->result_len = row->result_len;
    k->done_by_len = row->done_by_len;
    memcpy(k->last_id, row->last_id, sizeof k->last_id);
    char *to = k->bytes;
    if (row->done_us) {
        to = put(to, row->done_by, (size_t)row->done_by_len + 1);
        to = put(to, row->result, (size_t)row->result_len + 1);
    }
    for (uint32_t i = 0; i < row->n_holders + row->n_queue; i++) {
        const hf_party *p = &row->party[i];
        to = put(to, p, PARTY_HEAD);
        to = put(to, p->owner, (size_t)p->owner_len + 1);
        to = put(to, p->note, (size_t)p->note_len + 1);
    }
}

int hf__show_row(const struct hf_kept_row *k, hf_row *row)
{
    uint32_t n = k->n_holders + k->n_queue;
    hf_row_clear(row);
    int rc = hf_row_room(row, n);
    if (rc) return rc;
    row->rev = k->rev;
    row->token = k->token;
    row->done_us = k->done_us;
    row->keep_until_us = k->keep_until_us;
    row->n_holders = k->n_holders;
    row->n_queue = k->n_queue;
    memcpy(row->last_id, k->last_id, sizeof k->last_id);
    const char *from = k->bytes;
    if (k->done_us) {
        row->result_len = k->result_len;
        row->done_by_len = k->done_by_len;
        from = get(from, row->done_by, (size_t)k->done_by_len + 1);
        from = get(from, row->result, (size_t)k->result_len + 1);
    }
    for (uint32_t i = 0; i < n; i++) {
        hf_party *p = &row->party[i];
        from = get(from, p, PARTY_HEAD);
        from = get(from, p->owner, (size_t)p->owner_len + 1);
        from = get(from, p->note, (size_t)p->note_len + 1);
    }
    return 0;
}
