/*
 * mem.c - mem:NAME, the store in one process's memory, for threads.
 *
 * Here are the rows; stores by name in mem_tables.c, wakeups and sessions in mem_wakeups.c.
 *
 * A hash table in shards, each under a latch of its own that is held only while a row is copied in
 * or out. Nothing is handed out by pointer. An idle key costs nothing: a row with nobody in it and
 * no marker is dropped in the write that makes it so (a shard keeps the memory of the last one
 * where it is, which counts for nothing). That must not let tokens fall, so a shard remembers the
 * highest rev it ever dropped (`floor`), and whatever is made anew in it is above that; a store
 * that is freed leaves its floor to those that this process makes later.
 *
 * The clock is CLOCK_BOOTTIME plus an offset, fixed when it is first asked for, that makes it about
 * the time of day: so that the tokens of a later process are above those of this one (unless a key
 * was granted more often than once a microsecond ever since; the floor is for this process only).
 *
 * `acquire` with no lease reads a cheaper clock (hf__local_rough_us: behind by up to a tick of the
 * kernel). All that comes of it is since_us, which is for people, and the rev, for which the
 * shard's floor and the row's own rev are what counts.
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

/* Copies the present row to the caller. Under the shard's lock. Returns 0 or HF_NOMEM. */
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

/* Stores the row in the cell `c` of its key. Under the shard's lock. Returns 0; HF_CONFLICT:
   another row is there, or none; HF_NOMEM. */
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
        /* The writer can't know this shard's floor: it gets a free row whose rev is the floor. */
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

/* Called with the latch, which is released. */
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

/* The fast path of the most frequent write: the row becomes empty, so no waiter is woken, and its
   memory may stay. */
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
    } while (rc == HF_CONFLICT); /* the shard has dropped a row with a later rev */
    hf__latch_unlock(&s->latch);
    if (rc) return no_memory("update", key, err);
    hf__mm_ring_all(&rings);
    return 0;
}

/* Releases the latch. `was`: the row that excludes the request; NULL: there is no memory for
   a row. */
static HF_COLD int refuse_latched(struct shard *s, const hf_rowkey *key, const hf_row *was,
                                  hf_row *cur, hf_error *err)
{
    int rc = was && !hf_row_copy(cur, was) ? HF_CONFLICT : HF_NOMEM;
    hf__latch_unlock(&s->latch);
    return rc == HF_NOMEM ? no_memory("acquire", key, err) : rc;
}

/* This store's acquire only grants: where a row is memory, waiters enter the queue by an update. */
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

/* Copies the shard's keys with the prefix, each NUL-terminated, to *ret, which is to be freed
   (NULL: none). */
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

/* The keys of a shard are listed under its lock, then read one by one: `see` may write. */
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
