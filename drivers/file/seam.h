/*
 * seam.h - the macros by which the mapped file is accessed and the system is called. In a build
 * with -DHF_SEAM a test may switch to another simulated process at each of them, or end this one.
 * shared.h has the rules.
 */
#ifndef HF_FILE_SEAM_MACROS_H
#define HF_FILE_SEAM_MACROS_H

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

struct hf__client;

#define HF_LIKELY(x)   __builtin_expect(!!(x), 1)
#define HF_UNLIKELY(x) __builtin_expect(!!(x), 0)

/*
 * The system calls that the shared-memory code makes. Each function gets the client. With
 * -DHF_SEAM they are called through a table of the test's (with its env_arg), else directly.
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
/* What is about to happen to the n bytes at `at` of the mapping: hf__seam is called before. */
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
 * Loads have acquire order, stores release order, read-modify-writes both (on x86 that costs
 * nothing). So a thread that reads a published word sees what was written before that word. The
 * words for which this matters: lock words (from unlock to lock), seq, links, generation.
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
/* Copies in two halves, so that a test can end or switch the process between them. */
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

/* Copies n bytes; without a call if n is small, although the compiler doesn't know n. */
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

#endif
