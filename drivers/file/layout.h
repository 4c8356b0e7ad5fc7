/*
 * layout.h - the format of the mapped file. shared.h has the rules for accessing it.
 *
 * Contents: geometry; words that check themselves; the layout.
 */
#ifndef HF_FILE_LAYOUT_H
#define HF_FILE_LAYOUT_H

#include "holdfast_driver.h"

#include <stdatomic.h>
#include <stddef.h>

/* ---- geometry; part of the format ---- */

#ifndef HF_FILE_BUCKETS
#define HF_FILE_BUCKETS 65536u
#endif
#ifndef HF_FILE_SLOTS
#define HF_FILE_SLOTS 4096u
#endif
/* In bytes, and not part of the format: a new store's room for cells; by how much a store grows at
   least. */
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

/* Offsets of bytes that are only locked, never read or written. They lie beyond the end of any
   file. An open store, the client, locks two of them for its slot. A command of `holdfast run` may
   keep the session's byte locked after its client has died: see session.c. */
#define HF_BYTE_SESSION (INT64_C(1) << 40)        /* + slot: locked as long as the session lives */
#define HF_BYTE_CLIENT  (HF_BYTE_SESSION + 65536) /* + slot: locked as long as its client lives */
#define HF_BYTE_RECOVER (HF_BYTE_SESSION + 131072)
#define HF_BYTE_GROW    (HF_BYTE_SESSION + 131073)

/* ---- words that check themselves ---- */

/*
 * A sealed word is a value below 2^40 with 24 bits of the value's hash. It is written by one store,
 * so no crash leaves half of it, and a flipped bit is noticed. The sealed 0 is 0: "none".
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

/* Returns the lock word that names the session: generation, slot, 10 bits of a hash, and the
   contended bit, which is 0. */
#define HF_CONTENDED UINT64_C(1)
static inline uint64_t hf__lock_word(uint64_t session)
{
    uint64_t v = session >> 16 << 12 | (session & 0xfff);
    return v << 11 | (v * HF_SEAL_FACTOR) >> 54 << 1;
}
/* Returns the session that a lock word names; 0: the word is damaged. */
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
    uint64_t timens;   /* the inode of the time namespace, which has its own CLOCK_BOOTTIME */
    int64_t offset_us; /* the store's clock is CLOCK_BOOTTIME plus this */
    int64_t ahead_us;  /* how far ahead of the time of day the store's clock was when this boot
                          began; an hour at most */
    uint8_t unused[HF_SECTOR - 56];
    uint64_t sum;
};

struct hf__alloc { /* sector 3 */
    _Atomic uint64_t lock;
    _Atomic uint64_t bump;  /* sealed: the first line that was never allocated */
    _Atomic uint64_t limit; /* sealed: how many lines the file has at least */
    /* The allocation under way. intent_bump: what bump was before (0: there is none). intent_word:
       where the link will be stored, as an offset in words; intent_link: the link. If a client dies
       before it has stored the link, bump is set back. All sealed. */
    _Atomic uint64_t intent_bump, intent_word, intent_link;
    /* stale: how often space was taken back from a dead client. clean: the value of stale when the
       whole file was last synced. Nothing is allocated while they differ. */
    _Atomic uint64_t stale, clean;
    _Atomic uint64_t ceiling; /* sealed, in seconds: every rev that is far ahead of the clock is
                                 below it */
};

struct hf__slot {                /* the place of a session */
    _Atomic uint64_t generation; /* sealed */
    _Atomic uint64_t marks;      /* sealed line of the struct hf__key_marks of wakeup 0; 0: none */
    _Atomic uint64_t missed;     /* 1: a mark couldn't be made, so any key may be meant */
    uint64_t unused[5];
    _Atomic uint32_t wakeup[HF_FILE_WAKEUPS];
};

struct hf__bucket {
    _Atomic uint64_t lock;
    _Atomic uint64_t head;  /* sealed line of the first cell */
    _Atomic uint64_t debt;  /* wakeups whose counter was raised, but whose sleepers may not have
                               been woken yet: lock.c; 0: none */
    _Atomic uint64_t floor; /* the greatest rev that was deleted in this bucket, with a check */
};

/* A cell is this line and the lines of its key. It has two bodies, at first right behind it. */
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

/* The head of a body; its parties follow. All fields are 64-bit words, which are written one by one
   and can be read again at once without a stall of the processor. */
struct hf__body {
    uint64_t rev, token;
    uint64_t counts;     /* holders | waiters << 32 */
    uint64_t extent;     /* bytes of the parties | enum hf__body_flag << 32 | their sum << 40 */
    uint64_t marker_seq; /* seq of the marker that was written last */
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

/* How many bytes of address space a store reserves, which is also its greatest size. Less with the
   thread sanitizer, because that needs memory for all of it. */
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

#endif
