/*
 * mem.c - mem:NAME, the store in one process's memory, for threads.
 *
 * Contents: the table; stores by name; wakeups and sessions; rows.
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
#include "key_marks.h"
#include "mem_rings.h"
#include "mem_shard.h"
#include "os.h"
#include "step.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { WAKEUPS = 256, SLOT_BITS = 16 };
/* How long a sleeper sleeps at most. In suspend its timeout stands still, but the caller's time
   goes on. */
static const int64_t NAP_US = 60 * 1000000;

/* ---- the table ---- */

struct table {
    struct shard shard[SHARDS];
    struct table *next;
    char *name;
    uint32_t refs;
    pthread_mutex_t mu;     /* protects what follows; taken after a shard's lock, if both are
                               taken */
    struct hf_store **slot; /* the open handles; NULL: free */
    uint32_t slots;
};

struct hf_store {
    struct table *table;
    uint64_t session;
    unsigned fork_generation;
    int death_fd; /* under table->mu */
    struct hf__wakeup wakeup[WAKEUPS];
    /* The keys for which wakeup 0 was used, which many waits share. Made when there are many waits,
       under table->mu. */
    struct hf__key_marks *marks;
    struct hf__marked_wakeup shared_wakeup; /* of the thread that watches */
};

static const hf_row no_row;

static struct shard *shard_of(const hf_store *st, const hf_rowkey *key)
{
    return &st->table->shard[key->hash % SHARDS];
}

/* ---- stores by name ---- */

static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;
static struct table *tables;
static uint64_t sessions_made, last_floor;
static int64_t day_offset_us;
static pthread_once_t started = PTHREAD_ONCE_INIT;

static void before_fork(void) { pthread_mutex_lock(&registry); }
static void after_fork(void) { pthread_mutex_unlock(&registry); }

/* The child of a fork starts with no stores. The parent's may be in the middle of a change, and its
   threads don't exist here. The handles that the child inherited are dead, and keep what they point
   to. */
static void in_child(void)
{
    tables = NULL;
    pthread_mutex_unlock(&registry);
}

static void start(void)
{
    day_offset_us = hf__day_us() - hf__local_us();
    pthread_atfork(before_fork, after_fork, in_child);
}

static void free_chain(struct cell *c)
{
    for (struct cell *next; c; c = next) {
        next = c->next;
        if (c->row.rev > last_floor) last_floor = c->row.rev;
        free_cell(c);
    }
}

static void free_table(struct table *t)
{
    for (int i = 0; i < SHARDS; i++) {
        struct shard *s = &t->shard[i];
        if (s->floor > last_floor) last_floor = s->floor;
        for (uint32_t b = 0; s->bucket && b < s->buckets; b++) free_chain(s->bucket[b]);
        free_chain(s->spare);
        free(s->bucket);
    }
    pthread_mutex_destroy(&t->mu);
    free(t->slot);
    free(t->name);
    free(t);
}

static struct table *new_table(const char *name)
{
    struct table *t = aligned_alloc(CACHE_LINE, sizeof *t);
    if (!t) return NULL;
    memset(t, 0, sizeof *t);
    pthread_mutex_init(&t->mu, NULL);
    t->name = strdup(name);
    int whole = t->name != NULL;
    for (int i = 0; i < SHARDS; i++) {
        struct shard *s = &t->shard[i];
        s->bucket = calloc(FEWEST_BUCKETS, sizeof(struct cell *));
        s->buckets = FEWEST_BUCKETS;
        s->floor = last_floor;
        if (!s->bucket) whole = 0;
    }
    if (whole) return t;
    free_table(t);
    return NULL;
}

/* Takes a slot of the table for the handle: that makes its session. */
static int enter(struct table *t, hf_store *st)
{
    uint32_t i = 0;
    while (i < t->slots && t->slot[i]) i++;
    if (i == 1 << SLOT_BITS) return HF_FULL;
    if (i == t->slots) {
        uint32_t n = i ? i * 2 : 8;
        hf_store **more = realloc(t->slot, n * sizeof *more);
        if (!more) return HF_NOMEM;
        memset(more + i, 0, (n - i) * sizeof *more);
        t->slot = more;
        t->slots = n;
    }
    t->slot[i] = st;
    st->session = ++sessions_made << SLOT_BITS | i;
    return 0;
}

/* Finds the table of this name, or makes it. Under the registry's lock. */
static int join_table(const char *name, hf_store *st)
{
    struct table *t = tables;
    while (t && strcmp(t->name, name)) t = t->next;
    if (!t) {
        t = new_table(name);
        if (!t) return HF_NOMEM;
        t->next = tables;
        tables = t;
    }
    st->table = t;
    t->refs++;
    pthread_mutex_lock(&t->mu);
    int rc = enter(t, st);
    pthread_mutex_unlock(&t->mu);
    return rc;
}

/* Gives up one use of the table. The last user frees it. Under the registry's lock. */
static void leave_table(hf_store *st)
{
    struct table *t = st->table, **at = &tables;
    if (!t || --t->refs) return;
    while (*at != t) at = &(*at)->next;
    *at = t->next;
    free_table(t);
}

static int mm_open(const hf_url *url, int64_t io_timeout_ms, hf_store **ret, hf_caps *caps,
                   hf_error *err)
{
    (void)caps;
    (void)io_timeout_ms;
    if (url->host[0] || url->user[0] || url->password[0] || url->port || url->query[0])
        return hf_fail(err, HF_INVALID, 0, "mem: open '%s': write mem: or mem:NAME", url->safe);
    pthread_once(&started, start);
    hf_store *st = calloc(1, sizeof *st);
    if (!st) return hf_fail(err, HF_NOMEM, 0, "mem: open '%s': out of memory", url->safe);
    st->death_fd = -1;
    st->fork_generation = hf__fork_generation();
    pthread_mutex_lock(&registry);
    int rc = join_table(url->path, st);
    if (rc) leave_table(st);
    pthread_mutex_unlock(&registry);
    if (rc) {
        free(st);
        return hf_fail(err, rc, 0, "mem: open '%s': %s", url->safe, hf_code_text(rc));
    }
    *ret = st;
    return 0;
}

static void mm_close(hf_store *st)
{
    struct table *t = st->table;
    if (st->fork_generation == hf__fork_generation()) {
        pthread_mutex_lock(&t->mu);
        t->slot[st->session & ((1 << SLOT_BITS) - 1)] = NULL;
        for (uint32_t i = 0; i < t->slots; i++)
            if (t->slot[i] && t->slot[i]->death_fd >= 0) eventfd_write(t->slot[i]->death_fd, 1);
        pthread_mutex_unlock(&t->mu);
        pthread_mutex_lock(&registry);
        leave_table(st);
        pthread_mutex_unlock(&registry);
    }
    /* Closed only now, when no other thread can find it to write to: another file may soon have its
       number. */
    if (st->death_fd >= 0) close(st->death_fd);
    free(st->marks);
    free(st);
}

/* ---- wakeups and sessions ---- */

static hf_store *of_session(const struct table *t, uint64_t session)
{
    uint64_t i = session & ((1 << SLOT_BITS) - 1);
    hf_store *st = i < t->slots ? t->slot[i] : NULL;
    return st && st->session == session ? st : NULL;
}

static void ring_all(struct rings *r)
{
    if (!r->n) return;
    pthread_mutex_lock(&r->table->mu);
    for (uint32_t i = 0; i < r->n; i++) {
        hf_store *st = of_session(r->table, r->who[i].session);
        if (st && st->marks && !r->who[i].wakeup) hf__mark_key(st->marks, r->hash);
        if (st) hf__wakeup_post(&st->wakeup[r->who[i].wakeup]);
    }
    pthread_mutex_unlock(&r->table->mu);
    r->n = 0;
}

static int mm_session(hf_store *st, uint64_t *ret, hf_error *err)
{
    (void)err;
    *ret = st->session;
    return 0;
}

static int mm_alive(hf_store *st, uint64_t session, hf_error *err)
{
    (void)err;
    pthread_mutex_lock(&st->table->mu);
    int lives = of_session(st->table, session) != NULL;
    pthread_mutex_unlock(&st->table->mu);
    return lives;
}

/* Makes the marks. If there is no memory, there are none, and a wakeup may be for any key. */
static void make_marks(hf_store *st)
{
    struct hf__key_marks *marks = calloc(1, sizeof *marks);
    pthread_mutex_lock(&st->table->mu);
    st->marks = marks;
    pthread_mutex_unlock(&st->table->mu);
    st->shared_wakeup.all = 1; /* earlier wakeups weren't marked */
}

static int mm_wakeup_begin(hf_store *st, uint8_t wakeup, size_t n, hf_event_count *ret,
                           hf_error *err)
{
    (void)err;
    if (!wakeup && n >= HF_MARKS_FROM && !st->marks) make_marks(st);
    ret->n[0] = hf__wakeup_count(&st->wakeup[wakeup]);
    ret->n[1] = 0;
    return 0;
}

static int mm_sleep(hf_store *st, uint8_t wakeup, const hf_event_count *since, int64_t until_us,
                    hf_error *err)
{
    int64_t left = until_us - hf__local_us();
    (void)err;
    if (left > NAP_US) left = NAP_US;
    if (left > 0) hf__wakeup_sleep(&st->wakeup[wakeup], (uint32_t)since->n[0], left);
    return 0;
}

static int mm_next_event(hf_store *st, uint8_t wakeup, hf_key_event *ret)
{
    return hf__wakeup_event(&st->shared_wakeup, st->marks, hf__wakeup_count(&st->wakeup[wakeup]),
                            ret);
}

static void mm_interrupt(hf_store *st, uint8_t wakeup)
{
    hf__wakeup_interrupt(&st->wakeup[wakeup]);
}

static int mm_death_fd(hf_store *st)
{
    pthread_mutex_lock(&st->table->mu);
    if (st->death_fd < 0) st->death_fd = hf__fd_above(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    int fd = st->death_fd;
    pthread_mutex_unlock(&st->table->mu);
    return fd;
}

static int mm_death_read(hf_store *st)
{
    eventfd_t n;
    return eventfd_read(mm_death_fd(st), &n) == 0;
}

/* ---- rows ---- */

static int64_t mm_now(hf_store *st)
{
    (void)st;
    return hf__local_us() + day_offset_us;
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
    ring_all(&rings);
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
    ring_all(&rings);
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
    int64_t clock_us = (party->lease_ms ? hf__local_us() : hf__local_rough_us()) + day_offset_us;
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
                                   .wakeup_begin = mm_wakeup_begin,
                                   .sleep = mm_sleep,
                                   .interrupt = mm_interrupt,
                                   .next_event = mm_next_event};

static const hf_liveness_ops liveness = {
    .session = mm_session, .alive = mm_alive, .death_fd = mm_death_fd, .death_read = mm_death_read};

const hf_driver hf__mem_driver = {
    .abi = HF_DRIVER_ABI,
    .name = "mem",
    .about = "one process's memory, for its threads: mem:, mem:NAME",
    .caps = {.queue_cap = 4096,
             .holders_cap = 4096,
             .threads = 1,
             .queues = 1,
             .local = &local,
             .liveness = &liveness},
    .open = mm_open,
    .close = mm_close,
    .get = mm_get,
    .replace = mm_replace,
    .acquire = mm_acquire,
    .scan = mm_scan,
    .inspect = mm_inspect,
};
