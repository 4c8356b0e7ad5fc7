/*
 * system.c - the functions of HF_FILE_ENV (seam.h), by system calls: clocks, futexes, byte locks,
 * space, the disk.
 */
#include "store.h"

#include "os.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { NAP_NS = 1000000 };
static const int64_t FOREVER_US = INT64_C(1) << 50; /* 36 years */

/* ---- clocks, futexes ---- */

int64_t hf__os_now(struct hf__client *c)
{
    (void)c;
    return hf__local_us();
}

int64_t hf__os_rough_now(struct hf__client *c)
{
    (void)c;
    return hf__local_rough_us();
}

void hf__os_futex_wait(struct hf__client *c, _Atomic uint32_t *word, uint32_t seen, int64_t us)
{
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    (void)c;
    /* A very long wait gets no timeout, because the kernel would have to remove its timer before
       the woken thread runs. The futex isn't private, because other processes map the file, too.
       Early returns are allowed. */
    syscall(SYS_futex, word, FUTEX_WAIT, seen, us < FOREVER_US ? &t : NULL, NULL, 0);
}

void hf__os_futex_wake(struct hf__client *c, _Atomic uint32_t *word, int n)
{
    (void)c;
    syscall(SYS_futex, word, FUTEX_WAKE, n, NULL, NULL, 0);
}

/* ---- byte locks ---- */

int hf__byte_lock(int fd, int command, short type, int64_t from, int64_t len)
{
    struct flock f = {.l_type = type, .l_whence = SEEK_SET, .l_start = from, .l_len = len};
    int rc;
    do {
        rc = fcntl(fd, command, &f);
    } while (rc < 0 && errno == EINTR);
    if (rc < 0) return errno == EACCES ? -EAGAIN : -errno;
    return command == F_OFD_GETLK && f.l_type != F_UNLCK;
}

/* Sleeps between two attempts at a lock. Returns 0, without sleep, if until_us has passed; else 1.
   So a process that was stopped during the sleep gets one more attempt. */
static int nap(int64_t until_us)
{
    const struct timespec t = {0, NAP_NS};
    if (hf__local_us() >= until_us) return 0;
    nanosleep(&t, NULL);
    return 1;
}

/* Polls instead of using F_OFD_SETLKW, which has no time limit: the process that has the lock may
   be stopped. */
int hf__byte_lock_until(int fd, int64_t byte, int64_t until_us)
{
    int sys;
    while ((sys = -hf__byte_lock(fd, F_OFD_SETLK, F_WRLCK, byte, 1)) == EAGAIN)
        if (!nap(until_us)) return ETIMEDOUT;
    return sys;
}

/* Returns 1 if the descriptor still leads to the client's file; 0 if not; -1 if fstat fails for
   another reason. Programs that become daemons close all descriptors, and their numbers are used
   again. */
static int is_ours(const struct hf__client *c, int fd, struct stat *s)
{
    if (fstat(fd, s)) return errno == EBADF ? 0 : -1;
    return s->st_dev == c->dev && s->st_ino == c->ino;
}

/* Returns what is_ours does, for both descriptors; *s is of the client's. If the program has closed
   them and opened the same store again, another client may have got the same descriptor numbers.
   But then this slot's bytes aren't locked, or the slot has another generation. */
static int are_ours(struct hf__client *c, struct stat *s)
{
    uint32_t slot = (uint32_t)(c->session & 0xffff);
    int session = is_ours(c, c->session_fd, s), client = is_ours(c, c->fd, s);
    if (session != 1 || client != 1) return session && client ? -1 : 0;
    if (!c->session || s->st_size < (off_t)HF_AT_HEAP) return 1;
    /* Relaxed order is enough: this client has stored its generation there long ago. Another one
       means that the slot is another session's; a damaged one proves nothing. */
    uint64_t word = atomic_load_explicit(&hf__slot_at(c, slot)->generation, memory_order_relaxed);
    return (!hf__sealed(word) || hf__unseal(word) == c->session >> 16) &&
           hf__byte_lock(c->fd, F_OFD_GETLK, F_WRLCK, HF_BYTE_SESSION + slot, 1) &&
           hf__byte_lock(c->session_fd, F_OFD_GETLK, F_WRLCK, HF_BYTE_CLIENT + slot, 1);
}

int hf__os_probe(struct hf__client *c, int64_t byte)
{
    struct stat s;
    int rc = hf__byte_lock(c->fd, F_OFD_GETLK, F_WRLCK, byte, 1);
    /* If the descriptor's number belongs to another file by now, none of the bytes is locked there,
       and every session would look dead. */
    return rc || are_ours(c, &s) == 1 ? rc : -EBADF;
}

int hf__os_take_slot(struct hf__client *c, uint32_t slot)
{
    int rc = hf__byte_lock(c->session_fd, F_OFD_SETLK, F_WRLCK, HF_BYTE_SESSION + slot, 1);
    if (rc == -EAGAIN) return 0;
    if (rc) return rc;
    rc = hf__byte_lock(c->fd, F_OFD_SETLK, F_WRLCK, HF_BYTE_CLIENT + slot, 1);
    if (!rc) return 1;
    hf__byte_lock(c->session_fd, F_OFD_SETLK, F_UNLCK, HF_BYTE_SESSION + slot, 1);
    return rc == -EAGAIN ? 0 : rc;
}

/* Allocates disk space for these bytes by fallocate. Returns 0 or an errno, but not EINTR. */
static int allocate(int fd, int64_t from, int64_t len)
{
    sigset_t all, before;
    if (!fallocate(fd, 0, from, len)) return 0;
    if (errno != EINTR) return errno;
    /* If a signal comes, tmpfs gives back what it had allocated, and fails. Frequent signals, such
       as a profiler's, would make that go on for ever; so signals are blocked for this attempt. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int sys;
    do {
        sys = fallocate(fd, 0, from, len) ? errno : 0;
    } while (sys == EINTR);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return sys;
}

/* Blocks are really allocated, because a write to a hole of a mapped file raises SIGBUS if the disk
   is full. */
int hf__provide_blocks(int fd, int64_t from, int64_t to)
{
    static const char zeros[65536];
    struct rlimit limit;
    struct stat s;
    if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur < (rlim_t)to)
        return EFBIG; /* instead of a SIGXFSZ */
    int sys = allocate(fd, from, to - from);
    if (sys != EOPNOTSUPP) return sys;
    /* This filesystem doesn't know fallocate, so zeros are written. Only bytes beyond the file's
       end are, because other processes may use the rest. */
    if (fstat(fd, &s)) return errno;
    for (int64_t at = s.st_size; at < to;) {
        size_t n = to - at < (int64_t)sizeof zeros ? (size_t)(to - at) : sizeof zeros;
        ssize_t did = pwrite(fd, zeros, n, at);
        if (did < 0 && errno != EINTR) return errno;
        if (did > 0) at += did;
    }
    return 0;
}

int hf__os_sync(struct hf__client *c, uint64_t line, uint64_t n)
{
    struct stat s;
    int64_t from = (int64_t)(line * HF_LINE), to = (int64_t)((line + n) * HF_LINE);
    from -= from % sysconf(_SC_PAGESIZE);
    if (n ? msync(c->base + from, (size_t)(to - from), MS_SYNC) : fdatasync(c->fd)) return errno;
    return is_ours(c, c->fd, &s) ? 0 : EBADF;
}

int hf__os_grow(struct hf__client *c, uint64_t lines)
{
    struct stat s;
    int64_t until_us = hf__local_us() + c->io_timeout_us;
    /* One thread at a time makes the file grow: the mutex excludes this process's other threads,
       the byte lock other processes. */
    while (pthread_mutex_trylock(&c->grow_mu))
        if (!nap(until_us)) return ETIMEDOUT;
    int rc = hf__byte_lock_until(c->fd, HF_BYTE_GROW, until_us);
    if (!rc) {
        int64_t to = (int64_t)(lines * HF_LINE);
        int ours = are_ours(c, &s);
        rc = ours > 0 ? 0 : ours ? errno : EBADF;
        if (!rc && s.st_size < to) rc = hf__provide_blocks(c->fd, s.st_size, to);
        /* The new size is on disk before the header names it: after a power cut the file must not
           be shorter than its header says. */
        if (!rc && fdatasync(c->fd)) rc = errno;
        if (!rc && !is_ours(c, c->fd, &s)) rc = EBADF;
        hf__byte_lock(c->fd, F_OFD_SETLK, F_UNLCK, HF_BYTE_GROW, 1);
    }
    pthread_mutex_unlock(&c->grow_mu);
    return rc;
}

int hf__os_same_file(struct hf__client *c, const char **ret_why)
{
    struct stat open_file, named;
    int ours = are_ours(c, &open_file);
    *ret_why = NULL;
    if (!ours)
        *ret_why = "has lost its descriptor: this process closed it";
    else if (ours < 0)
        return 0;
    else if (!open_file.st_nlink)
        *ret_why = "was removed while it was open";
    else if ((uint64_t)open_file.st_size <
             HF_LINE * atomic_load_explicit(&c->limit, memory_order_relaxed))
        *ret_why = "was truncated while it was open";
    else if (stat(c->path, &named)) /* EACCES, for one, doesn't say where the path leads */
        *ret_why = errno == ENOENT || errno == ENOTDIR || errno == ELOOP
                       ? "was moved while it was open"
                       : NULL;
    else if (named.st_dev != c->dev || named.st_ino != c->ino)
        *ret_why = "was replaced while it was open";
    return *ret_why ? HF_CORRUPT : 0;
}

#ifdef HF_SEAM
const struct hf__file_env hf__file_env_os = {
#define OS_MEMBER(type, name, args) .name = hf__os_##name,
    HF_FILE_ENV(OS_MEMBER)
#undef OS_MEMBER
};
#endif
