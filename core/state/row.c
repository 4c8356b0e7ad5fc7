/*
 * row.c - the row's memory, its copy, its check, and the keys that name it. No I/O.
 */
#include "grant.h"
#include "step.h"

#include <stdlib.h>
#include <string.h>

enum { INLINE_PARTIES = sizeof(((hf_row *)0)->inl) / sizeof(hf_party) };

void hf_row_init(hf_row *row)
{
    row->rev = row->token = 0;
    row->done_us = row->keep_until_us = 0;
    row->n_holders = row->n_queue = 0;
    row->cap = INLINE_PARTIES;
    row->result_len = 0;
    row->done_by_len = 0;
    row->party = row->inl;
    row->done_by[0] = row->result[0] = 0;
    memset(row->last_id, 0, sizeof row->last_id);
}

void hf_row_clear(hf_row *row)
{
    if (row->party != row->inl) free(row->party);
    hf_row_init(row);
}

int hf_row_room(hf_row *row, size_t parties)
{
    if (parties <= row->cap) return 0;
    size_t cap = (size_t)row->cap * 2;
    if (cap < parties) cap = parties;
    int inside = row->party == row->inl;
    hf_party *p = realloc(inside ? NULL : row->party, cap * sizeof *p);
    if (!p) return HF_NOMEM;
    if (inside)
        for (uint32_t i = 0; i < row->n_holders + row->n_queue; i++)
            hf_party_copy(&p[i], &row->inl[i]);
    row->party = p;
    row->cap = (uint32_t)cap;
    return 0;
}

void hf_party_copy(hf_party *to, const hf_party *from)
{
    memcpy(to, from, offsetof(hf_party, owner));
    hf__copy_text(to->owner, from->owner, from->owner_len);
    hf__copy_text(to->note, from->note, from->note_len);
}

void hf__row_copy_mark(hf_row *to, const hf_row *from)
{
    to->done_us = from->done_us;
    to->keep_until_us = from->keep_until_us;
    to->result_len = to->done_by_len = 0;
    to->result[0] = to->done_by[0] = 0;
    if (!from->done_us) return;
    to->result_len = from->result_len;
    memcpy(to->result, from->result, (size_t)from->result_len + 1);
    to->done_by_len = from->done_by_len;
    memcpy(to->done_by, from->done_by, (size_t)from->done_by_len + 1);
}

int hf_row_copy(hf_row *to, const hf_row *from)
{
    uint32_t n = from->n_holders + from->n_queue;
    int rc = hf_row_room(to, n);
    if (rc) return rc;
    to->rev = from->rev;
    to->token = from->token;
    to->n_holders = from->n_holders;
    to->n_queue = from->n_queue;
    memcpy(to->last_id, from->last_id, sizeof to->last_id);
    hf__row_copy_mark(to, from);
    for (uint32_t i = 0; i < n; i++) hf_party_copy(&to->party[i], &from->party[i]);
    return 0;
}

static int party_equal(const hf_party *a, const hf_party *b)
{
    return !memcmp(a->id, b->id, 16) && a->token == b->token && a->since_us == b->since_us &&
           a->expires_us == b->expires_us && a->session == b->session &&
           a->lease_ms == b->lease_ms && a->claim_ms == b->claim_ms && a->limit == b->limit &&
           a->mode == b->mode && (a->flags | HF_PARTY_DEAD) == (b->flags | HF_PARTY_DEAD) &&
           a->wakeup == b->wakeup && a->owner_len == b->owner_len && a->note_len == b->note_len &&
           !memcmp(a->owner, b->owner, a->owner_len) && !memcmp(a->note, b->note, a->note_len);
}

int64_t hf_row_end(const hf_row *row)
{
    int64_t first = 0;
    for (uint32_t i = 0; i < row->n_holders; i++) {
        const hf_party *p = &row->party[i];
        if (p->flags & HF_PARTY_UNCLAIMED || !p->expires_us) continue;
        if (!first || p->expires_us < first) first = p->expires_us;
    }
    return first;
}

int hf_row_equal(const hf_row *a, const hf_row *b)
{
    if (a->rev != b->rev || a->token != b->token || a->done_us != b->done_us ||
        a->keep_until_us != b->keep_until_us || a->n_holders != b->n_holders ||
        a->n_queue != b->n_queue)
        return 0;
    if (a->done_us &&
        (a->result_len != b->result_len || memcmp(a->result, b->result, a->result_len) ||
         a->done_by_len != b->done_by_len || memcmp(a->done_by, b->done_by, a->done_by_len)))
        return 0;
    for (uint32_t i = 0; i < a->n_holders + a->n_queue; i++)
        if (!party_equal(&a->party[i], &b->party[i])) return 0;
    return 1;
}

static int text_bad(const char *s, size_t len, size_t cap)
{
    return len >= cap || s[len] || memchr(s, 0, len);
}

static const char *party_wrong(const hf_row *row, uint32_t i)
{
    const hf_party *p = &row->party[i];
    if (text_bad(p->owner, p->owner_len, HF_OWNER_CAP)) return "an owner is not a string";
    if (text_bad(p->note, p->note_len, HF_NOTE_CAP)) return "a note is not a string";
    if (!strcmp(p->owner, HF_OWNER_ENDED)) return "an owner with a name that is reserved";
    if (p->mode > HF_LIMITED) return "unknown mode";
    if (p->mode == HF_LIMITED && !p->limit) return "limit 0";
    if (p->since_us < 0 || p->expires_us < 0) return "negative time";
    if (i < row->n_holders) {
        if (!p->token) return "a holder without a token";
        if (p->token > row->token) return "a holder's token above the last grant's";
        if (!p->expires_us && !p->session) return "a holder that would never end";
    } else {
        if (p->token) return "a waiter with a token";
    }
    return NULL;
}

/* Checks that the holders of a row may hold together: an exclusive one alone, otherwise all of one
   mode, and no more of them than the smallest limit. Returns NULL, or what is wrong. */
static const char *holders_wrong(const hf_row *row)
{
    for (uint32_t i = 0; row->n_holders > 1 && i < row->n_holders; i++) {
        const hf_party *p = &row->party[i];
        if (p->mode == HF_EXCLUSIVE) return "an exclusive holder beside another";
        if (p->mode != row->party[0].mode) return "holders of two modes";
        if (p->mode == HF_LIMITED && row->n_holders > p->limit)
            return "more holders than the limit";
    }
    return NULL;
}

enum { FEW_PARTIES = 8, FILTER_BITS = 1 << 15 };

/* Returns 1 if one of the first n parties has this id. */
static int has_id(const hf_row *row, uint32_t n, const uint8_t id[16])
{
    for (uint32_t i = 0; i < n; i++)
        if (!memcmp(row->party[i].id, id, 16)) return 1;
    return 0;
}

static int has_id_before(const hf_row *row, uint32_t i) { return has_id(row, i, row->party[i].id); }

/* Returns 1 if two parties have the same request id. A row may have thousands of waiters. So in a
   row of many, a party is compared with those before it only if one of them has the same hash. */
static int has_twins(const hf_row *row)
{
    uint64_t seen[FILTER_BITS / 64], half[2];
    uint32_t n = row->n_holders + row->n_queue;
    if (n > FEW_PARTIES) memset(seen, 0, sizeof seen);
    for (uint32_t i = 1; n <= FEW_PARTIES && i < n; i++)
        if (has_id_before(row, i)) return 1;
    for (uint32_t i = 0; n > FEW_PARTIES && i < n; i++) {
        memcpy(half, row->party[i].id, sizeof half);
        uint64_t hash = (half[0] ^ half[1]) * UINT64_C(0x9e3779b97f4a7c15) >> 49;
        uint64_t bit = UINT64_C(1) << hash % 64;
        if (seen[hash / 64] & bit && has_id_before(row, i)) return 1;
        seen[hash / 64] |= bit;
    }
    return 0;
}

int hf_row_check(const hf_row *row, const char **ret_why)
{
    const char *why = NULL;
    if (!row->rev && (row->n_holders || row->n_queue || row->token || row->done_us))
        why = "content without a rev";
    else if (row->token > row->rev)
        why = "token above rev";
    else if (row->rev >= UINT64_C(1) << 53)
        why = "rev above 2^53";
    else if (row->done_us < 0 || row->keep_until_us < 0)
        why = "negative time";
    else if (row->done_us && text_bad(row->result, row->result_len, HF_RESULT_CAP))
        why = "the result is not a string";
    else if (row->done_us && text_bad(row->done_by, row->done_by_len, HF_OWNER_CAP))
        why = "the marker's owner is not a string";
    for (uint32_t i = 0; !why && i < row->n_holders + row->n_queue; i++) why = party_wrong(row, i);
    if (!why) why = holders_wrong(row);
    if (!why && has_twins(row)) why = "two parties with one request id";
    if (!why) return 0;
    *ret_why = why;
    return HF_CORRUPT;
}

uint64_t hf_rev_next(uint64_t previous, int64_t clock_us)
{
    return hf__rev_next(previous, clock_us);
}

void hf__row_taken(hf_row *cur, const hf_party *party)
{
    hf_party *p = cur->party;
    uint64_t token = p->token;
    int64_t since_us = p->since_us, expires_us = p->expires_us;
    hf_party_copy(p, party);
    p->token = token;
    p->since_us = since_us;
    p->expires_us = expires_us;
    if (party->flags & HF_PARTY_DETACHED) p->session = 0;
    p->flags = party->flags & HF_PARTY_DETACHED;
    p->claim_ms = 0;
    memset(cur->last_id, 0, sizeof cur->last_id);
}

/* Returns 1 if hf__step would append the party to the queue and change nothing else. That is
   certain if one exclusive holder is in force: it admits no other, whatever the waiters ask for. */
static int may_append(const hf_row *row, const hf_party *party, uint32_t may_queue,
                      int64_t clock_us)
{
    const hf_party *holder = &row->party[0];
    if (row->n_queue >= may_queue || row->n_holders != 1 || holder->mode != HF_EXCLUSIVE) return 0;
    if (holder->expires_us && clock_us >= holder->expires_us) return 0;
    return !(party->flags & HF_PARTY_DETACHED) &&
           !has_id(row, row->n_holders + row->n_queue, party->id);
}

int hf_row_acquire(hf_row *row, const hf_party *party, uint32_t may_queue, int64_t clock_us)
{
    if (hf__is_free_for(row, party)) {
        hf__grant(row, party, hf__rev_next(row->rev, clock_us), clock_us);
        return 0;
    }
    if (!may_append(row, party, may_queue, clock_us)) return HF_CONFLICT;
    uint32_t n = row->n_holders + row->n_queue;
    if (hf_row_room(row, n + 1)) return HF_NOMEM;
    hf_party *p = &row->party[n];
    row->rev = hf_rev_next(row->rev, clock_us);
    row->n_queue++;
    hf_party_copy(p, party);
    p->token = 0;
    p->since_us = clock_us;
    p->expires_us = 0;
    p->flags = 0;
    return 0;
}
