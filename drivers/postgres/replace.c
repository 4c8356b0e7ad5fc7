/*
 * replace.c - postgres: replaces a row, by a short statement if possible. See store.h.
 *
 * The long statement also reads the row that was there, and notifies the waiters. The short one is
 * a plain UPDATE of a row that has no waiters, neither before nor after; its reply says only
 * whether it was done. An acquire and a release by short statements take 2.9 times as long as one
 * bare UPDATE by libpq; by long ones 4.8 times (medians of bench-stores, five interleaved runs of
 * each). If the short statement is refused, the long one follows, which costs a round trip more. So
 * the short one is tried only by a handle that seems to be the key's only user; and by
 * replace_many.c for each renewal.
 */
#include "kit/text.h"
#include "store.h"

#include <stdio.h>
#include <string.h>

/* Returns a key's hint. Only replaces use it: it is the rev of the last row without waiters that
   this handle has stored. The bit HF_PG_ALONE is set when the handle stores a grant in place of a
   row that it has stored itself: no other client has written in between. The bit stays set as long
   as that is so for each write. Handles that hold the key in turns never set it. Relaxed order is
   enough, because the hint is a guess: the statement compares the rev itself. */
uint64_t hf__pg_hint(const hf_rowkey *key)
{
    return key->hint ? __atomic_load_n(key->hint, __ATOMIC_RELAXED) : 0;
}

void hf__pg_note_written(const hf_rowkey *key, uint64_t seen, const hf_row *row)
{
    uint64_t was = hf__pg_hint(key), hint = 0;
    if (!key->hint) return;
    if (row && !row->n_queue) hint = row->rev;
    if (hint && seen && (was == (seen | HF_PG_ALONE) || (was == seen && row->n_holders)))
        hint |= HF_PG_ALONE;
    __atomic_store_n(key->hint, hint, __ATOMIC_RELAXED);
}

void hf__pg_put_notification(const hf_rowkey *key, const hf_row *row,
                             char to[HF_PG_NOTIFICATION_CAP])
{
    char id[33];
    int n = snprintf(to, HF_PG_NOTIFICATION_CAP, "%llu", (unsigned long long)key->hash);
    if (!row || row->n_holders != 1) return;
    hf__put_id(id, row->party[0].id);
    snprintf(to + n, HF_PG_NOTIFICATION_CAP - (size_t)n, " %s %lld", id,
             (long long)row->party[0].expires_us);
}

/* The parts of a replace, as they are sent to the server. */
struct replace {
    const hf_rowkey *key;
    uint64_t seen;
    const hf_row *row;             /* NULL: the row is to be deleted */
    const char *column[HF_FIELDS]; /* the values of the row's columns */
    char seen_text[24];
};

/* Makes a replace by the short statement, if it seems worth trying. Returns 0; HF_CONFLICT: it
   wasn't done, and the long statement is needed; or the error. */
static int write_quietly(hf_store *st, const struct replace *s, int64_t *ret_clock_us,
                         hf_error *err)
{
    enum { N = HF_FIELDS + HF_PG_QUIET_FIRST - 1 };
    const char *values[N] = {s->key->text, s->seen_text};
    PGresult *r;
    if (!s->row || s->row->n_queue || !s->seen || hf__pg_hint(s->key) != (s->seen | HF_PG_ALONE))
        return HF_CONFLICT;
    memcpy(values + HF_PG_QUIET_FIRST - 1, s->column, sizeof s->column);
    int rc =
        hf__pg_request(st, &st->sql.quiet, N, values, HF_UNKNOWN, &r, "replace", s->key->text, err);
    if (rc) return rc;
    int done = PQntuples(r) == 1;
    if (done) *ret_clock_us = hf__pg_number(r, 0, 0);
    PQclear(r);
    return done ? 0 : HF_CONFLICT;
}

static int write_at_length(hf_store *st, const struct replace *s, hf_row *cur,
                           int64_t *ret_clock_us, hf_error *err)
{
    const hf_rowkey *key = s->key;
    const struct hf__pg_often *often = !s->row   ? &st->sql.erase
                                       : s->seen ? &st->sql.update
                                                 : &st->sql.insert;
    char word[HF_PG_NOTIFICATION_CAP], addresses[HF_ADDRESSES_CAP] = "";
    const char *values[HF_PG_SWAP_VALUES] = {key->text, s->seen_text, st->listener.channel, word,
                                             addresses};
    PGresult *r;
    hf__pg_put_notification(key, s->row, word);
    if (s->row) hf__put_addresses(addresses, s->row);
    memcpy(values + HF_PG_FIRST - 1, s->column, sizeof s->column);
    int n = s->row ? HF_PG_SWAP_VALUES : HF_PG_FIRST - 1;
    int rc = hf__pg_request(st, often, n, values, HF_UNKNOWN, &r, "replace", key->text, err);
    if (rc) return rc;
    *ret_clock_us = hf__pg_number(r, 0, 1);
    if (!hf__pg_number(r, 0, 0)) {
        uint64_t there = hf__pg_has_row(r) ? (uint64_t)hf__pg_number(r, 0, 2 + HF_FIELD_REV) : 0;
        rc = hf__pg_conflict(st, key, r, there == s->seen, cur, ret_clock_us, "replace", err);
    }
    PQclear(r);
    return rc;
}

int hf__pg_replace(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                   hf_row *cur, int64_t *ret_clock_us, hf_error *err)
{
    struct replace s = {.key = key, .seen = seen, .row = row};
    struct hf__fields f = HF_NO_FIELDS;
    char room[HF_FIELDS][24];
    const char *why;
    int rc = row ? hf__put_fields(row, HF_JSON_TEXT, &f, &why) : 0;
    if (rc) {
        hf__free_fields(&f);
        return hf_fail(err, rc, 0, "postgres: replace '%s': %s", key->text, why);
    }
    snprintf(s.seen_text, sizeof s.seen_text, "%llu", (unsigned long long)seen);
    if (row) hf__pg_fill(&f, s.column, room);
    rc = write_quietly(st, &s, ret_clock_us, err);
    if (rc == HF_CONFLICT) rc = write_at_length(st, &s, cur, ret_clock_us, err);
    hf__free_fields(&f);
    if (!rc) hf__pg_note_written(key, seen, row);
    return rc;
}
