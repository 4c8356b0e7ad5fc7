/*
 * lock.c - lock words that outlive their owners, and the wakeups of sessions.
 *
 * A lock word names its owner's session. A thread that finds the word held spins briefly, then sets
 * the contended bit and sleeps. If the named client is dead, the thread takes the word over by
 * compare-and-swap. Only one thing has to be repaired then: the dead client may have granted keys
 * of the bucket without waking the waiters. So the new owner wakes all waiters of the bucket that
 * may be concerned. Waking a waiter twice does no harm. If the new owner dies, too, the next owner
 * does the same.
 */
#include "marks.h"

/* How long a thread sleeps before it looks again at a lock word that is held: twice as long each
   time. Hundreds of threads that look every millisecond would keep the owner from the processor. */
enum { NAP_US = 1000, NAP_MOST_US = 32000 };

static _Atomic uint32_t *low_half(_Atomic uint64_t *lock)
{
    return (_Atomic uint32_t *)(void *)lock;
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

int hf__client_dead(const struct hf__op *op, uint64_t session)
{
    struct hf__client *c = op->c;
    uint32_t slot = (uint32_t)(session & 0xffff);
    if (session == c->session) return 0;
    if (slot >= HF_FILE_SLOTS) return 1;
    struct hf__slot *s = hf__slot_at(c, slot);
    /* Pairs with the store in hf__session_open. Only a process that has locked the slot's bytes
       writes a greater generation. So if it is greater, the slot's former owner is dead. */
    uint64_t generation = HF_LOAD("dead.generation", &s->generation);
    if (!hf__sealed(generation)) return hf__damaged(op, s, "the generation of a session");
    if (hf__unseal(generation) != session >> 16) return 1;
    int locked = HF_PROBE("dead.probe", c, HF_BYTE_CLIENT + slot);
    if (locked < 0)
        return hf_fail(op->err, HF_UNAVAILABLE, -locked,
                       "file: %s: asking whether another process lives: %s", op->verb,
                       strerror(-locked));
    return !locked;
}

/* Takes the lock word, which read `seen`, over if its owner is dead. Returns 0: go on waiting;
   HF_TAKEN_OVER: this client owns it; or an error. */
static int take_over(const struct hf__op *op, _Atomic uint64_t *lock, uint64_t seen)
{
    uint64_t owner = hf__lock_owner(seen);
    if (!owner) return hf__damaged(op, lock, "a lock word");
    int dead = hf__client_dead(op, owner);
    if (dead <= 0) return dead;
    /* The contended bit stays set, because other threads may sleep on the word. */
    return HF_CAS("lock.takeover", lock, &seen, op->c->word | HF_CONTENDED) ? HF_TAKEN_OVER : 0;
}

int hf__lock_slow(const struct hf__op *op, _Atomic uint64_t *lock)
{
    struct hf__client *c = op->c;
    for (int i = 0; i < HF_FILE_SPINS; i++) {
        uint64_t seen = HF_LOAD("lock.spin", lock);
        if (seen == 0 && HF_CAS("lock.again", lock, &seen, c->word)) return 0;
        relax();
    }
    int64_t until_us = HF_NOW(c) + c->io_timeout_us, nap_us = NAP_US;
    for (;;) {
        uint64_t seen = HF_LOAD("lock.look", lock);
        /* Sets the contended bit, too, because other threads may sleep on the word. */
        if (seen == 0 && HF_CAS("lock.slow", lock, &seen, c->word | HF_CONTENDED)) return 0;
        if (seen == 0) continue;
        int rc = take_over(op, lock, seen);
        if (rc) return rc;
        if (!(seen & HF_CONTENDED)) {
            uint64_t marked = seen | HF_CONTENDED;
            if (!HF_CAS("lock.mark", lock, &seen, marked)) continue;
            seen = marked;
        }
        HF_FUTEX_WAIT("lock.sleep", c, low_half(lock), (uint32_t)seen, nap_us);
        if (nap_us < NAP_MOST_US) {
            nap_us *= 2;
            continue;
        }
        const char *why;
        if (HF_ENV(c, same_file)(c, &why)) {
            hf__break(c, HF_CORRUPT, why);
            return hf__broken(op);
        }
        if (HF_NOW(c) >= until_us)
            return hf_fail(op->err, HF_UNAVAILABLE, 0,
                           "file: %s: a process that holds a part of '%s' is stopped, or takes "
                           "too long",
                           op->verb, c->path);
    }
}

void hf__unlock_slow(struct hf__client *c, _Atomic uint64_t *lock)
{
    /* A word that doesn't name this client was damaged while it was held. It isn't changed, so that
       the next client reports the damage. */
    if ((HF_LOAD("unlock.whose", lock) & ~HF_CONTENDED) != c->word) return;
    HF_STORE("unlock.slow", lock, 0);
    HF_FUTEX_WAKE("unlock.wake", c, low_half(lock), 1);
}

/* ---- wakeups ---- */

/*
 * A debt, as it stands in a bucket: futex wakeups that are still to be made. DEBT_ONE: to the
 * sleepers of one wakeup of one slot. DEBT_ALL: to several, which are found by ring_unclaimed. Some
 * bits of the row's rev are in it, so that hf__owed_wake doesn't clear another write's debt.
 */
#define DEBT_ONE (UINT64_C(1) << 63)
#define DEBT_ALL (UINT64_C(1) << 62)
enum { DEBT_WAKEUP_BITS = 4, DEBT_SLOT_BITS = 12, DEBT_REV_BITS = 46 };
_Static_assert(HF_FILE_WAKEUPS <= 1 << DEBT_WAKEUP_BITS && HF_FILE_SLOTS <= 1 << DEBT_SLOT_BITS,
               "a debt names a wakeup");

static _Atomic uint32_t *wakeup_at(struct hf__client *c, uint32_t slot, uint32_t wakeup)
{
    return &hf__slot_at(c, slot)->wakeup[wakeup % HF_FILE_WAKEUPS];
}

/* Marks the key for wakeup 0 of the slot. The caller raises the counter after that, so a thread
   that reads the new count finds the mark. */
static void mark(const struct hf__op *op, uint32_t slot, uint64_t hash)
{
    struct hf__slot *s = hf__slot_at(op->c, slot);
    int missed;
    struct hf__key_marks *m = hf__marks_of(op, s, &missed);
    if (m) hf__mark_key(m, hash);
    if (missed) HF_STORE("marks.missed", &s->missed, 1);
}

void hf__ring(const struct hf__op *op, uint64_t session, uint8_t wakeup, uint64_t hash,
              struct hf__owed *owed)
{
    struct hf__client *c = op->c;
    uint32_t slot = (uint32_t)(session & 0xffff);
    if (slot >= HF_FILE_SLOTS) return;
    if (!(wakeup % HF_FILE_WAKEUPS)) mark(op, slot, hash);
    _Atomic uint32_t *word = wakeup_at(c, slot, wakeup);
    /* The session may be dead: a wakeup without a sleeper does no harm. The addition has release
       order and pairs with the load in hf__file_wakeup_begin, so the woken thread sees the row. */
    HF_XADD("ring", word, 1);
    if (owed && owed->n < sizeof owed->word / sizeof *owed->word) {
        owed->debt = owed->n
                         ? DEBT_ALL
                         : DEBT_ONE | (uint64_t)slot << DEBT_WAKEUP_BITS | wakeup % HF_FILE_WAKEUPS;
        owed->word[owed->n++] = word;
    } else {
        HF_FUTEX_WAKE("ring.wake", c, word, INT32_MAX);
    }
}

void hf__owed_note(struct hf__bucket *b, struct hf__owed *owed, uint64_t rev)
{
    if (!owed->n) return;
    const uint64_t mask = (UINT64_C(1) << DEBT_REV_BITS) - 1;
    owed->debt |= (rev & mask) << (DEBT_WAKEUP_BITS + DEBT_SLOT_BITS) & ~(DEBT_ONE | DEBT_ALL);
    HF_STORE("owe", &b->debt, owed->debt); /* overwrites none: hf__bucket_lock has paid the last */
}

void hf__owed_wake(struct hf__client *c, struct hf__bucket *b, struct hf__owed *owed)
{
    if (!owed->n) return;
    for (uint32_t i = 0; i < owed->n; i++) HF_FUTEX_WAKE("owed.wake", c, owed->word[i], INT32_MAX);
    uint64_t seen = owed->debt;
    HF_CAS("owed.paid", &b->debt, &seen, 0);
}

/* Wakes every party of this bucket that was granted a key and hasn't claimed it, and the first
   waiter of each queue, because the end of a hold may have changed. The caller holds the bucket's
   lock. Returns 0 or an error. */
static int ring_unclaimed(const struct hf__op *op, struct hf__bucket *b)
{
    struct hf__found f;
    int rc = hf__follow(op, &b->head, 0, &f.cell);
    while (!rc && f.cell) {
        rc = hf__current(op, &f);
        if (rc) return rc;
        const unsigned char *p = (const unsigned char *)(f.at + 1), *end = p + hf__used(&f.head);
        uint32_t holders = hf__holders(&f.head), n = holders + (hf__waiters(&f.head) > 0);
        for (uint32_t i = 0; i < n && end - p >= HF_PARTY_FIXED; i++) {
            hf_party party;
            HF_COPY_OUT("unclaimed", &party, p, HF_PARTY_FIXED);
            if (party.session && (i == holders || party.flags & HF_PARTY_UNCLAIMED))
                hf__ring(op, party.session, party.wakeup, f.cell->hash, NULL);
            p += HF_PARTY_BYTES(party.owner_len, party.note_len);
        }
        rc = hf__follow(op, &f.cell->next, hf__unseal(f.cell->self) >> 8, &f.cell);
    }
    return rc;
}

/* Makes the wakeups of the bucket's debt, because the client that owes them may have died. If it
   hasn't, waiters are woken twice, which does no harm. */
static int pay(const struct hf__op *op, struct hf__bucket *b)
{
    uint64_t debt = HF_LOAD("debt", &b->debt), slot = debt >> DEBT_WAKEUP_BITS & 0xfff;
    int rc = 0;
    if (debt & DEBT_ONE && slot < HF_FILE_SLOTS)
        HF_FUTEX_WAKE("debt.wake", op->c, wakeup_at(op->c, (uint32_t)slot, (uint32_t)debt),
                      INT32_MAX);
    else
        rc = ring_unclaimed(op, b);
    if (!rc) HF_STORE("debt.paid", &b->debt, 0);
    return rc;
}

int hf__bucket_lock(const struct hf__op *op, struct hf__bucket *b)
{
    int rc = hf__lock(op, &b->lock);
    if (rc < 0) return rc;
    if (HF_UNLIKELY(rc == HF_TAKEN_OVER))
        rc = ring_unclaimed(op, b);
    else if (HF_UNLIKELY(HF_LOAD("debt.look", &b->debt)))
        rc = pay(op, b);
    if (rc) hf__bucket_unlock(op->c, b);
    return rc;
}
