/*
 * shared.h - what the files that touch the mapped file (layout.h) share.
 *
 * Contents: the client; where things are; lock words; what the files offer to each other.
 *
 * Rules that every file here keeps:
 * - The mapping is touched through the macros of seam.h, and in no other way. With -DHF_SEAM each
 *   of them calls hf__seam() first, where a test may let another process run, or end this one;
 *   system calls go through a table that a test can replace. So several "processes" can live in
 *   one, on one mapping: nothing here keeps global state about a store.
 * - A process may die at any of those points. The next process must find the old state or the new
 *   one; a state between them (a lock word of a dead process, an allocation under way) names the
 *   process that is responsible for it.
 * - What is read from the file is a claim: offsets are compared with the file's size before they
 *   are followed, chains only go upwards, lengths are bounded. Damage ends in HF_CORRUPT.
 */
#ifndef HF_FILE_SHARED_H
#define HF_FILE_SHARED_H

#include "layout.h"
#include "seam.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

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

/* ---- space.c: bounds, allocation ---- */

enum {
    HF_NEED_SPACE = 2, /* unlock all, call hf__space, begin again */
    HF_NEED_SYNC = 5   /* ... call hf__sync, note in hf__found what is durable, begin again */
};
/* Returns 0 if the file has these lines, whether or not another process has made it grow; else an
   error. */
int hf__reach(const struct hf__op *op, uint64_t line, uint64_t n);
int hf__damaged(const struct hf__op *op, const volatile void *at, const char *what);
/* Makes more space in the file. No lock word may be held. */
int hf__space(const struct hf__op *op, size_t need);
struct hf__piece {
    uint64_t line, link; /* the lines that were allocated; the word that is to link them, and what
                            to store there */
    _Atomic uint64_t *at;
};
/* Allocates lines. The allocator stays locked until hf__allocation_end. code < 0: the link has no
   size code. */
int hf__allocation_begin(const struct hf__op *op, uint64_t lines, uint64_t align, int code,
                         _Atomic uint64_t *at, struct hf__piece *ret);
void hf__allocation_end(struct hf__client *c, const struct hf__piece *p);

/* ---- cell.c: chains ---- */

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
static inline char *hf__cell_key(struct hf__cell *cell) { return (char *)(cell + 1); }
/* Returns the line of a body; 0: it is damaged. */
uint64_t hf__body_line(const struct hf__op *op, uint64_t link, unsigned *ret_code);
uint64_t hf__key_word(uint64_t hash, uint32_t len);
uint64_t hf__sum(const void *p, size_t len, uint64_t seed);
uint64_t hf__marker_sum(const struct hf__marker *m, const char *key, uint32_t len, uint64_t hash);

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
