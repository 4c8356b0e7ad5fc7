/*
 * mem_latch.h - two things that threads of one process sleep on: a latch, which is a lock that is
 * held for a few dozen instructions, and a wakeup, which is a counter.
 */
#ifndef HF_MEM_LATCH_H
#define HF_MEM_LATCH_H

#include "os.h"

#include <stdatomic.h>
#include <stdint.h>

/* True only while the process has one thread. Always 0 where the C library doesn't tell (glibc
   before 2.32, musl). */
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 32)
#include <sys/single_threaded.h>
#define HF_SINGLE_THREADED __libc_single_threaded
#else
#define HF_SINGLE_THREADED 0
#endif

/* Sleeps while *word is `value`, for `us` at most (negative: without a limit). May return early. */
void hf__sleep_on(_Atomic uint32_t *word, uint32_t value, int64_t us);
/* Wakes the threads that sleep on the word; only one of them unless `all`. */
void hf__wake_sleepers(_Atomic uint32_t *word, int all);

/* ---- the latch: 0 free, 1 taken, 2 taken and a thread sleeps ---- */

typedef _Atomic uint32_t hf__latch;

enum { HF_LATCH_SPINS = 100 };

static inline int hf__latch_try(hf__latch *word)
{
    uint32_t none = 0;
    return atomic_compare_exchange_strong_explicit(word, &none, 1, memory_order_acquire,
                                                   memory_order_relaxed);
}

static HF_COLD void hf__latch_slowly(hf__latch *word)
{
    for (int i = 0; i < HF_LATCH_SPINS; i++) {
        if (!atomic_load_explicit(word, memory_order_relaxed) && hf__latch_try(word)) return;
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("yield");
#endif
    }
    while (atomic_exchange_explicit(word, 2, memory_order_acquire)) hf__sleep_on(word, 2, -1);
}

static HF_COLD int hf__latch_wake(hf__latch *word)
{
    hf__wake_sleepers(word, 0);
    return 0;
}

/* Takes the latch if it is free. Returns 0 if another thread has it. A process with one thread
   needs no atomic operation, as with libc's mutex. */
static inline int hf__latch_at_once(hf__latch *word)
{
    if (!HF_SINGLE_THREADED) return hf__latch_try(word);
    atomic_store_explicit(word, 1, memory_order_relaxed);
    return 1;
}

static inline void hf__latch_lock(hf__latch *word)
{
    if (!hf__latch_at_once(word)) hf__latch_slowly(word);
}

/* Frees the latch. Returns 0, so that a caller may end with this call. */
static inline int hf__latch_unlock(hf__latch *word)
{
    if (HF_SINGLE_THREADED)
        atomic_store_explicit(word, 0, memory_order_relaxed);
    else if (atomic_exchange_explicit(word, 0, memory_order_release) == 2)
        return hf__latch_wake(word);
    return 0;
}

/* ---- a wakeup: a counter to sleep on; a sleep ends at once if the counter has changed ---- */

struct hf__wakeup {
    _Atomic uint32_t word, sleepers, interrupted;
};

static inline uint32_t hf__wakeup_count(struct hf__wakeup *b) { return atomic_load(&b->word); }

static inline void hf__wakeup_post(struct hf__wakeup *b)
{
    /* A sleeper raises `sleepers` before the kernel compares the word, so none is missed. */
    atomic_fetch_add(&b->word, 1);
    if (atomic_load(&b->sleepers)) hf__wake_sleepers(&b->word, 1);
}

/* Ends every sleep that has begun, and makes the next one end at once. */
static inline void hf__wakeup_interrupt(struct hf__wakeup *b)
{
    atomic_store(&b->interrupted, 1);
    hf__wakeup_post(b);
}

/* Sleeps for `us` microseconds at most, while the counter is still `heard`. May return early. */
static inline void hf__wakeup_sleep(struct hf__wakeup *b, uint32_t heard, int64_t us)
{
    atomic_fetch_add(&b->sleepers, 1);
    if (!atomic_exchange(&b->interrupted, 0)) hf__sleep_on(&b->word, heard, us);
    atomic_fetch_sub(&b->sleepers, 1);
}

#endif
