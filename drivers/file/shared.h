/*
 * shared.h - what lies in the mapped file, and the only ways to touch it.
 *
 * Contents: geometry; words that check themselves; the layout; the client; the seams; lock words;
 * what the other files of the driver offer to each other.
 *
 * Rules that every file here keeps:
 *   - The mapping is touched through the HF_... macros below, and in no other way. With -DHF_SEAM
 * each of them calls hf__seam() first, where a test may let another process run, or end this one;
 * system calls go through a table that a test can replace. So several "processes" can
 *     live in one, on one mapping: nothing here keeps global state about a store.
 * - A process may die at any of those points. The next process must find the old state or the new
 * one; a state between them (a lock word of a dead process, an allocation under way) names the
 * process that is responsible for it.
 *   - What is read from the file is a claim: offsets are compared with the file's size before they
 *     are followed, chains only go upwards, lengths are bounded. Damage ends in HF_CORRUPT.
 */
#ifndef HF_FILE_SHARED_H
#define HF_FILE_SHARED_H

#include "holdfast_driver.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

/* ---- geometry; part of the format ---- */

#ifndef HF_FILE_BUCKETS
#define HF_FILE_BUCKETS 65536u
#endif
#ifndef HF_FILE_SLOTS
#define HF_FILE_SLOTS 4096u
#endif
/* Not part of the layout: a new store's room for cells, and how much it grows at least. */
#ifndef HF_FILE_FIRST_HEAP
#define HF_FILE_FIRST_HEAP (512 * 1024)
#endif
#ifndef HF_FILE_GROW
#define HF_FILE_GROW (1 << 20)
#endif
enum {
    HF_FILE_FORMAT = 1,
    HF_LINE = 64, /* the unit of offsets */
    HF_SECTOR = 512,
    HF_FILE_WAKEUPS = 16, /* of a session */
    HF_BODY_LEAST = 256,
    HF_BODY_CODES = 15, /* bodies have HF_BODY_LEAST << code bytes: 256 bytes to 4 MiB */
    HF_PARTIES_CAP = 4096,
    HF_LOOK_US = 1000000 /* not part of the layout: how often the file itself is checked */
};
#define HF_BODY_LINES(code) ((uint64_t)(HF_BODY_LEAST / HF_LINE) << (code))

/* Bytes that are only ever locked, far beyond the end of any file. */
#define HF_BYTE_SESSION (INT64_C(1) << 40)        /* + slot: locked as long as the session lives */
#define HF_BYTE_CLIENT  (HF_BYTE_SESSION + 65536) /* + slot: as long as its process lives */
#define HF_BYTE_RECOVER (HF_BYTE_SESSION + 131072)
#define HF_BYTE_GROW    (HF_BYTE_SESSION + 131073)

/* ---- words that check themselves ---- */

/*
 * A value below 2^40 with 24 bits of a hash of it. One store publishes both, so no crash leaves
 * half of it; any flipped bit shows. 0 stays 0: "none".
 */
#define HF_SEAL_FACTOR UINT64_C(0x9e3779b97f4a7c15)
static inline uint64_t hf__seal(uint64_t value)
{
    return value << 24 | (value * HF_SEAL_FACTOR) >> 40;
}
static inline int hf__sealed(uint64_t word) { return hf__seal(word >> 24) == word; }
static inline uint64_t hf__unseal(uint64_t word) { return word >> 24; }

/* A session is generation << 16 | slot; generations are below 2^40. */
static inline uint64_t hf__session_id(uint64_t generation, uint32_t slot)
{
    return generation << 16 | slot;
}

/* How a session is written into a lock word: generation, slot, 10 bits of hash, contended bit. */
#define HF_CONTENDED UINT64_C(1)
static inline uint64_t hf__lock_word(uint64_t session)
{
    uint64_t v = session >> 16 << 12 | (session & 0xfff);
    return v << 11 | (v * HF_SEAL_FACTOR) >> 54 << 1;
}
/* The session in a lock word, 0 if the word is damaged. */
static inline uint64_t hf__lock_owner(uint64_t word)
{
    uint64_t v = word >> 11, session = v >> 12 << 16 | (v & 0xfff);
    return hf__lock_word(session) == (word & ~HF_CONTENDED) ? session : 0;
}

/* ---- the layout ---- */

struct hf__static { /* sector 0: written once, never changed */
    char magic[8];
    uint32_t format, byte_order;
    uint32_t slots, buckets, wakeups, mode;
    uint8_t id[16];
    int64_t created_us;
    uint8_t unused[HF_SECTOR - 64];
    uint64_t sum;
};

struct hf__boot { /* two copies, in sectors 1 and 2; the valid one with the greater seq counts */
    uint64_t seq;
    uint8_t boot_id[16];
    uint64_t timens;   /* the time namespace's inode */
    int64_t offset_us; /* the store's clock is CLOCK_BOOTTIME plus this */
    int64_t ahead_us;  /* how far ahead of the time of day its clock began; an hour at most */
    uint8_t unused[HF_SECTOR - 56];
    uint64_t sum;
};

struct hf__alloc { /* sector 3 */
    _Atomic uint64_t lock;
    _Atomic uint64_t bump;  /* sealed: the first line that was never allocated */
    _Atomic uint64_t limit; /* sealed: lines that the file certainly has */
    /* The allocation under way: the bump to return to (0: none), unless the word at intent_word
       reads intent_link already. All sealed. */
    _Atomic uint64_t intent_bump, intent_word, intent_link;
    _Atomic uint64_t stale, clean; /* how often space was taken back; how often synced */
    _Atomic uint64_t ceiling; /* sealed, in seconds: no rev may be above it, unless the clock is */
};

struct hf__slot {                /* a session */
    _Atomic uint64_t generation; /* sealed */
    _Atomic uint64_t marks;      /* sealed line of the struct hf__key_marks of wakeup 0; 0: none */
    _Atomic uint64_t missed;     /* 1: a mark couldn't be made */
    uint64_t unused[5];
    _Atomic uint32_t wakeup[HF_FILE_WAKEUPS];
};

struct hf__bucket {
    _Atomic uint64_t lock;
    _Atomic uint64_t head;  /* sealed line of the first cell */
    _Atomic uint64_t debt;  /* the wakeup whose counter was raised, but which is still to be made */
    _Atomic uint64_t floor; /* the greatest rev that was deleted in this bucket, with a check */
};

/* A cell is this line, the lines of its key, and two bodies (at first right behind it). */
struct hf__cell {
    uint64_t self;         /* sealed: line << 8 | lines of its key; never changes */
    _Atomic uint64_t next; /* sealed line of the next cell of the bucket */
    uint64_t hash;
    uint64_t key;             /* length << 48 | hash of length and hash */
    _Atomic uint64_t seq;     /* sealed; bit 0: which body is current */
    _Atomic uint64_t body[2]; /* sealed: line << 8 | code of its size */
    _Atomic uint64_t marker;  /* sealed line of two struct hf__marker */
};

enum hf__body_flag {
    HF_BODY_VACANT = 1, /* the cell has no row; another key of its bucket may use it */
    HF_BODY_MARKED = 2  /* the marker with the number marker_seq is the row's */
};

/* All fields are words: they are written one by one, and read again soon after. */
struct hf__body {
    uint64_t rev, token;
    uint64_t counts;     /* holders | waiters << 32 */
    uint64_t extent;     /* bytes of parties behind this | enum hf__body_flag << 32 | sum << 40 */
    uint64_t marker_seq; /* of the last marker written */
    uint64_t check;
};
static inline uint32_t hf__holders(const struct hf__body *b) { return (uint32_t)b->counts; }
static inline uint32_t hf__waiters(const struct hf__body *b) { return (uint32_t)(b->counts >> 32); }
static inline uint32_t hf__used(const struct hf__body *b) { return (uint32_t)b->extent; }
static inline uint32_t hf__flags(const struct hf__body *b) { return b->extent >> 32 & 0xff; }

struct hf__marker { /* fills one sector, so after a power cut it is the old one or the new one */
    uint64_t seq;
    int64_t done_us, keep_until_us; /* done_us 0: the marker was removed */
    uint64_t rev;
    uint16_t result_len;
    uint8_t done_by_len;
    char done_by[HF_OWNER_CAP];
    char result[HF_RESULT_CAP];
    uint8_t unused[HF_SECTOR - 40 - 3 - HF_OWNER_CAP - HF_RESULT_CAP];
    uint64_t sum; /* over the fields above and the key */
};

enum {
    HF_AT_BOOT = HF_SECTOR,
    HF_AT_ALLOC = 3 * HF_SECTOR,
    HF_AT_SLOTS = 4096,
    HF_AT_BUCKETS = HF_AT_SLOTS + HF_FILE_SLOTS * sizeof(struct hf__slot),
    HF_AT_HEAP = (HF_AT_BUCKETS + HF_FILE_BUCKETS * sizeof(struct hf__bucket) + HF_SECTOR - 1) &
                 ~(unsigned)(HF_SECTOR - 1)
};
_Static_assert(sizeof(struct hf__static) == HF_SECTOR, "a sector");
_Static_assert(sizeof(struct hf__boot) == HF_SECTOR, "a sector");
_Static_assert(sizeof(struct hf__slot) == 128, "two lines");
_Static_assert(sizeof(struct hf__bucket) == 32, "half a line");
_Static_assert(sizeof(struct hf__cell) == HF_LINE, "a line");
_Static_assert(sizeof(struct hf__body) == 48, "no holes");
_Static_assert(sizeof(struct hf__marker) == HF_SECTOR, "a sector");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the format is little-endian");
/* A party is stored as its bytes up to the owner's end, then the note, padded to 8. */
enum { HF_PARTY_FIXED = offsetof(hf_party, owner) };
_Static_assert(HF_PARTY_FIXED == 65 && offsetof(hf_party, session) == 40 &&
                   offsetof(hf_party, flags) == 61 && offsetof(hf_party, wakeup) == 62 &&
                   offsetof(hf_party, owner_len) == 63 && offsetof(hf_party, note_len) == 64,
               "the format of a party");
#define HF_PARTY_BYTES(owner_len, note_len) \
    (((size_t)HF_PARTY_FIXED + (owner_len) + (note_len) + 7) & ~(size_t)7)

/* A store's address space, and so its greatest size. The thread sanitizer shadows all of it. */
#ifndef HF_FILE_RESERVE
#if defined(__SANITIZE_THREAD__) || defined(HF_SEAM)
#define HF_FILE_RESERVE (UINT64_C(256) << 20)
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HF_FILE_RESERVE (UINT64_C(256) << 20)
#endif
#endif
#endif
#ifndef HF_FILE_RESERVE
#define HF_FILE_RESERVE (UINT64_C(16) << 30)
#endif

/* ---- the client: what one opened store knows, outside of the mapping ---- */

struct hf__client {
    unsigned char *base;
    uint64_t word; /* how its session stands in lock words */
    int64_t offset_us;
    _Atomic uint64_t limit; /* how many lines of the mapping are known to be backed by the file */
    _Atomic int broken;     /* 0, or the code that every operation returns from now on */
    _Atomic int look;       /* the file may have changed: the next operation checks it first */
    _Atomic uint64_t ceiling_us;
    uint64_t lines; /* lines that fit into the address range */
    uint64_t session;
    int64_t io_timeout_us;
    const char *path; /* for messages */
    int fd, session_fd;
    uint64_t dev, ino; /* of the file behind both */
#ifdef HF_SEAM
    const struct hf__file_env *env;
    void *env_arg;
#endif
    _Atomic(const char *) broken_why;
    _Atomic(_Atomic uint64_t *) hints; /* see hints.h; NULL: no chain has been long so far */
    _Atomic int64_t last_us;           /* a clock that was read lately */
    _Atomic int64_t look_at_us;        /* the store's clock at which to look at the file again */
    pthread_mutex_t grow_mu;
};

/* What an operation was called for. Its error names it. */
struct hf__op {
    struct hf__client *c;
    const char *verb;
    const hf_rowkey *key; /* NULL: the store as a whole */
    hf_error *err;
};

/* ---- the seams ---- */

#define HF_LIKELY(x)   __builtin_expect(!!(x), 1)
#define HF_UNLIKELY(x) __builtin_expect(!!(x), 0)

/*
 * The system, as the shared-memory code sees it. Each gets the client; env_arg is the test's.
 * In production they are called directly.
 */
#define HF_FILE_ENV(X)                                                                            \
    /* CLOCK_BOOTTIME in microseconds */                                                          \
    X(int64_t, now, (struct hf__client * c))                                                      \
    /* the same, cheaper; some milliseconds behind at most */                                     \
    X(int64_t, rough_now, (struct hf__client * c))                                                \
    /* sleeps while *word == seen, at most us; may return early */                                \
    X(void, futex_wait,                                                                           \
      (struct hf__client * c, _Atomic uint32_t *word, uint32_t seen, int64_t us))                 \
    X(void, futex_wake, (struct hf__client * c, _Atomic uint32_t *word, int n))                   \
    /* is the byte locked by another client: 1, 0, or -errno */                                   \
    X(int, probe, (struct hf__client * c, int64_t byte))                                          \
    /* locks the two bytes of a slot for this client: 1; 0: another client has them; or -errno */ \
    X(int, take_slot, (struct hf__client * c, uint32_t slot))                                     \
    /* allocates disk space up to `lines`: 0, an errno, ETIMEDOUT: another process does */        \
    X(int, grow, (struct hf__client * c, uint64_t lines))                                         \
    /* writes these lines (n 0: everything) to disk, as they are: 0 or an errno */                \
    X(int, sync, (struct hf__client * c, uint64_t line, uint64_t n))                              \
    /* checks that it is still the same, whole file: 0, or *ret_why */                            \
    X(int, same_file, (struct hf__client * c, const char **ret_why))

#ifdef HF_SEAM
/* Called before the n bytes at `at` of the mapping are accessed. */
enum hf__seam_kind {
    HF_SEAM_CALL = 0, /* a system call; nothing is touched */
    HF_SEAM_READ = 1,
    HF_SEAM_WRITE = 2,
    HF_SEAM_CHANGE = HF_SEAM_READ | HF_SEAM_WRITE /* compares or adds, and writes */
};
void hf__seam(const char *where, const volatile void *at, size_t n, int kind);
struct hf__file_env {
#define HF_ENV_MEMBER(type, name, args) type(*name) args;
    HF_FILE_ENV(HF_ENV_MEMBER)
#undef HF_ENV_MEMBER
};
extern const struct hf__file_env hf__file_env_os;
#define HF_SEE(where, p, n, kind) hf__seam(where, p, n, kind)
#define HF_ENV(c, name)           (c)->env->name
#define HF_FILE_SPINS             1
#else
#define HF_SEE(where, p, n, kind) ((void)0)
#define HF_ENV(c, name)           hf__os_##name
#define HF_FILE_SPINS             200
#endif
#define HF_ENV_OS(type, name, args) type hf__os_##name args;
HF_FILE_ENV(HF_ENV_OS)
#undef HF_ENV_OS

/*
 * Loads acquire, stores release, and read-modify-writes do both (on x86 that costs nothing): a
 * thread that reads a published word sees what was written before it. The pairs that matter: lock
 * word (unlock -> lock), seq, links, generation.
 */
#define HF_AT(where)         HF_SEE(where, NULL, 0, HF_SEAM_CALL)
#define HF_ON(where, p, how) HF_SEE(where, p, sizeof *(p), HF_SEAM_##how)

#define HF_LOAD(where, p) (HF_ON(where, p, READ), atomic_load_explicit((p), memory_order_acquire))
#define HF_STORE(where, p, v) \
    (HF_ON(where, p, WRITE), atomic_store_explicit((p), (v), memory_order_release))
#define HF_CAS(where, p, seen, v)                                      \
    (HF_ON(where, p, CHANGE), atomic_compare_exchange_strong_explicit( \
                                  (p), (seen), (v), memory_order_acq_rel, memory_order_acquire))
#define HF_XADD(where, p, n) \
    (HF_ON(where, p, CHANGE), atomic_fetch_add_explicit((p), (n), memory_order_acq_rel))
/* Plain memory of the mapping, read and written under a lock word. */
#define HF_GET(where, lvalue)    (HF_ON(where, &(lvalue), READ), (lvalue))
#define HF_PUT(where, lvalue, v) (HF_ON(where, &(lvalue), WRITE), (void)((lvalue) = (v)))
#define HF_SAME(where, shared, own, n) \
    (HF_SEE(where, shared, n, HF_SEAM_READ), hf__same(shared, own, n))
#ifdef HF_SEAM
/* A copy of which a death or a switch of processes may leave half. */
static inline void hf__copy_seen(const char *where, void *to, const void *from, size_t n, int in)
{
    char *t = to;
    const char *f = from;
    for (size_t half = n / 2, i = 0; i < 2; i++, t += half, f += half, half = n - half) {
        if (!half) continue;
        hf__seam(where, in ? t : f, half, in ? HF_SEAM_WRITE : HF_SEAM_READ);
        memcpy(t, f, half);
    }
}
#define HF_COPY_IN(where, to, from, n)  hf__copy_seen(where, to, from, n, 1)
#define HF_COPY_OUT(where, to, from, n) hf__copy_seen(where, to, from, n, 0)
#else
#define HF_COPY_IN(where, to, from, n)  hf__copy((to), (from), (n))
#define HF_COPY_OUT(where, to, from, n) hf__copy((to), (from), (n))
#endif

#define HF_NOW(c) HF_ENV(c, now)(c)
#define HF_FUTEX_WAIT(where, c, p, seen, us) \
    (HF_AT(where), HF_ENV(c, futex_wait)((c), (p), (seen), (us)))
#define HF_FUTEX_WAKE(where, c, p, n) (HF_AT(where), HF_ENV(c, futex_wake)((c), (p), (n)))
#define HF_PROBE(where, c, byte)      (HF_AT(where), HF_ENV(c, probe)((c), (byte)))

/* Short copies of a length not known to the compiler, without a call. */
static inline void hf__copy(void *to, const void *from, size_t n)
{
    char *t = to;
    const char *f = from;
    if (HF_UNLIKELY(n > 512)) {
        memcpy(t, f, n);
    } else if (n >= 16) {
        for (size_t i = 0; i + 16 < n; i += 16) memcpy(t + i, f + i, 16);
        memcpy(t + n - 16, f + n - 16, 16); /* the last bytes, some of which were copied already */
    } else if (n & 8) {
        memcpy(t, f, 8);
        memcpy(t + n - 8, f + n - 8, 8);
    } else {
        for (size_t i = 0; i < n; i++) t[i] = f[i];
    }
}

static inline int hf__same(const void *a, const void *b, size_t n)
{
    const char *x = a, *y = b;
    uint64_t p, q;
    for (; n >= 8; n -= 8, x += 8, y += 8) {
        memcpy(&p, x, 8);
        memcpy(&q, y, 8);
        if (p != q) return 0;
    }
    for (; n; n--)
        if (*x++ != *y++) return 0;
    return 1;
}

/* ---- where things are ---- */

#define HF_ALLOC(c) ((struct hf__alloc *)(void *)((c)->base + HF_AT_ALLOC))
static inline struct hf__slot *hf__slot_at(const struct hf__client *c, uint32_t slot)
{
    return (struct hf__slot *)(void *)(c->base + HF_AT_SLOTS) + slot;
}
static inline struct hf__bucket *hf__bucket_at(const struct hf__client *c, uint64_t hash)
{
    return (struct hf__bucket *)(void *)(c->base + HF_AT_BUCKETS) + (hash & (HF_FILE_BUCKETS - 1));
}
static inline void *hf__line_at(const struct hf__client *c, uint64_t line)
{
    return c->base + line * HF_LINE;
}
static inline uint64_t hf__offset_of(const struct hf__client *c, const volatile void *p)
{
    return (uint64_t)((const volatile unsigned char *)p - c->base);
}
static inline int hf__has(const struct hf__client *c, uint64_t line, uint64_t n)
{
    /* Relaxed: the number only grows, and what it says about the file stays true. */
    uint64_t limit = atomic_load_explicit(&c->limit, memory_order_relaxed);
    return line >= HF_AT_HEAP / HF_LINE && line < limit && n <= limit - line;
}
/* Each word turned by another amount: any flipped bit shows. The cell's own line makes a body that
   belongs elsewhere invalid. */
static inline uint64_t hf__turned(uint64_t v, int by) { return v << by | v >> (64 - by); }
static inline uint64_t hf__body_check(const struct hf__body *b, uint64_t self)
{
    return b->rev ^ hf__turned(b->token, 8) ^ hf__turned(b->counts, 16) ^
           hf__turned(b->extent, 32) ^ hf__turned(b->marker_seq, 40) ^ self;
}

/* ---- lock.c: lock words, wakeups ---- */

enum { HF_TAKEN_OVER = 1 };
/* Waits for the lock. Returns 0; HF_TAKEN_OVER: a dead client had it; or an error. */
int hf__lock_slow(const struct hf__op *op, _Atomic uint64_t *lock);
void hf__unlock_slow(struct hf__client *c, _Atomic uint64_t *lock);

static inline int hf__trylock(struct hf__client *c, _Atomic uint64_t *lock)
{
    uint64_t seen = 0;
    /* Acquires what the last owner released in hf__unlock. */
    return HF_CAS("lock", lock, &seen, c->word);
}

static inline int hf__lock(const struct hf__op *op, _Atomic uint64_t *lock)
{
    return HF_LIKELY(hf__trylock(op->c, lock)) ? 0 : hf__lock_slow(op, lock);
}

/*
 * The plain store loses the contended bit if another thread sets it between the load and the store;
 * that thread then sleeps without a wakeup. It sleeps for a millisecond at most, and the kernel
 * compares the word again first, so the gap is a few nanoseconds wide and costs that millisecond. A
 * compare-and-swap here would cost every release five nanoseconds.
 */
static inline void hf__unlock(struct hf__client *c, _Atomic uint64_t *lock)
{
    if (HF_LIKELY(HF_LOAD("unlock.look", lock) == c->word))
        HF_STORE("unlock", lock, 0); /* release order, for the next hf__lock */
    else
        hf__unlock_slow(c, lock);
}

/* Returns 1 if the process of this session, as the owner of lock words, is dead; 0; or an error. */
int hf__client_dead(const struct hf__op *op, uint64_t session);
/* Locks a bucket. Makes the wakeups that a dead owner still owed. */
int hf__bucket_lock(const struct hf__op *op, struct hf__bucket *b);
#define hf__bucket_unlock(c, b) hf__unlock((c), &(b)->lock)

/*
 * The counter of a wakeup goes up under the bucket's lock. The system call that wakes comes after
 * the unlock, since the woken thread would run into the lock. Meanwhile the bucket notes the debt:
 * the next owner of its lock wakes that waiter, too, in case the first owner died in between.
 */
struct hf__owed {
    uint32_t n;
    uint64_t debt;
    _Atomic uint32_t *word[16];
};
/* For a key with that hash. */
void hf__ring(const struct hf__op *op, uint64_t session, uint8_t wakeup, uint64_t hash,
              struct hf__owed *owed);
/* Notes the debt before the bucket is unlocked; `rev` makes its value unique. */
void hf__owed_note(struct hf__bucket *b, struct hf__owed *owed, uint64_t rev);
/* Wakes the waiter, and clears the debt, after the bucket is unlocked. */
void hf__owed_wake(struct hf__client *c, struct hf__bucket *b, struct hf__owed *owed);

/* ---- cell.c: chains, allocation ---- */

enum {
    HF_NEED_SPACE = 2, /* unlock all, call hf__space, begin again */
    HF_NEED_SYNC = 5   /* ... call hf__sync, note in hf__found what is durable, begin again */
};

struct hf__found {
    struct hf__cell *cell; /* the key's, live; or NULL */
    struct hf__body *at;   /* its current body */
    struct hf__body head;  /* a copy of the current body's head */
    uint64_t seq;
    uint32_t links; /* that were followed to it */
    /* For HF_NEED_SYNC: this marker of this cell is on disk, and these bodies, as they are or were.
     */
    const struct hf__cell *durable_of;
    uint64_t durable_marker;
    const struct hf__body *durable_at[2];
};
/* Both under the bucket's lock. */
int hf__find(const struct hf__op *op, struct hf__bucket *b, struct hf__found *ret);
/* Reads and checks the current body of ret->cell. */
int hf__current(const struct hf__op *op, struct hf__found *ret);
/* Finds or makes a vacant cell for a key that has none: fills found->cell, its head and seq. */
int hf__cell_make(const struct hf__op *op, struct hf__bucket *b, struct hf__found *found,
                  size_t need);
/* Raises the bucket's floor before a row with this rev is deleted. */
int hf__floor_raise(const struct hf__op *op, struct hf__bucket *b, uint64_t rev);
/* Makes sure that the body which isn't current holds `need` bytes. */
int hf__body_room(const struct hf__op *op, const struct hf__found *f, size_t need,
                  struct hf__body **ret);
int hf__marker_room(const struct hf__op *op, struct hf__cell *cell, struct hf__marker **ret);
/* Returns the next cell, checked; NULL at the end. */
int hf__follow(const struct hf__op *op, _Atomic uint64_t *link, uint64_t above,
               struct hf__cell **ret);
/* Makes more space in the file. No lock word may be held. */
int hf__space(const struct hf__op *op, size_t need);
static inline char *hf__cell_key(struct hf__cell *cell) { return (char *)(cell + 1); }
/* Returns the line of a body; 0: it is damaged. */
uint64_t hf__body_line(const struct hf__op *op, uint64_t link, unsigned *ret_code);
uint64_t hf__key_word(uint64_t hash, uint32_t len);
uint64_t hf__sum(const void *p, size_t len, uint64_t seed);
uint64_t hf__marker_sum(const struct hf__marker *m, const char *key, uint32_t len, uint64_t hash);
int hf__damaged(const struct hf__op *op, const volatile void *at, const char *what);

/* ---- sync.c: to disk. No lock word may be held. ---- */

int hf__sync(const struct hf__op *op);     /* everything */
int hf__sync_key(const struct hf__op *op); /* what a power cut must not take of the key */

/* ---- body.c: bodies to rows and back ---- */

enum {
    HF_NEED_PARTIES = 3, /* unlock, make room in the caller's row, begin again */
    HF_NEED_CEILING = 4  /* unlock, raise the ceiling, begin again */
};
/* Reads the row that was found (or that there is none) into *row. HF_NEED_PARTIES: *row has no room
   for so many parties. */
int hf__decode(const struct hf__op *op, const struct hf__found *f, hf_row *row);
/* Only the marker. */
int hf__decode_marker(const struct hf__op *op, const struct hf__found *f, hf_row *row);
size_t hf__encoded_size(const hf_row *row);
/*
 * Writes the row's marker (row NULL: that there is none any more) into the copy that isn't the
 * current one, if it has changed. *head gets its number and whether it is marked, which count once
 * the body is published.
 */
int hf__put_marker(const struct hf__op *op, const struct hf__found *f, const hf_row *row,
                   uint64_t rev, struct hf__body *head);
/* Notes a wakeup for each party that waits in the current body and holds in the row. */
void hf__ring_granted(const struct hf__op *op, const struct hf__found *f, const hf_row *row,
                      struct hf__owed *owed);

static inline unsigned char *hf__put_party(unsigned char *at, const hf_party *p)
{
    HF_COPY_IN("party.fixed", at, p, (size_t)HF_PARTY_FIXED + p->owner_len);
    HF_COPY_IN("party.note", at + HF_PARTY_FIXED + p->owner_len, p->note, p->note_len);
    return at + HF_PARTY_BYTES(p->owner_len, p->note_len);
}

/* Returns the head of the body that isn't current; hf__publish makes it current. */
static inline void hf__put_head(const struct hf__cell *cell, struct hf__body *to,
                                const struct hf__body *h)
{
    HF_PUT("head.rev", to->rev, h->rev);
    HF_PUT("head.token", to->token, h->token);
    HF_PUT("head.counts", to->counts, h->counts);
    HF_PUT("head.extent", to->extent, h->extent);
    HF_PUT("head.marker", to->marker_seq, h->marker_seq);
    HF_PUT("head.check", to->check, hf__body_check(h, cell->self));
}

static inline void hf__publish(struct hf__cell *cell, uint64_t seq)
{
    /* Releases the body: pairs with the load of the seq in hf__current. Wraps after 2^40 writes:
       only the last bit means anything. */
    uint64_t next = (hf__unseal(seq) + 1) & ((UINT64_C(1) << 40) - 1);
    HF_STORE("publish", &cell->seq, hf__seal(next));
}

/* ---- rows.c: the operations on rows ---- */

/* Returns 0, or why the store can't be used any more. */
int hf__broken(const struct hf__op *op);
/* From now on every operation answers `code`, because the file `why`. */
void hf__break(struct hf__client *c, int code, const char *why);
/* Lets the next operation check the file, if no operation has for a second. */
void hf__look_sometimes(struct hf__client *c, int64_t clock_us);
int hf__sync_failed(const struct hf__op *op, int sys);

#endif
