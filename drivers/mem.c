/*
 * mem.c - mem:NAME, the store in one process's memory, for threads.
 *
 * This file has the rows, mem_tables.c the stores by name, mem_wakeups.c wakeups and sessions.
 *
 * The rows are in a hash table of shards. Each shard has a latch, which a thread holds only while
 * it copies a row in or out. Callers get copies of rows, never pointers to them.
 *
 * An idle key needs no memory: a write that leaves a row without parties and without a marker
 * deletes the row. Tokens must not fall after that. So each shard remembers the highest rev that it
 * has deleted (`floor`), and a new row gets a greater one. The floor of a store that is freed
 * becomes the least floor of the stores that this process makes later.
 *
 * The clock is CLOCK_BOOTTIME plus an offset that makes it about the time of day. The offset is set
 * when the process opens its first store. So the tokens of a later process are above those of this
 * one, unless a key was granted more than once a microsecond for long.
 *
 * A request without a lease reads a cheaper clock, which is late by up to a tick of the kernel
 * (hf__local_rough_us). It only sets since_us, which is shown to people, and the rev, which is
 * above the floor and the row's former rev in any case.
 */
#include "drivers.h"
#include "grant.h"
#include "mem_rings.h"
#include "mem_tables.h"
#include "os.h"
#include "step.h"

#include <stdlib.h>
#include <string.h>

static const hf_row no_row;

static struct shard *shard_of(const hf_store *st, const hf_rowkey *key)
{
    return &st->table->shard[key->hash % SHARDS];
}

static int64_t mm_now(hf_store *st)
{
    (void)st;
    return hf__local_us() + hf__mm_day_offset_us;
}

static int no_memory(const char *what, const hf_rowkey *key, hf_error *err)
{
    return hf_fail(err, HF_NOMEM, 0, "mem: %s '%s': out of memory", what, key->text);
}

/* Copies the present row of the key to *to. The caller holds the shard's latch. Returns 0 or
   HF_NOMEM. */
static int copy_now(const struct shard *s, const hf_rowkey *key, hf_row *to)
{
    const hf_row *now = row_of(s, *find(s, key));
    return hf_row_copy(to, now ? now : &no_row);
}

static int mm_get(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
                  hf_error *err)
{
    struct shard *s = shard_of(st, key);
    hf__latch_lock(&s->latch);
    int rc = copy_now(s, key, row);
    hf__latch_unlock(&s->latch);
    *ret_clock_us = 0;
    return rc ? no_memory("get", key, err) : 0;
}

static int disposable(const hf_row *row)
{
    return !row->n_holders && !row->n_queue && !row->done_us;
}

/* Stores `row` in `c`, the key's cell (NULL: it has none); deletes the key's row if `row` is NULL.
   Notes in *rings which waiters have to be woken. The caller holds the shard's latch. Returns 0;
   HF_CONFLICT: the key's rev isn't `seen`, or the new rev isn't above the floor; HF_NOMEM. */
static int write_row(struct shard *s, struct cell *c, const hf_rowkey *key, uint64_t seen,
                     const hf_row *row, struct rings *rings)
{
    const hf_row *was = row_of(s, c);
    if ((was ? was->rev : 0) != seen) return HF_CONFLICT;
    if (!row) {
        /* A later row must not have the rev of the deleted row, which another client may have
           seen. */
        if (was) drop(s, c, was->rev + 1);
        return 0;
    }
    if (!was) {
        /* The writer can't know this shard's floor. If its rev isn't above the floor, it gets a
           conflict with a free row whose rev is the floor. */
        int late = row->rev <= s->floor;
        c = add(s, key, c);
        if (!c) return HF_NOMEM;
        if (late) return HF_CONFLICT;
    }
    note_rings(rings, &c->row, row);
    if (!disposable(row)) return hf_row_copy(&c->row, row);
    drop(s, c, row->rev);
    return 0;
}

/* Replaces the row. The caller holds the latch of the key's shard; this function releases it. */
static HF_APART int replace_latched(hf_store *st, const hf_rowkey *key, uint64_t seen,
                                    const hf_row *row, hf_row *cur, hf_error *err)
{
    struct shard *s = shard_of(st, key);
    struct rings rings;
    rings.table = st->table;
    rings.hash = key->hash;
    rings.n = 0;
    int rc = write_row(s, *find(s, key), key, seen, row, &rings);
    if (rc == HF_CONFLICT && cur && copy_now(s, key, cur)) rc = HF_NOMEM;
    hf__latch_unlock(&s->latch);
    if (rc == HF_NOMEM) return no_memory("replace", key, err);
    hf__mm_ring_all(&rings);
    return rc;
}

static HF_APART int replace(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                            hf_row *cur, hf_error *err)
{
    hf__latch_lock(&shard_of(st, key)->latch);
    return replace_latched(st, key, seen, row, cur, err);
}

static HF_APART int drop_latched(struct shard *s, struct cell *c, uint64_t floor)
{
    drop(s, c, floor);
    return hf__latch_unlock(&s->latch);
}

/* The most frequent write is a release that leaves the row empty. It has a fast path here: no
   waiter has to be woken, and the cell can stay where it is as the shard's `idle` one. */
static int mm_replace(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                      hf_row *cur, int64_t *ret_clock_us, hf_error *err)
{
    struct shard *s = shard_of(st, key);
    *ret_clock_us = 0;
    if (!row || !disposable(row) || !hf__latch_at_once(&s->latch))
        return replace(st, key, seen, row, cur, err);
    struct cell *c = *find(s, key);
    const hf_row *was = row_of(s, c);
    if (!was || was->rev != seen) return replace_latched(st, key, seen, row, cur, err);
    if (!rests(s, c)) return drop_latched(s, c, row->rev);
    raise_floor(s, row->rev);
    return hf__latch_unlock(&s->latch);
}

static HF_APART int mm_update(hf_store *st, const hf_rowkey *key,
                              int (*step)(void *arg, hf_row *row), void *arg, hf_row *row,
                              hf_error *err)
{
    struct shard *s = shard_of(st, key);
    struct rings rings;
    int rc;
    rings.table = st->table;
    rings.hash = key->hash;
    rings.n = 0;
    hf__latch_lock(&s->latch);
    do {
        rc = copy_now(s, key, row);
        uint64_t seen = row->rev;
        int changed = rc ? 0 : step(arg, row);
        if (changed < 0) {
            hf__latch_unlock(&s->latch);
            return changed;
        }
        if (changed) rc = write_row(s, *find(s, key), key, seen, row, &rings);
    } while (rc == HF_CONFLICT); /* the new rev wasn't above the floor: step again from there */
    hf__latch_unlock(&s->latch);
    if (rc) return no_memory("update", key, err);
    hf__mm_ring_all(&rings);
    return 0;
}

/* Refuses an acquire, and releases the shard's latch. `was` is the row that excludes the request:
   HF_CONFLICT, with a copy in *cur. NULL: there is no memory for a row: HF_NOMEM. */
static HF_COLD int refuse_latched(struct shard *s, const hf_rowkey *key, const hf_row *was,
                                  hf_row *cur, hf_error *err)
{
    int rc = was && !hf_row_copy(cur, was) ? HF_CONFLICT : HF_NOMEM;
    hf__latch_unlock(&s->latch);
    return rc == HF_NOMEM ? no_memory("acquire", key, err) : rc;
}

/* Only grants. Waiters enter the queue by mm_update, which is as fast here: a row is memory. */
static int mm_acquire(hf_store *st, const hf_rowkey *key, const hf_party *party, uint32_t may_queue,
                      hf_row *cur, int64_t *ret_clock_us, hf_error *err)
{
    (void)may_queue;
    struct shard *s = shard_of(st, key);
    int64_t clock_us =
        (party->lease_ms ? hf__local_us() : hf__local_rough_us()) + hf__mm_day_offset_us;
    *ret_clock_us = 0;
    hf__latch_lock(&s->latch);
    struct cell *c = *find(s, key);
    const hf_row *was = row_of(s, c);
    if (was && !hf__is_free_for(was, party)) return refuse_latched(s, key, was, cur, err);
    uint64_t rev = hf__rev_next(was ? was->rev : s->floor, clock_us);
    if (!was && !(c = add(s, key, c))) return refuse_latched(s, key, NULL, cur, err);
    cur->done_us = cur->keep_until_us = 0;
    if (was && was->done_us) hf__row_copy_mark(cur, was);
    hf__tell_grant(cur, party, rev, clock_us);
    hf__grant(&c->row, party, rev, clock_us);
    return hf__latch_unlock(&s->latch);
}

/* Copies the shard's keys that have the prefix, each NUL-terminated, to *ret, which the caller
   frees (NULL: none). Takes the latch. */
static int list_keys(struct shard *s, const char *prefix, char **ret, size_t *ret_len)
{
    size_t len = strlen(prefix), total = 0;
    char *to = NULL;
    hf__latch_lock(&s->latch);
    for (int fill = 0; fill < 2; fill++) {
        size_t n = 0;
        for (uint32_t b = 0; b < s->buckets; b++)
            for (const struct cell *c = s->bucket[b]; c; c = c->next) {
                if (strncmp(c->key, prefix, len)) continue;
                if (fill) memcpy(to + n, c->key, (size_t)c->len + 1);
                n += (size_t)c->len + 1;
            }
        total = n;
        if (!fill && (!n || !(to = malloc(n)))) break;
    }
    hf__latch_unlock(&s->latch);
    *ret = to;
    *ret_len = total;
    return total && !to ? HF_NOMEM : 0;
}

typedef int see_fn(void *arg, const hf_rowkey *key, hf_row *row);

static int scan_keys(hf_store *st, const char *keys, size_t len, see_fn *see, void *arg,
                     hf_error *err)
{
    hf_row row;
    int rc = 0;
    hf_row_init(&row);
    for (const char *k = keys; !rc && k && k < keys + len; k += strlen(k) + 1) {
        hf_rowkey key = {.text = k, .len = (uint32_t)strlen(k)};
        int64_t clock_us;
        key.hash = hf_key_hash(k, key.len);
        rc = mm_get(st, &key, &row, &clock_us, err);
        if (!rc && row.rev && see(arg, &key, &row)) rc = 1;
    }
    hf_row_clear(&row);
    return rc;
}

/* Lists the keys of each shard under its latch, then reads their rows one by one without it,
   because `see` may write. */
static int mm_scan(hf_store *st, const char *prefix, see_fn *see, void *arg, int64_t *ret_clock_us,
                   hf_error *err)
{
    *ret_clock_us = 0;
    for (int i = 0; i < SHARDS; i++) {
        char *keys;
        size_t len;
        int rc = list_keys(&st->table->shard[i], prefix, &keys, &len);
        if (rc) return hf_fail(err, rc, 0, "mem: scan '%.100s': out of memory", prefix);
        rc = scan_keys(st, keys, len, see, arg, err);
        free(keys);
        if (rc) return rc < 0 ? rc : 0;
    }
    return 0;
}

static int mm_inspect(hf_store *st, void (*say)(void *arg, int ok, const char *text), void *arg,
                      hf_error *err)
{
    (void)st, (void)err;
    say(arg, 1, "rows are in this process's memory: for its threads only, gone when it ends");
    return 0;
}

static const hf_local_ops local = {.now = mm_now,
                                   .update = mm_update,
                                   .wakeup_begin = hf__mm_wakeup_begin,
                                   .sleep = hf__mm_sleep,
                                   .interrupt = hf__mm_interrupt,
                                   .next_event = hf__mm_next_event};

const hf_driver hf__mem_driver = {
    .abi = HF_DRIVER_ABI,
    .name = "mem",
    .about = "one process's memory, for its threads: mem:, mem:NAME",
    .caps = {.queue_cap = 4096,
             .holders_cap = 4096,
             .threads = 1,
             .queues = 1,
             .local = &local,
             .liveness = &hf__mm_liveness},
    .open = hf__mm_open,
    .close = hf__mm_close,
    .get = mm_get,
    .replace = mm_replace,
    .acquire = mm_acquire,
    .scan = mm_scan,
    .inspect = mm_inspect,
};
