/*
 * shared.h - what the files that touch the mapped file (layout.h) share.
 *
 * Contents: the client; where things are; lock words; what the files offer to each other.
 *
 * Rules that every file here keeps:
 * - The mapping is accessed through the macros of seam.h, and in no other way. With -DHF_SEAM each
 *   of them calls hf__seam() first. There a test may switch to another simulated process, or end
 *   this one. System calls go through a table that the test provides. A test runs several simulated
 *   processes in one process, on one mapping; so no file here keeps global state about a store.
 * - A process may die at any of those points. The next process must find the old state or the new
 *   one. Any state between them is recorded by a word in the file (a lock word, the intent of an
 *   allocation), from which the next process sees what to complete or undo.
 * - What is read from the file isn't trusted: offsets are compared with the file's size before they
 *   are followed, links of chains must go upwards, lengths are bounded. Damage ends in HF_CORRUPT.
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
    uint64_t word; /* hf__lock_word of its session */
    int64_t offset_us;
    _Atomic uint64_t limit; /* how many lines of the mapping are known to be backed by the file */
    _Atomic int broken;     /* 0, or the code that every operation returns from now on */
    _Atomic int look;       /* the file may have changed: the next operation checks it first */
    _Atomic uint64_t ceiling_us;
    uint64_t lines; /* lines that fit into the address range */
    uint64_t session;
    int64_t io_timeout_us;
    const char *path;   /* for messages */
    int fd, session_fd; /* the client's and the session's descriptor: see session.c */
    uint64_t dev, ino;  /* of the file that both lead to */
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

/* The operation that is carried out, for its errors: the client, the verb and the key. */
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
    /* Relaxed order is enough: the limit only grows, so an old value is true, too. */
    uint64_t limit = atomic_load_explicit(&c->limit, memory_order_relaxed);
    return line >= HF_AT_HEAP / HF_LINE && line < limit && n <= limit - line;
}
/* Rotates a word. */
static inline uint64_t hf__turned(uint64_t v, int by) { return v << by | v >> (64 - by); }
/* Returns the check word of a body's head. Each field is rotated by another amount, so that any
   flipped bit is noticed. `self` of the cell makes another cell's body invalid here. */
static inline uint64_t hf__body_check(const struct hf__body *b, uint64_t self)
{
    return b->rev ^ hf__turned(b->token, 8) ^ hf__turned(b->counts, 16) ^
           hf__turned(b->extent, 32) ^ hf__turned(b->marker_seq, 40) ^ self;
}

/* ---- lock.c: lock words, wakeups ---- */

enum { HF_TAKEN_OVER = 1 };
/* Waits for the lock. Returns 0; HF_TAKEN_OVER: it was taken over from a dead client; or an
   error. */
int hf__lock_slow(const struct hf__op *op, _Atomic uint64_t *lock);
/* Releases a lock word whose contended bit is set, and wakes one sleeper. */
void hf__unlock_slow(struct hf__client *c, _Atomic uint64_t *lock);

static inline int hf__trylock(struct hf__client *c, _Atomic uint64_t *lock)
{
    uint64_t seen = 0;
    /* Has acquire order: pairs with the store in hf__unlock. */
    return HF_CAS("lock", lock, &seen, c->word);
}

static inline int hf__lock(const struct hf__op *op, _Atomic uint64_t *lock)
{
    return HF_LIKELY(hf__trylock(op->c, lock)) ? 0 : hf__lock_slow(op, lock);
}

/*
 * Releases a lock word. The plain store loses the contended bit if another thread sets it between
 * the load and the store. Then that thread is not woken. That is rare, because the gap is a few
 * nanoseconds wide, and the thread sleeps for a millisecond at most (NAP_US in lock.c). A
 * compare-and-swap would cost every release five nanoseconds.
 */
static inline void hf__unlock(struct hf__client *c, _Atomic uint64_t *lock)
{
    if (HF_LIKELY(HF_LOAD("unlock.look", lock) == c->word))
        HF_STORE("unlock", lock, 0); /* release order, for the next hf__lock */
    else
        hf__unlock_slow(c, lock);
}

/* Returns 1 if the client of this session, which owns lock words, is dead; 0: it lives; or an
   error. */
int hf__client_dead(const struct hf__op *op, uint64_t session);
/* Locks a bucket, and makes the wakeups that its last owner may not have made. */
int hf__bucket_lock(const struct hf__op *op, struct hf__bucket *b);
#define hf__bucket_unlock(c, b) hf__unlock((c), &(b)->lock)

/*
 * The wakeups that a write owes. The counter of a wakeup goes up under the bucket's lock. The
 * system call that wakes its sleepers comes after the unlock, because a woken thread needs that
 * lock. In between the debt stands in the bucket: the next owner of the lock wakes those sleepers,
 * too, in case the first owner has died.
 */
struct hf__owed {
    uint32_t n;
    uint64_t debt;
    _Atomic uint32_t *word[16];
};
/* Posts a wakeup of a session for the key with that hash: raises its counter, and adds it to *owed.
   Without room there, or if `owed` is NULL, it wakes the sleepers at once. */
void hf__ring(const struct hf__op *op, uint64_t session, uint8_t wakeup, uint64_t hash,
              struct hf__owed *owed);
/* Notes the debt before the bucket is unlocked; `rev` makes its value unique. */
void hf__owed_note(struct hf__bucket *b, struct hf__owed *owed, uint64_t rev);
/* Wakes the sleepers, and clears the debt, after the bucket is unlocked. */
void hf__owed_wake(struct hf__client *c, struct hf__bucket *b, struct hf__owed *owed);

/* ---- space.c: bounds, allocation ---- */

enum {
    HF_NEED_SPACE = 2, /* unlock all, call hf__space, begin again */
    HF_NEED_SYNC = 5 /* unlock all, call hf__sync, note in hf__found what is on disk, begin again */
};
/* Returns 0 if the file has these lines, also if another process has just made it grow; else an
   error. */
int hf__reach(const struct hf__op *op, uint64_t line, uint64_t n);
/* Fills in the error for damage at `at` in the mapping; `what` names what is damaged there. Returns
   HF_CORRUPT, or the code with which the store is broken already. */
int hf__damaged(const struct hf__op *op, const volatile void *at, const char *what);
/* Makes more space in the file. No lock word may be held. */
int hf__space(const struct hf__op *op, size_t need);
struct hf__piece {
    uint64_t line, link;  /* the first line that was allocated; the sealed link to it */
    _Atomic uint64_t *at; /* where hf__allocation_end stores the link */
};
/* Allocates lines. The allocator stays locked until hf__allocation_end. code < 0: the link has no
   size code. */
int hf__allocation_begin(const struct hf__op *op, uint64_t lines, uint64_t align, int code,
                         _Atomic uint64_t *at, struct hf__piece *ret);
void hf__allocation_end(struct hf__client *c, const struct hf__piece *p);

/* ---- cell.c: chains ---- */

struct hf__found {
    struct hf__cell *cell; /* the key's live cell, or NULL */
    struct hf__body *at;   /* its current body */
    struct hf__body head;  /* a copy of the current body's head */
    uint64_t seq;
    uint32_t links; /* how many links of the chain led to it */
    /* After HF_NEED_SYNC: the marker with this number, of this cell, is on disk; and so are these
       two bodies, with their content at the sync. */
    const struct hf__cell *durable_of;
    uint64_t durable_marker;
    const struct hf__body *durable_at[2];
};
/* Finds the key's live cell, and reads the head of its current body. The caller holds the bucket's
   lock, here and for all functions of this section. */
int hf__find(const struct hf__op *op, struct hf__bucket *b, struct hf__found *ret);
/* Reads and checks the current body of ret->cell. */
int hf__current(const struct hf__op *op, struct hf__found *ret);
/* Finds or makes a vacant cell for a key that has none: fills found->cell, its head and seq. */
int hf__cell_make(const struct hf__op *op, struct hf__bucket *b, struct hf__found *found,
                  size_t need);
/* Raises the bucket's floor before a row with this rev is deleted. */
int hf__floor_raise(const struct hf__op *op, struct hf__bucket *b, uint64_t rev);
/* Returns in *ret the body that isn't current, after making a larger one if it doesn't hold `need`
   bytes. */
int hf__body_room(const struct hf__op *op, const struct hf__found *f, size_t need,
                  struct hf__body **ret);
int hf__marker_room(const struct hf__op *op, struct hf__cell *cell, struct hf__marker **ret);
/* Reads the cell that the link leads to into *ret, and checks it: its line is above `above`. NULL:
   the chain ends here. Returns 0 or an error. */
int hf__follow(const struct hf__op *op, _Atomic uint64_t *link, uint64_t above,
               struct hf__cell **ret);
static inline char *hf__cell_key(struct hf__cell *cell) { return (char *)(cell + 1); }
/* Returns the line of the body to which the sealed link leads, and its size code; 0: the link is
   damaged. */
uint64_t hf__body_line(const struct hf__op *op, uint64_t link, unsigned *ret_code);
/* Returns the word `key` of a cell: the length of the key, and a check of length and hash. */
uint64_t hf__key_word(uint64_t hash, uint32_t len);
/* Return check sums: of bytes, and of a marker with its key. */
uint64_t hf__sum(const void *p, size_t len, uint64_t seed);
uint64_t hf__marker_sum(const struct hf__marker *m, const char *key, uint32_t len, uint64_t hash);

/* ---- sync.c: to disk. No lock word may be held. ---- */

int hf__sync(const struct hf__op *op);     /* everything */
int hf__sync_key(const struct hf__op *op); /* the parts of the file that recovery needs for this
                                              key */

/* ---- body.c: bodies to rows and back ---- */

enum {
    HF_NEED_PARTIES = 3, /* unlock, make room in the caller's row, begin again */
    HF_NEED_CEILING = 4  /* unlock, raise the ceiling, begin again */
};
/* Reads the row that was found into *row, or makes *row empty if none was. HF_NEED_PARTIES: *row
   has no room for all its parties. */
int hf__decode(const struct hf__op *op, const struct hf__found *f, hf_row *row);
/* Reads only the marker of the row into *row. */
int hf__decode_marker(const struct hf__op *op, const struct hf__found *f, hf_row *row);
size_t hf__encoded_size(const hf_row *row);
/*
 * Writes the row's marker into the cell's copy that isn't current, if the marker has changed. `row`
 * NULL: the marker is removed. *head, of the body to be written, gets the marker's number and the
 * flag HF_BODY_MARKED; the marker counts once that body is published.
 */
int hf__put_marker(const struct hf__op *op, const struct hf__found *f, const hf_row *row,
                   uint64_t rev, struct hf__body *head);
/* Posts a wakeup to each party that waits in the current body and holds in *row, and to the first
   waiter if its plan is out of date. */
void hf__ring_granted(const struct hf__op *op, const struct hf__found *f, const hf_row *row,
                      struct hf__owed *owed);

static inline unsigned char *hf__put_party(unsigned char *at, const hf_party *p)
{
    HF_COPY_IN("party.fixed", at, p, (size_t)HF_PARTY_FIXED + p->owner_len);
    HF_COPY_IN("party.note", at + HF_PARTY_FIXED + p->owner_len, p->note, p->note_len);
    return at + HF_PARTY_BYTES(p->owner_len, p->note_len);
}

/* Writes the head *h, with its check word, into the body *to, which isn't current. hf__publish
   makes that body current. */
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
    /* The store has release order, and pairs with the load of the seq in hf__current. The seq wraps
       after 2^40 writes: only its last bit has a meaning. */
    uint64_t next = (hf__unseal(seq) + 1) & ((UINT64_C(1) << 40) - 1);
    HF_STORE("publish", &cell->seq, hf__seal(next));
}

/* ---- rows.c: the operations on rows ---- */

/* Returns 0; or an error: the store can't be used any more. */
int hf__broken(const struct hf__op *op);
/* Makes every later operation of this client fail with `code`. `why` ends the sentence "the file
   ...". */
void hf__break(struct hf__client *c, int code, const char *why);
/* Makes the next operation check the file, if none has done so for a second. */
void hf__look_sometimes(struct hf__client *c, int64_t clock_us);
int hf__sync_failed(const struct hf__op *op, int sys);

#endif
