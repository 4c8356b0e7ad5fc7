/*
 * rows.c - the operations on a row: get, replace, acquire, update.
 *
 * Contents: whether the store can be used; revs and clocks; finding the cell; writing bodies; get;
 * acquire; replace; update.
 *
 * A write fills the body that isn't current and publishes it by one store to the cell's seq. take
 * and replace are the hot path of the whole library, so each first tries the common case: the
 * caller's hint names the key's cell, nobody holds the bucket's lock, there is neither marker nor
 * queue, and the new body fits. That takes one compare-and-swap and no call into another file.
 * Whatever else it finds, it lets go and leaves everything to the general path.
 */
#include "store.h"

#include "grant.h"
#include "hints.h"
#include "sum.h"

/* Revs may be ahead of the clock by less than a machine takes to start again, since a power cut may
   take each of them; what is more has to be known to the disk first (see hf__raise_ceiling). */
enum { AHEAD_US = 100000 };

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

/* A client with the file open makes no system call, so nothing tells it that the path now leads to
   another file: it looks once a second. */
static inline int is_time_to_look(const struct hf__client *c, int64_t clock_us)
{
    return clock_us >= atomic_load_explicit(&c->look_at_us, memory_order_relaxed);
}

void hf__look_sometimes(struct hf__client *c, int64_t clock_us)
{
    if (!is_time_to_look(c, clock_us)) return;
    atomic_store_explicit(&c->look_at_us, clock_us + HF_LOOK_US, memory_order_relaxed);
    atomic_store_explicit(&c->look, 1, memory_order_release);
}

/* Returns 1 in the common case that the store is usable. Relaxed: an operation more or less doesn't
   matter. */
static inline int is_sound(const struct hf__client *c)
{
    return !atomic_load_explicit(&c->broken, memory_order_relaxed) &&
           !atomic_load_explicit(&c->look, memory_order_relaxed);
}

/* ---- revs and clocks ---- */

/* Returns what hf_rev_next does, without the call. */
static inline uint64_t rev_after(uint64_t previous, int64_t clock_us)
{
    uint64_t floor = clock_us > 0 ? (uint64_t)clock_us : 0;
    return previous + 1 > floor ? previous + 1 : floor;
}

/* If the grant has no lease, nothing ends by its time, so a clock that is a little behind
   will do. */
static inline int64_t clock_for(struct hf__client *c, const hf_party *party)
{
    return (party->lease_ms ? HF_NOW(c) : HF_ENV(c, rough_now)(c)) + c->offset_us;
}

/* Revs run ahead of the clock only if a key is written more than once in a microsecond, and for
   long. Then a power cut must not bring the store back with a clock behind them. */
static inline int is_ahead(const struct hf__client *c, uint64_t rev, int64_t clock_us)
{
    return HF_UNLIKELY((int64_t)rev > clock_us + AHEAD_US) &&
           rev > atomic_load_explicit(&c->ceiling_us, memory_order_relaxed);
}

/* Returns 1 if another client's rev isn't too far ahead of the clock. A clock that was read lately
   is enough, because it is behind at most. */
static inline int is_in_reach(const struct hf__client *c, uint64_t rev)
{
    return (int64_t)rev <= atomic_load_explicit(&c->last_us, memory_order_relaxed) + AHEAD_US ||
           rev <= atomic_load_explicit(&c->ceiling_us, memory_order_relaxed);
}
static int needs_ceiling(struct hf__client *c, uint64_t rev)
{
    if (is_in_reach(c, rev)) return 0;
    int64_t now_us = HF_NOW(c) + c->offset_us;
    atomic_store_explicit(&c->last_us, now_us, memory_order_relaxed);
    return is_ahead(c, rev, now_us);
}

/* ---- finding the cell ---- */

/* A cell that a hint led to, with both of its bodies. */
struct hot {
    struct hf__cell *cell;
    struct hf__body *at, *to; /* the current body; the other one */
    size_t size;              /* of *to */
    uint64_t seq;
    struct hf__body head; /* of *at */
};

/* Returns the address of a body that lies within the file, or NULL. */
static inline struct hf__body *body_at(const struct hf__client *c, _Atomic uint64_t *link,
                                       size_t *ret_size)
{
    uint64_t word = HF_LOAD("hot.link", link), line = hf__unseal(word) >> 8;
    unsigned code = (unsigned)(hf__unseal(word) & 0xff);
    if (!hf__sealed(word) || code >= HF_BODY_CODES || !hf__has(c, line, HF_BODY_LINES(code)))
        return NULL;
    *ret_size = (size_t)HF_BODY_LEAST << code;
    return hf__line_at(c, line);
}

/* Finds a key by its hint. The hint may be old: cells never move, but a vacant one may have got
   another key. */
static inline int is_hot(const struct hf__client *c, const hf_rowkey *key, struct hot *h)
{
    uint64_t line = hf__hint_of(c, key);
    size_t size = 0;
    if (!line || !hf__has(c, line, 1 + HF_KEY_CAP / HF_LINE)) return 0;
    h->cell = hf__line_at(c, line);
    if (HF_GET("hot.hash", h->cell->hash) != key->hash ||
        HF_GET("hot.key", h->cell->key) >> 48 != key->len ||
        !HF_SAME("hot.text", hf__cell_key(h->cell), key->text, key->len))
        return 0;
    h->seq = HF_LOAD("hot.seq", &h->cell->seq);
    h->at = body_at(c, &h->cell->body[hf__unseal(h->seq) & 1], &size);
    h->to = body_at(c, &h->cell->body[~hf__unseal(h->seq) & 1], &h->size);
    if (!hf__sealed(h->seq) || !h->at || !h->to) return 0;
    h->head = HF_GET("hot.head", *h->at);
    return h->head.check == hf__body_check(&h->head, h->cell->self) &&
           hf__used(&h->head) <= size - sizeof h->head && !(hf__flags(&h->head) & HF_BODY_VACANT);
}

/* Finds the key's cell; f->cell is NULL if there is none. */
static int locate(const struct hf__op *op, struct hf__bucket *b, struct hf__found *f)
{
    struct hot h;
    /* hf__find also reports the damage that it meets */
    if (!is_hot(op->c, op->key, &h) || !hf__likely_head(&h.head)) return hf__find(op, b, f);
    f->cell = h.cell;
    f->at = h.at;
    f->seq = h.seq;
    f->head = h.head;
    f->links = 1;
    return 0;
}

static void remember(const struct hf__op *op, const struct hf__found *f)
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
        f->durable_at[1] = f->durable_at[0]; /* other clients may be writing both bodies in turn */
        f->durable_at[0] = f->at;
        return hf__sync(op);
    }
    if (rc == HF_NEED_SPACE) return hf__space(op, 2 * need + HF_KEY_CAP + 4 * HF_SECTOR);
    if (rc == HF_NEED_CEILING) return hf__raise_ceiling(op, f->head.rev + 1);
    if (rc != HF_NEED_PARTIES) return rc;
    /* with some room to spare, because the row may have more parties by then */
    if (!hf_row_room(row, (size_t)parties_in(f) + 4)) return 0;
    return hf_fail(op->err, HF_NOMEM, 0, "file: %s '%s': out of memory", op->verb,
                   op->key ? op->key->text : "");
}

/* ---- writing bodies ---- */

/* Stores in *to the row of a grant: `party` holds, no request waits. Copies to *cur what the grant
   reports. */
static inline void put_taken(struct hf__cell *cell, const struct hf__body *was, struct hf__body *to,
                             uint64_t rev, const hf_party *party, int64_t clock_us, hf_row *cur)
{
    int64_t expires_us = party->lease_ms ? clock_us + (int64_t)party->lease_ms * 1000 : 0;
    unsigned char *in = (unsigned char *)(to + 1);
    hf_party *fixed = (hf_party *)(void *)in;
    size_t size = (size_t)(hf__put_party(in, party) - in);
    /* After the copying, not in between: reading back what was just written would stall. */
    HF_PUT("taken.token", fixed->token, rev);
    HF_PUT("taken.since", fixed->since_us, clock_us);
    HF_PUT("taken.expires", fixed->expires_us, expires_us);
    HF_PUT("taken.claim", fixed->claim_ms, 0);
    HF_PUT("taken.flags", fixed->flags, 0);
    uint64_t word = hf__party_word(party, rev, clock_us, expires_us, 0, 0);
    const struct hf__body h = {.rev = rev,
                               .token = rev,
                               .counts = 1,
                               .extent = size | (uint64_t)(hf__flags(was) & HF_BODY_MARKED) << 32 |
                                         hf__sum_bits(hf__sum_next(0, word)),
                               .marker_seq = was->marker_seq};
    hf__put_head(cell, to, &h);
    hf__tell_grant(cur, party, rev, clock_us);
}

/* Stores the row, except for its marker, which h->extent and h->marker_seq name. */
static inline void put_row(struct hf__cell *cell, struct hf__body *to, const hf_row *row,
                           size_t need, struct hf__body *h)
{
    unsigned char *p = (unsigned char *)(to + 1);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < row->n_holders + row->n_queue; i++) {
        p = hf__put_party(p, &row->party[i]);
        sum = hf__sum_next(sum, hf__party_word_of(&row->party[i]));
    }
    h->rev = row->rev;
    h->token = row->token;
    h->counts = row->n_holders | (uint64_t)row->n_queue << 32;
    h->extent |= (need - sizeof *h) | hf__sum_bits(sum);
    hf__put_head(cell, to, h);
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
    int rc = is_sound(c) ? 0 : hf__broken(&op);
    while (!rc) {
        rc = hf__bucket_lock(&op, b);
        if (rc) break;
        rc = locate(&op, b, &f);
        if (!rc) rc = hf__decode(&op, &f, row);
        if (!rc) remember(&op, &f);
        hf__bucket_unlock(c, b);
        if (HF_LIKELY(!rc)) {
            *ret_clock_us = 0;
            return 0;
        }
        rc = hf__provide(&op, rc, &f, 0, row);
    }
    return rc;
}

/* ---- acquire ---- */

/* Grants a free key under the bucket's lock. HF_CONFLICT: *cur is the current row. */
static int grant_locked(const struct hf__op *op, struct hf__bucket *b, const hf_party *party,
                        size_t need, int64_t clock_us, hf_row *cur, struct hf__found *f)
{
    struct hf__body *to;
    int rc = locate(op, b, f);
    if (!rc && !f->cell) {
        rc = hf__cell_make(op, b, f, need);
        /* A key that is new here may have been used a moment ago in a file that was removed. */
        clock_us = HF_NOW(op->c) + op->c->offset_us;
    }
    if (rc) return rc;
    if (f->head.counts) {
        rc = hf__decode(op, f, cur);
        return rc ? rc : HF_CONFLICT;
    }
    uint64_t rev = rev_after(f->head.rev, clock_us);
    if (is_ahead(op->c, rev, clock_us)) return HF_NEED_CEILING;
    rc = hf__body_room(op, f, need, &to);
    if (!rc) rc = hf__decode_marker(op, f, cur);
    if (rc) return rc;
    put_taken(f->cell, &f->head, to, rev, party, clock_us, cur);
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
    hf__look_sometimes(c, clock_for(c, party));
    int rc = hf__broken(&op);
    while (!rc) {
        int64_t clock_us = clock_for(c, party);
        rc = hf__bucket_lock(&op, b);
        if (rc) break;
        rc = grant_locked(&op, b, party, need, clock_us, cur, &f);
        if (rc == 0 || rc == HF_CONFLICT) remember(&op, &f);
        hf__bucket_unlock(c, b);
        if (rc == 0 || rc == HF_CONFLICT) {
            *ret_clock_us = clock_us;
            return rc;
        }
        /* Any failure but "out of memory" comes from the disk. */
        if (party->flags & HF_PARTY_AT_ONCE && rc > 0 && rc != HF_NEED_PARTIES)
            return HF_WOULD_WAIT;
        rc = hf__provide(&op, rc, &f, need, cur);
    }
    return rc;
}

/* This store's acquire only grants: where a row is memory, waiters enter the queue by an update. */
int hf__rows_acquire(hf_store *st, const hf_rowkey *key, const hf_party *party, uint32_t may_queue,
                     hf_row *cur, int64_t *ret_clock_us, hf_error *err)
{
    (void)may_queue;
    struct hf__client *c = hf__client_of(st);
    struct hf__bucket *b = hf__bucket_at(c, key->hash);
    struct hot h;
    if (!hf__hint_of(c, key) || !is_sound(c))
        return acquire(st, key, party, cur, ret_clock_us, err);
    size_t need = sizeof h.head + HF_PARTY_BYTES(party->owner_len, party->note_len);
    int64_t clock_us = clock_for(c, party);
    if (HF_LIKELY(!is_time_to_look(c, clock_us) && hf__trylock(c, &b->lock))) {
        if (HF_LIKELY(!HF_LOAD("debt.look", &b->debt) && is_hot(c, key, &h) && !h.head.counts &&
                      !hf__flags(&h.head) && need <= h.size)) {
            uint64_t rev = rev_after(h.head.rev, clock_us);
            if (HF_LIKELY(!is_ahead(c, rev, clock_us))) {
                put_taken(h.cell, &h.head, h.to, rev, party, clock_us, cur);
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

/* ---- replace ---- */

/* Compares the stored rev with `seen`. HF_CONFLICT: *cur (unless NULL) is the current row. */
static int compare(const struct hf__op *op, const struct hf__found *f, uint64_t seen, hf_row *cur)
{
    if ((f->cell ? f->head.rev : 0) == seen) return 0;
    int rc = cur ? hf__decode(op, f, cur) : 0;
    return rc ? rc : HF_CONFLICT;
}

/* Deletes the row: the cell is vacant from now on, but keeps its last rev (and one more, so that
   recovery can tell which of the bodies is newer). */
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

/* Stores a free row at the bucket's floor, because the writer can't know of the later rev that the
   bucket has deleted. Returns HF_CONFLICT, with that row in *cur (unless NULL); or an error. */
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

/* Stores the row in place of the one that was found. HF_CONFLICT: that one is too old; *cur (unless
   NULL) is the current row. */
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
    put_row(f->cell, to, row, need, &h);
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
    int rc = locate(op, b, f);
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
        if (rc == 0 || rc == HF_CONFLICT) remember(&op, &f);
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
    struct hot h;
    if (!row || row->n_holders + row->n_queue > 1 || row->done_us || !hf__hint_of(c, key) ||
        !is_sound(c) || !is_in_reach(c, row->rev))
        return replace(st, key, seen, row, cur, ret_clock_us, err);
    size_t need = sizeof h.head;
    if (row->n_holders + row->n_queue)
        need += HF_PARTY_BYTES(row->party[0].owner_len, row->party[0].note_len);
    if (HF_LIKELY(hf__trylock(c, &b->lock))) {
        if (HF_LIKELY(!HF_LOAD("debt.look", &b->debt) && is_hot(c, key, &h) && h.head.rev == seen &&
                      !hf__waiters(&h.head) && !hf__flags(&h.head) && need <= h.size)) {
            struct hf__body head = {.marker_seq = h.head.marker_seq};
            put_row(h.cell, h.to, row, need, &head);
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

/* Updates the row under the bucket's lock. HF_CONFLICT: the caller begins again. */
static int update_locked(const struct hf__op *op, struct hf__bucket *b,
                         int (*step)(void *arg, hf_row *row), void *arg, hf_row *row,
                         struct hf__found *f, struct hf__owed *owed)
{
    struct hf__client *c = op->c;
    int rc = locate(op, b, f);
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
    int rc = is_sound(c) ? 0 : hf__broken(&op);
    owed.n = 0;
    while (!rc) {
        rc = hf__bucket_lock(&op, b);
        if (rc) break;
        rc = update_locked(&op, b, step, arg, row, &f, &owed);
        if (!rc) remember(&op, &f);
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
