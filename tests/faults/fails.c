/*
 * fails.c - makes the n-th call fail; see fails.h.
 *
 * One line per function in CALLS: its result, name, parameters, arguments, and the errno of its
 * failure, which is -1. The names are those with 64-bit offsets, which is how everything is
 * compiled.
 */
#include "fails.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

static long count, fail_at;
static int armed, fail_on, fail_errno;
static const char *only_one, *failed;
static long blocks;
static _Thread_local int exempt;

enum { NAMES = 64 };
static struct {
    const char *name;
    long calls;
} seen[NAMES];

static void note(const char *name)
{
    for (int i = 0; i < NAMES; i++) {
        const char *none = NULL;
        if (seen[i].name == name ||
            __atomic_compare_exchange_n(&seen[i].name, &none, name, 0, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED) ||
            none == name) {
            __atomic_add_fetch(&seen[i].calls, 1, __ATOMIC_RELAXED);
            return;
        }
    }
}

/* Is this call the one? */
static int fails(const char *name)
{
    if (exempt || !__atomic_load_n(&armed, __ATOMIC_ACQUIRE)) return 0;
    note(name);
    if (only_one && strcmp(only_one, name)) return 0;
    long n = __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
    if (n != fail_at && !(fail_on && n > fail_at)) return 0;
    __atomic_store_n(&failed, name, __ATOMIC_RELAXED);
    return 1;
}

static void arm(long n, int on, const char *only, int error)
{
    count = 0;
    fail_at = n;
    fail_on = on;
    fail_errno = error;
    only_one = only;
    failed = NULL;
    __atomic_store_n(&armed, 1, __ATOMIC_RELEASE);
}

void fails_arm(long n, int on) { arm(n, on, NULL, 0); }
void fails_arm_one(long n, const char *name, int error) { arm(n, 0, name, error); }

const char *fails_disarm(void)
{
    __atomic_store_n(&armed, 0, __ATOMIC_RELEASE);
    return __atomic_load_n(&failed, __ATOMIC_RELAXED);
}

void fails_exempt(int yes) { exempt = yes; }
long fails_blocks(void) { return __atomic_load_n(&blocks, __ATOMIC_RELAXED); }

const char *fails_calls(void)
{
    static char text[1024];
    size_t n = 0;
    for (int i = 0; i < NAMES && seen[i].name; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s %ld", i ? ", " : "", seen[i].name,
                              seen[i].calls);
    return text;
}

/* ---- memory ---- */

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
char *__real_strdup(const char *s);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
char *__wrap_strdup(const char *s);
void __wrap_free(void *p);

static void *allocated(void *p)
{
    if (p) __atomic_add_fetch(&blocks, 1, __ATOMIC_RELAXED);
    return p;
}

static int no_memory(const char *name)
{
    if (!fails(name)) return 0;
    errno = ENOMEM;
    return 1;
}

void *__wrap_malloc(size_t n) { return no_memory("malloc") ? NULL : allocated(__real_malloc(n)); }

void *__wrap_calloc(size_t n, size_t size)
{
    return no_memory("calloc") ? NULL : allocated(__real_calloc(n, size));
}

void *__wrap_realloc(void *p, size_t n)
{
    if (no_memory("realloc")) return NULL;
    void *q = __real_realloc(p, n);
    return p ? q : allocated(q);
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    return no_memory("aligned_alloc") ? NULL : allocated(__real_aligned_alloc(align, n));
}

char *__wrap_strdup(const char *s)
{
    return no_memory("strdup") ? NULL : allocated(__real_strdup(s));
}

void __wrap_free(void *p)
{
    if (p) __atomic_sub_fetch(&blocks, 1, __ATOMIC_RELAXED);
    __real_free(p);
}

/* ---- the system ---- */

#define CALLS(X)                                                                                   \
    X(int, fstat64, (int fd, struct stat *s), (fd, s), EIO)                                        \
    X(int, stat64, (const char *path, struct stat *s), (path, s), EACCES)                          \
    X(int, fstatfs64, (int fd, struct statfs *s), (fd, s), EIO)                                    \
    X(int, fallocate64, (int fd, int mode, off_t at, off_t n), (fd, mode, at, n), ENOSPC)          \
    X(int, fchmod, (int fd, mode_t mode), (fd, mode), EPERM)                                       \
    X(int, fsync, (int fd), (fd), EIO)                                                             \
    X(int, fdatasync, (int fd), (fd), EIO)                                                         \
    X(int, msync, (void *at, size_t n, int flags), (at, n, flags), EIO)                            \
    X(int, link, (const char *from, const char *to), (from, to), EMLINK)                           \
    X(int, eventfd, (unsigned n, int flags), (n, flags), EMFILE)                                   \
    X(int, inotify_init1, (int flags), (flags), EMFILE)                                            \
    X(int, inotify_add_watch, (int fd, const char *path, uint32_t mask), (fd, path, mask), ENOSPC) \
    X(ssize_t, pread64, (int fd, void *to, size_t n, off_t at), (fd, to, n, at), EIO)              \
    X(ssize_t, pwrite64, (int fd, const void *from, size_t n, off_t at), (fd, from, n, at),        \
      ENOSPC)                                                                                      \
    X(ssize_t, read, (int fd, void *to, size_t n), (fd, to, n), EIO)                               \
    X(ssize_t, readlink, (const char *path, char *to, size_t n), (path, to, n), ENOENT)            \
    X(int, madvise, (void *at, size_t n, int advice), (at, n, advice), EINVAL)

#define DEFINE(type, name, params, args, error)       \
    type __real_##name params;                        \
    type __wrap_##name params;                        \
    type __wrap_##name params                         \
    {                                                 \
        if (!fails(#name)) return __real_##name args; \
        errno = fail_errno ? fail_errno : error;      \
        return -1;                                    \
    }
CALLS(DEFINE)
#undef DEFINE

void *__real_mmap64(void *at, size_t n, int prot, int flags, int fd, off_t from);
void *__wrap_mmap64(void *at, size_t n, int prot, int flags, int fd, off_t from);
void *__wrap_mmap64(void *at, size_t n, int prot, int flags, int fd, off_t from)
{
    if (!fails("mmap64")) return __real_mmap64(at, n, prot, flags, fd, from);
    errno = ENOMEM;
    return MAP_FAILED;
}

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    int mode = flags & O_CREAT ? va_arg(args, int) : 0;
    va_end(args);
    if (!fails("open64")) return __real_open64(path, flags, mode);
    errno = fail_errno ? fail_errno : EMFILE;
    return -1;
}

int __real_fcntl64(int fd, int command, ...);
int __wrap_fcntl64(int fd, int command, ...);
int __wrap_fcntl64(int fd, int command, ...)
{
    va_list args;
    va_start(args, command);
    void *arg = va_arg(args, void *);
    va_end(args);
    if (!fails("fcntl64")) return __real_fcntl64(fd, command, arg);
    errno = fail_errno ? fail_errno : ENOLCK;
    return -1;
}

int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *arg)
{
    return fails("pthread_create") ? EAGAIN : __real_pthread_create(t, a, f, arg);
}
