/*
 * system.c - the system calls behind the seams: clocks, futexes, byte locks, space, the disk.
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
    /* A wait without limit has no timer: the kernel would have to remove it before the woken thread
       runs. The futex isn't private, because other processes map the file, too. The caller copes
       with early returns. */
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

/* Sleeps between two attempts at a lock. Returns 0 if the time is over. The time is checked before
   the sleep, so a process that was stopped meanwhile gets one more attempt. */
static int nap(int64_t until_us)
{
    const struct timespec t = {0, NAP_NS};
    if (hf__local_us() >= until_us) return 0;
    nanosleep(&t, NULL);
    return 1;
}

/* Locks a byte that other processes hold while they work. It polls, without F_OFD_SETLKW, because
   one of them may be stopped. Returns 0, ETIMEDOUT, or an errno. */
int hf__byte_lock_until(int fd, int64_t byte, int64_t until_us)
{
    int sys;
    while ((sys = -hf__byte_lock(fd, F_OFD_SETLK, F_WRLCK, byte, 1)) == EAGAIN)
        if (!nap(until_us)) return ETIMEDOUT;
    return sys;
}

/* Returns 1 if the descriptor is still ours, 0 if not, -1 if the system doesn't say. Programs that
   become daemons close all descriptors, and open others in their place. */
static int is_ours(const struct hf__client *c, int fd, struct stat *s)
{
    if (fstat(fd, s)) return errno == EBADF ? 0 : -1;
    return s->st_dev == c->dev && s->st_ino == c->ino;
}

/* Returns as is_ours for both descriptors, and fills `s` for the client's. A store that was opened
   since may have the same descriptor numbers, but not the same locked bytes in this generation. */
static int are_ours(struct hf__client *c, struct stat *s)
{
    uint32_t slot = (uint32_t)(c->session & 0xffff);
    int session = is_ours(c, c->session_fd, s), client = is_ours(c, c->fd, s);
    if (session != 1 || client != 1) return session && client ? -1 : 0;
    if (!c->session || s->st_size < (off_t)HF_AT_HEAP) return 1;
    /* Relaxed: this client's generation was stored there long ago, unless it is lost. A damaged one
       proves nothing. */
    uint64_t word = atomic_load_explicit(&hf__slot_at(c, slot)->generation, memory_order_relaxed);
    return (!hf__sealed(word) || hf__unseal(word) == c->session >> 16) &&
           hf__byte_lock(c->fd, F_OFD_GETLK, F_WRLCK, HF_BYTE_SESSION + slot, 1) &&
           hf__byte_lock(c->session_fd, F_OFD_GETLK, F_WRLCK, HF_BYTE_CLIENT + slot, 1);
}

int hf__os_probe(struct hf__client *c, int64_t byte)
{
    struct stat s;
    int rc = hf__byte_lock(c->fd, F_OFD_GETLK, F_WRLCK, byte, 1);
    /* If another file has this descriptor's number by now, none of its bytes is locked, which would
       make every session look dead. */
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

/* Allocates space. Returns 0 or an errno, but not EINTR. */
static int allocate(int fd, int64_t from, int64_t len)
{
    sigset_t all, before;
    if (!fallocate(fd, 0, from, len)) return 0;
    if (errno != EINTR) return errno;
    /* tmpfs takes back what it had allocated when a signal comes. Signals as frequent as a
       profiler's would make it begin again for ever, so they are blocked this time. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int sys;
    do {
        sys = fallocate(fd, 0, from, len) ? errno : 0;
    } while (sys == EINTR);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return sys;
}

/* Blocks are really allocated: with a sparse file, a full disk would mean a SIGBUS. */
int hf__provide_blocks(int fd, int64_t from, int64_t to)
{
    static const char zeros[65536];
    struct rlimit limit;
    struct stat s;
    if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur < (rlim_t)to)
        return EFBIG; /* instead of a SIGXFSZ */
    int sys = allocate(fd, from, to - from);
    if (sys != EOPNOTSUPP) return sys;
    /* This filesystem can't allocate. Only bytes beyond the end are written, because other
       processes may use the rest. */
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
    /* The file grows in one thread at a time: threads by the mutex, processes by the byte lock. */
    while (pthread_mutex_trylock(&c->grow_mu))
        if (!nap(until_us)) return ETIMEDOUT;
    int rc = hf__byte_lock_until(c->fd, HF_BYTE_GROW, until_us);
    if (!rc) {
        int64_t to = (int64_t)(lines * HF_LINE);
        int ours = are_ours(c, &s);
        rc = ours > 0 ? 0 : ours ? errno : EBADF;
        if (!rc && s.st_size < to) rc = hf__provide_blocks(c->fd, s.st_size, to);
        /* After a power cut the file must not be shorter than its header says. */
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
    else if (stat(c->path, &named))
        *ret_why = errno == ENOENT ? "was moved while it was open" : NULL;
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
