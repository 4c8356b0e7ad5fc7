/*
 * rows.c - the operations on a row: get, replace, update; acquire is in acquire.c.
 *
 * Contents: whether the store can be used; what every operation needs; get; replace; update.
 *
 * A write fills the body that isn't current and publishes it by one store to the cell's seq.
 * acquire and replace first try the common case: hot.h.
 */
#include "grant.h"
#include "hot.h"
#include "store.h"

/* ---- whether the store can be used ---- */

int hf__broken(const struct hf__op *op)
{
    struct hf__client *c = op->c;
    const char *why;
    int code = atomic_load_explicit(&c->broken, memory_order_acquire);
    if (code == HF_LOST)
        return hf_fail(op->err, HF_LOST, 0, "file: %s: '%s' was opened before a fork", op->verb,
                       c->path);
    if (!code && atomic_exchange_explicit(&c->look, 0, memory_order_acq_rel)) {
        if (!HF_ENV(c, same_file)(c, &why)) return 0;
        hf__break(c, HF_CORRUPT, why);
        code = HF_CORRUPT;
    }
    if (!code) return 0;
    return hf_fail(op->err, code, 0, "file: %s '%.100s': '%s' %s", op->verb,
                   op->key ? op->key->text : "", c->path, c->broken_why);
}

void hf__look_sometimes(struct hf__client *c, int64_t clock_us)
{
    if (!hf__is_time_to_look(c, clock_us)) return;
    atomic_store_explicit(&c->look_at_us, clock_us + HF_LOOK_US, memory_order_relaxed);
    atomic_store_explicit(&c->look, 1, memory_order_release);
}

/* ---- what every operation needs ---- */

int hf__locate(const struct hf__op *op, struct hf__bucket *b, struct hf__found *f)
{
    struct hf__hot h;
    /* a hint that leads to nothing good is ignored; hf__find searches, and reports damage */
    if (!hf__is_hot(op->c, op->key, &h) || !hf__likely_head(&h.head)) return hf__find(op, b, f);
    f->cell = h.cell;
    f->at = h.at;
    f->seq = h.seq;
    f->head = h.head;
    f->links = 1;
    return 0;
}

void hf__remember(const struct hf__op *op, const struct hf__found *f)
{
    if (!f->cell) return;
    hf__hint_keep(op->c, op->key, hf__offset_of(op->c, f->cell) / HF_LINE, f->links);
}

static uint64_t parties_in(const struct hf__found *f)
{
    return (uint64_t)hf__holders(&f->head) + hf__waiters(&f->head);
}

int hf__provide(const struct hf__op *op, int rc, struct hf__found *f, size_t need, hf_row *row)
{
    if (rc == HF_NEED_SYNC) {
        f->durable_of = f->cell;
        f->durable_marker = f->head.marker_seq;
        f->durable_at[1] = f->durable_at[0]; /* both bodies: other clients may write them in turn */
        f->durable_at[0] = f->at;
        return hf__sync(op);
    }
    if (rc == HF_NEED_SPACE) return hf__space(op, 2 * need + HF_KEY_CAP + 4 * HF_SECTOR);
    if (rc == HF_NEED_CEILING) return hf__raise_ceiling(op, f->head.rev + 1);
    if (rc != HF_NEED_PARTIES) return rc;
    /* 4 to spare: the row may have more parties when it is read again */
    if (!hf_row_room(row, (size_t)parties_in(f) + 4)) return 0;
    return hf_fail(op->err, HF_NOMEM, 0, "file: %s '%s': out of memory", op->verb,
                   op->key ? op->key->text : "");
}

/* ---- get ---- */

int hf__rows_get(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
                 hf_error *err)
{
    struct hf__client *c = hf__client_of(st);
    const struct hf__op op = {c, "read", key, err};
    struct hf__bucket *b = hf__bucket_at(c, key->hash);
    struct hf__found f = {.cell = NULL};
    hf__look_sometimes(c, HF_ENV(c, rough_now)(c) + c->offset_us);
    int rc = hf__is_sound(c) ? 0 : hf__broken(&op);
    while (!rc) {
        rc = hf__bucket_lock(&op, b);
        if (rc) break;
        rc = hf__locate(&op, b, &f);
        if (!rc) rc = hf__decode(&op, &f, row);
        if (!rc) hf__remember(&op, &f);
        hf__bucket_unlock(c, b);
        if (HF_LIKELY(!rc)) {
            *ret_clock_us = 0;
            return 0;
        }
        rc = hf__provide(&op, rc, &f, 0, row);
    }
    return rc;
}

/* ---- replace ---- */

static int needs_ceiling(struct hf__client *c, uint64_t rev)
{
    if (hf__is_in_reach(c, rev)) return 0;
    int64_t now_us = HF_NOW(c) + c->offset_us;
    atomic_store_explicit(&c->last_us, now_us, memory_order_relaxed);
    return hf__is_ahead(c, rev, now_us);
}

/* Compares the stored rev with `seen`. HF_CONFLICT: *cur (unless NULL) is the current row. */
static int compare(const struct hf__op *op, const struct hf__found *f, uint64_t seen, hf_row *cur)
{
    if ((f->cell ? f->head.rev : 0) == seen) return 0;
    int rc = cur ? hf__decode(op, f, cur) : 0;
    return rc ? rc : HF_CONFLICT;
}

/* Deletes the row: the cell becomes vacant. Its rev is the row's last rev plus one, so that
   recovery can tell which of the two bodies is newer. The caller holds the bucket's lock. */
static int vacate(const struct hf__op *op, struct hf__bucket *b, const struct hf__found *f)
{
    struct hf__body *to, h = {.rev = f->head.rev + 1,
                              .token = f->head.token,
                              .extent = (uint64_t)HF_BODY_VACANT << 32};
    int rc = hf__body_room(op, f, sizeof h, &to);
    if (!rc) rc = hf__put_marker(op, f, NULL, h.rev, &h);
    if (!rc) rc = hf__floor_raise(op, b, h.rev);
    if (rc) return rc;
    hf__put_head(f->cell, to, &h);
    hf__publish(f->cell, f->seq);
    return 0;
}

/* Stores a free row whose rev is the bucket's floor. The writer's rev isn't above the floor, which
   it couldn't know; it finds it in the row. Returns HF_CONFLICT, with that row in *cur (unless
   NULL); or an error. */
static int begin_anew(const struct hf__op *op, struct hf__found *f, hf_row *cur)
{
    struct hf__body *to, h = {.rev = f->head.rev, .marker_seq = f->head.marker_seq};
    int rc = hf__body_room(op, f, sizeof h, &to);
    if (rc) return rc;
    hf__put_head(f->cell, to, &h);
    hf__publish(f->cell, f->seq);
    f->at = to;
    f->head = h;
    rc = cur ? hf__decode(op, f, cur) : 0;
    return rc ? rc : HF_CONFLICT;
}

/* Stores the row in the cell that was found, or in a new one. The caller holds the bucket's lock,
   and has compared the revs. HF_CONFLICT: the key has no cell, and the new rev isn't above the
   floor; *cur (unless NULL) is the row with the floor as its rev. */
static int store_locked(const struct hf__op *op, struct hf__bucket *b, const hf_row *row,
                        size_t need, hf_row *cur, struct hf__found *f, struct hf__owed *owed)
{
    struct hf__body *to, h = {.extent = 0};
    int rc = 0;
    if (!f->cell) {
        rc = hf__cell_make(op, b, f, need);
        if (!rc && row->rev <= f->head.rev) return begin_anew(op, f, cur);
    }
    if (!rc) rc = hf__body_room(op, f, need, &to);
    if (!rc) rc = hf__put_marker(op, f, row, row->rev, &h);
    if (rc) return rc;
    hf__put_row(f->cell, to, row, need, &h);
    hf__publish(f->cell, f->seq);
    if (hf__waiters(&f->head) && row->n_holders) {
        hf__ring_granted(op, f, row, owed);
        hf__owed_note(b, owed, row->rev);
    }
    return 0;
}

static int replace_locked(const struct hf__op *op, struct hf__bucket *b, uint64_t seen,
                          const hf_row *row, size_t need, hf_row *cur, struct hf__found *f,
                          struct hf__owed *owed)
{
    int rc = hf__locate(op, b, f);
    if (!rc) rc = compare(op, f, seen, cur);
    if (rc) return rc;
    if (!row) return f->cell ? vacate(op, b, f) : 0;
    return store_locked(op, b, row, need, cur, f, owed);
}

static int too_many(const struct hf__op *op, const hf_row *row)
{
    if (row->n_holders <= HF_PARTIES_CAP && row->n_queue <= HF_PARTIES_CAP) return 0;
    return hf_fail(op->err, HF_FULL, 0, "file: %s '%s': more than %d holders or waiters", op->verb,
                   op->key->text, HF_PARTIES_CAP);
}

static int replace(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                   hf_row *cur, int64_t *ret_clock_us, hf_error *err)
{
    struct hf__client *c = hf__client_of(st);
    const struct hf__op op = {c, "replace", key, err};
    struct hf__bucket *b = hf__bucket_at(c, key->hash);
    struct hf__found f = {.cell = NULL};
    struct hf__owed owed;
    size_t need = row ? hf__encoded_size(row) : sizeof(struct hf__body);
    int rc = hf__broken(&op);
    owed.n = 0;
    if (row && too_many(&op, row)) return HF_FULL;
    if (!rc && row && needs_ceiling(c, row->rev)) rc = hf__raise_ceiling(&op, row->rev);
    while (!rc) {
        rc = hf__bucket_lock(&op, b);
        if (rc) break;
        rc = replace_locked(&op, b, seen, row, need, cur, &f, &owed);
        if (rc == 0 || rc == HF_CONFLICT) hf__remember(&op, &f);
        hf__bucket_unlock(c, b);
        if (rc == 0 || rc == HF_CONFLICT) {
            hf__owed_wake(c, b, &owed);
            *ret_clock_us = 0;
            return rc;
        }
        rc = hf__provide(&op, rc, &f, need, cur);
    }
    return rc;
}

int hf__rows_replace(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                     hf_row *cur, int64_t *ret_clock_us, hf_error *err)
{
    struct hf__client *c = hf__client_of(st);
    struct hf__bucket *b = hf__bucket_at(c, key->hash);
    struct hf__hot h;
    if (!row || row->n_holders + row->n_queue > 1 || row->done_us || !hf__hint_of(c, key) ||
        !hf__is_sound(c) || !hf__is_in_reach(c, row->rev))
        return replace(st, key, seen, row, cur, ret_clock_us, err);
    size_t need = sizeof h.head;
    if (row->n_holders + row->n_queue)
        need += HF_PARTY_BYTES(row->party[0].owner_len, row->party[0].note_len);
    if (HF_LIKELY(hf__trylock(c, &b->lock))) {
        if (HF_LIKELY(!HF_LOAD("debt.look", &b->debt) && hf__is_hot(c, key, &h) &&
                      h.head.rev == seen && !hf__waiters(&h.head) && !hf__flags(&h.head) &&
                      need <= h.size)) {
            struct hf__body head = {.marker_seq = h.head.marker_seq};
            hf__put_row(h.cell, h.to, row, need, &head);
            hf__publish(h.cell, h.seq);
            hf__bucket_unlock(c, b);
            *ret_clock_us = 0;
            return 0;
        }
        hf__bucket_unlock(c, b);
    }
    return replace(st, key, seen, row, cur, ret_clock_us, err);
}

/* ---- update ---- */

/* Reads the row, has it changed by `step`, and stores it. The caller holds the bucket's lock.
   HF_CONFLICT: the new rev wasn't above the bucket's floor; the caller begins again. */
static int update_locked(const struct hf__op *op, struct hf__bucket *b,
                         int (*step)(void *arg, hf_row *row), void *arg, hf_row *row,
                         struct hf__found *f, struct hf__owed *owed)
{
    struct hf__client *c = op->c;
    int rc = hf__locate(op, b, f);
    if (!rc) rc = hf__decode(op, f, row);
    if (rc) return rc;
    rc = step(arg, row);
    if (rc <= 0) return rc;
    if (too_many(op, row)) return HF_FULL;
    if (needs_ceiling(c, row->rev)) return HF_NEED_CEILING;
    return store_locked(op, b, row, hf__encoded_size(row), NULL, f, owed);
}

int hf__rows_update(hf_store *st, const hf_rowkey *key, int (*step)(void *arg, hf_row *row),
                    void *arg, hf_row *row, hf_error *err)
{
    struct hf__client *c = hf__client_of(st);
    const struct hf__op op = {c, "update", key, err};
    struct hf__bucket *b = hf__bucket_at(c, key->hash);
    struct hf__found f = {.cell = NULL};
    struct hf__owed owed;
    hf__look_sometimes(c, HF_ENV(c, rough_now)(c) + c->offset_us);
    int rc = hf__is_sound(c) ? 0 : hf__broken(&op);
    owed.n = 0;
    while (!rc) {
        rc = hf__bucket_lock(&op, b);
        if (rc) break;
        rc = update_locked(&op, b, step, arg, row, &f, &owed);
        if (!rc) hf__remember(&op, &f);
        hf__bucket_unlock(c, b);
        if (!rc) {
            hf__owed_wake(c, b, &owed);
            return 0;
        }
        if (rc == HF_NEED_CEILING)
            rc = hf__raise_ceiling(&op, row->rev);
        else if (rc == HF_CONFLICT)
            rc = 0;
        else
            rc = hf__provide(&op, rc, &f, hf__encoded_size(row), row);
    }
    return rc;
}
