/*
 * acquire.c - grants a free key: in the common case by hot.h, otherwise in the general way.
 */
#include "hot.h"
#include "store.h"

/* Grants the key if it is free; makes a cell for it if it has none. The caller holds the bucket's
   lock. Returns 0; HF_CONFLICT: the key isn't free, and *cur is its row; another HF_NEED_...: the
   caller unlocks, provides that, and calls again; or an error. */
static int grant_locked(const struct hf__op *op, struct hf__bucket *b, const hf_party *party,
                        size_t need, int64_t clock_us, hf_row *cur, struct hf__found *f)
{
    struct hf__body *to;
    int rc = hf__locate(op, b, f);
    if (!rc && !f->cell) {
        rc = hf__cell_make(op, b, f, need);
        /* The clock is read again: a key that is new here may have had a grant a moment ago in a
           file that was removed since, and its token must not repeat. */
        clock_us = HF_NOW(op->c) + op->c->offset_us;
    }
    if (rc) return rc;
    if (f->head.counts) {
        rc = hf__decode(op, f, cur);
        return rc ? rc : HF_CONFLICT;
    }
    uint64_t rev = hf__rev_after(f->head.rev, clock_us);
    if (hf__is_ahead(op->c, rev, clock_us)) return HF_NEED_CEILING;
    rc = hf__body_room(op, f, need, &to);
    if (!rc) rc = hf__decode_marker(op, f, cur);
    if (rc) return rc;
    hf__put_taken(f->cell, &f->head, to, rev, party, clock_us, cur);
    hf__publish(f->cell, f->seq);
    return 0;
}

static int acquire(hf_store *st, const hf_rowkey *key, const hf_party *party, hf_row *cur,
                   int64_t *ret_clock_us, hf_error *err)
{
    struct hf__client *c = hf__client_of(st);
    const struct hf__op op = {c, "acquire", key, err};
    struct hf__bucket *b = hf__bucket_at(c, key->hash);
    struct hf__found f = {.cell = NULL};
    size_t need = sizeof(struct hf__body) + HF_PARTY_BYTES(party->owner_len, party->note_len);
    hf__look_sometimes(c, hf__clock_for(c, party));
    int rc = hf__broken(&op);
    while (!rc) {
        int64_t clock_us = hf__clock_for(c, party);
        rc = hf__bucket_lock(&op, b);
        if (rc) break;
        rc = grant_locked(&op, b, party, need, clock_us, cur, &f);
        if (rc == 0 || rc == HF_CONFLICT) hf__remember(&op, &f);
        hf__bucket_unlock(c, b);
        if (rc == 0 || rc == HF_CONFLICT) {
            *ret_clock_us = clock_us;
            return rc;
        }
        /* All positive results but HF_NEED_PARTIES need the disk. */
        if (party->flags & HF_PARTY_AT_ONCE && rc > 0 && rc != HF_NEED_PARTIES)
            return HF_WOULD_WAIT;
        rc = hf__provide(&op, rc, &f, need, cur);
    }
    return rc;
}

/* Only grants. Waiters enter the queue by hf__rows_update, which is as fast here: a row is
   memory. */
int hf__rows_acquire(hf_store *st, const hf_rowkey *key, const hf_party *party, uint32_t may_queue,
                     hf_row *cur, int64_t *ret_clock_us, hf_error *err)
{
    (void)may_queue;
    struct hf__client *c = hf__client_of(st);
    struct hf__bucket *b = hf__bucket_at(c, key->hash);
    struct hf__hot h;
    if (!hf__hint_of(c, key) || !hf__is_sound(c))
        return acquire(st, key, party, cur, ret_clock_us, err);
    size_t need = sizeof h.head + HF_PARTY_BYTES(party->owner_len, party->note_len);
    int64_t clock_us = hf__clock_for(c, party);
    if (HF_LIKELY(!hf__is_time_to_look(c, clock_us) && hf__trylock(c, &b->lock))) {
        if (HF_LIKELY(!HF_LOAD("debt.look", &b->debt) && hf__is_hot(c, key, &h) && !h.head.counts &&
                      !hf__flags(&h.head) && need <= h.size)) {
            uint64_t rev = hf__rev_after(h.head.rev, clock_us);
            if (HF_LIKELY(!hf__is_ahead(c, rev, clock_us))) {
                hf__put_taken(h.cell, &h.head, h.to, rev, party, clock_us, cur);
                hf__publish(h.cell, h.seq);
                hf__bucket_unlock(c, b);
                cur->done_us = cur->keep_until_us = 0;
                *ret_clock_us = clock_us;
                return 0;
            }
        }
        hf__bucket_unlock(c, b);
    }
    return acquire(st, key, party, cur, ret_clock_us, err);
}
