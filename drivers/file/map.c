/*
 * map.c - makes, opens and maps the file. trust.c says whether the file may be trusted.
 *
 * Contents: creation; boots; opening.
 */
#include "store.h"

#include "os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OPEN_TRIES = 16, PAGE = 4096 };

/* ---- creation ---- */

/* Returns what added to CLOCK_BOOTTIME gives the time of day, to within some microseconds. So the
   tokens of a store that replaces a removed one are above the old tokens. */
static int64_t measure_offset(void)
{
    int64_t best = 0, least = INT64_MAX;
    for (int i = 0; i < 20 && least > 10; i++) {
        int64_t before = hf__local_us(), day = hf__day_us(), took = hf__local_us() - before;
        if (took < least) best = day - before - took / 2;
        if (took < least) least = took;
    }
    return best;
}

static int write_first_page(int fd, unsigned mode, hf_error *err)
{
    _Alignas(8) unsigned char page[PAGE] = {0};
    struct hf__boot boot;
    int rc = hf__boot_here(&boot, err);
    if (rc) return rc;
    boot.offset_us = measure_offset();
    uint64_t bytes = (HF_AT_HEAP + HF_FILE_FIRST_HEAP + PAGE - 1) / PAGE * PAGE;
    hf__format(page, bytes / HF_LINE, mode, &boot);
    int sys = hf__provide_blocks(fd, 0, (int64_t)bytes);
    ssize_t n = sys ? 0 : pwrite(fd, page, sizeof page, 0);
    if (!sys && n != (ssize_t)sizeof page) sys = n < 0 ? errno : ENOSPC;
    if (!sys && (fchmod(fd, mode) || fsync(fd))) sys = errno;
    return sys ? -sys - 1000 : 0; /* an errno, below all codes, so that the caller can tell it
                                     apart */
}

static void sync_directory(const char *path)
{
    char dir[HF_FILE_PATH_CAP];
    snprintf(dir, sizeof dir, "%s", path);
    char *slash = strrchr(dir, '/');
    if (!slash) return;
    slash[slash == dir] = 0;
    int fd = hf__open(dir, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0) return; /* the link is made even if the file can't be read */
    fsync(fd);
    close(fd);
}

/* Makes a new store. The file is completed under a temporary name and then linked to its own name:
   no process sees half of a store, and if two processes make it, one wins. */
static int create(hf_store *st, int force, hf_error *err)
{
    char temporary[HF_FILE_PATH_CAP + 24];
    uint64_t r;
    hf__random(&r, sizeof r);
    snprintf(temporary, sizeof temporary, "%s.%016llx", st->path, (unsigned long long)r);
    int rc = hf__make_default_directories(st->path, err);
    if (rc) return rc;
    int fd = hf__open(temporary, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (fd < 0) return hf__refuse_errno(st, errno, "create", err);
    rc = hf__trust_filesystem(st, fd, force, err);
    if (!rc) rc = write_first_page(fd, st->mode, err);
    if (rc <= -1000) rc = hf__refuse_errno(st, -rc - 1000, "create", err);
    if (!rc && link(temporary, st->path) && errno != EEXIST)
        rc = hf__refuse_errno(st, errno, "create", err);
    unlink(temporary);
    close(fd);
    if (!rc) sync_directory(st->path);
    return rc;
}

/* ---- boots ---- */

static int read_hex(const char *text, uint8_t *to, size_t n)
{
    size_t have = 0;
    for (; *text && have < n * 2; text++) {
        int d = *text >= '0' && *text <= '9'   ? *text - '0'
                : *text >= 'a' && *text <= 'f' ? *text - 'a' + 10
                                               : -1;
        if (d < 0) continue;
        to[have / 2] = (uint8_t)(have % 2 ? to[have / 2] | d : d << 4);
        have++;
    }
    return have == n * 2;
}

int hf__boot_here(struct hf__boot *ret, hf_error *err)
{
    static const char from[] = "/proc/sys/kernel/random/boot_id";
    char text[64] = {0};
    memset(ret, 0, sizeof *ret);
#ifdef HF_SEAM
    const char *fake = secure_getenv("HOLDFAST_TEST_BOOT_ID");
    if (fake) snprintf(text, sizeof text, "%s", fake);
#endif
    int fd = text[0] ? -1 : hf__open(from, O_RDONLY, 0);
    int sys = fd < 0 && !text[0] ? errno : 0;
    if (sys == EMFILE || sys == ENFILE || sys == ENOMEM)
        return hf_fail(err, HF_UNAVAILABLE, sys, "file: open: %s: %s", from, strerror(sys));
    if (fd >= 0) {
        ssize_t did = read(fd, text, sizeof text - 1);
        if (did < 0) sys = errno;
        text[did > 0 ? did : 0] = 0;
        close(fd);
    }
    if (!read_hex(text, ret->boot_id, sizeof ret->boot_id))
        return hf_fail(err, HF_UNSUPPORTED, sys,
                       "file: open: can't tell this boot from the last one by %s: %s", from,
                       sys ? strerror(sys) : "it isn't a boot id");
    ssize_t n = readlink("/proc/self/ns/time", text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0; /* n < 0: an older kernel, with one time namespace for all */
    const char *number = strchr(text, '[');
    ret->timens = number ? strtoull(number + 1, NULL, 10) : 0;
    return 0;
}

/* Recovers the store, if no other process uses it: a locked byte of a session means that a process
   does. Returns 0 or an error. */
static int recover_alone(hf_store *st, struct hf__boot *here, hf_error *err)
{
    struct hf__client *c = &st->c;
    const struct hf__op op = {c, "recover", NULL, err};
    const int64_t all = HF_BYTE_RECOVER - HF_BYTE_SESSION;
    struct hf__boot now;
    struct stat s;
    int rc, sys = hf__byte_lock_until(c->fd, HF_BYTE_RECOVER, hf__local_us() + c->io_timeout_us);
    if (sys == ETIMEDOUT)
        return hf_fail(err, HF_UNAVAILABLE, sys,
                       "file: open '%s': a process that recovers it is stopped, or takes too long",
                       st->path);
    if (sys) return hf__refuse_errno(st, sys, "lock", err);
    rc = hf__boot_read(&op, &now);
    if (!rc && memcmp(now.boot_id, here->boot_id, sizeof now.boot_id)) {
        sys = -hf__byte_lock(c->fd, F_OFD_SETLK, F_WRLCK, HF_BYTE_SESSION, all);
        if (sys == EAGAIN)
            rc = hf_fail(err, HF_UNAVAILABLE, 0,
                         "file: open '%s': it is in use under another boot id", st->path);
        else if (sys || fstat(c->fd, &s))
            rc = hf__refuse_errno(st, sys ? sys : errno, "lock", err);
        else
            rc = hf__recover(&op, here, hf__day_us(), (uint64_t)s.st_size / HF_LINE);
        if (!sys) hf__byte_lock(c->fd, F_OFD_SETLK, F_UNLCK, HF_BYTE_SESSION, all);
    }
    hf__byte_lock(c->fd, F_OFD_SETLK, F_UNLCK, HF_BYTE_RECOVER, 1);
    return rc;
}

/* Checks that the store is of this boot, and recovers it if it is of an earlier one. */
static int settle_boot(hf_store *st, hf_error *err)
{
    const struct hf__op op = {&st->c, "open", NULL, err};
    struct hf__boot here, block;
    int rc = hf__boot_here(&here, err);
    if (!rc) rc = hf__boot_read(&op, &block);
    /* If HF_BYTE_RECOVER is locked, another process recovers the store, and may go on for a moment
       after the boot block already names this boot. */
    if (!rc && (memcmp(block.boot_id, here.boot_id, sizeof here.boot_id) ||
                hf__byte_lock(st->c.fd, F_OFD_GETLK, F_WRLCK, HF_BYTE_RECOVER, 1) > 0)) {
        rc = recover_alone(st, &here, err);
        if (!rc) rc = hf__boot_read(&op, &block);
    }
    if (rc) return rc;
    if (block.timens != here.timens)
        return hf_fail(err, HF_UNSUPPORTED, 0,
                       "file: open '%s': since this machine's start it belongs to another time "
                       "namespace, whose clock may differ; open it there, or name another file",
                       st->path);
    st->c.offset_us = block.offset_us;
    return 0;
}

/* ---- opening ---- */

void hf__close_both(hf_store *st)
{
    if (st->c.fd >= 0) close(st->c.fd);
    if (st->c.session_fd >= 0) close(st->c.session_fd);
    st->c.fd = st->c.session_fd = -1;
}

static int open_once(const char *path)
{
    /* Not O_RDONLY first: overlayfs copies a file when it is opened for writing, and a descriptor
       from before still leads to the old file. O_NONBLOCK: there may be a FIFO. */
    return hf__open(path, O_RDWR | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK, 0);
}

/* Opens the file twice, for the client and for the session (session.c), and checks that both are
   the same file, which still has a name. Returns 0 or an errno; ENOENT: there is no such file. */
static int open_both(hf_store *st, struct stat *s)
{
    struct stat other;
    for (int i = 0; i < OPEN_TRIES; i++) {
        int sys = 0;
        hf__fork_hold();
        st->c.fd = open_once(st->path);
        if (st->c.fd < 0) sys = errno;
        if (!sys && (st->c.session_fd = open_once(st->path)) < 0) sys = errno;
        if (!sys && (fstat(st->c.fd, s) || fstat(st->c.session_fd, &other))) sys = errno;
        if (sys || s->st_ino != other.st_ino || s->st_dev != other.st_dev || !s->st_nlink) {
            hf__close_both(st);
            sys = sys ? sys : EAGAIN;
        }
        hf__fork_release();
        st->c.dev = s->st_dev;
        st->c.ino = s->st_ino;
        if (sys != EAGAIN) return sys;
    }
    return EAGAIN;
}

static int open_or_create(hf_store *st, struct stat *s, int force, int existing, hf_error *err)
{
    for (int i = 0; i < OPEN_TRIES; i++) {
        int sys = open_both(st, s);
        if (!sys) return 0;
        if (sys == ELOOP)
            return hf_fail(err, HF_DENIED, sys, "file: open '%s': it is a symbolic link", st->path);
        if (sys != ENOENT) return hf__refuse_errno(st, sys, "open", err);
        if (existing)
            return hf_fail(err, HF_UNAVAILABLE, ENOENT,
                           "no store at '%s': there is no such file; the first lock makes it",
                           st->path);
        int rc = create(st, force, err);
        if (rc) return rc;
    }
    return hf_fail(err, HF_UNAVAILABLE, 0, "file: open '%s': the file is removed again and again",
                   st->path);
}

/* Maps the file with address space for it to grow into, so that the mapping never moves. */
static int reserve(hf_store *st, uint64_t size, hf_error *err)
{
    struct hf__client *c = &st->c;
    uint64_t bytes = HF_FILE_RESERVE;
    if (bytes < size) bytes = size;
    for (;;) {
        void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, c->fd, 0);
        if (p != MAP_FAILED) {
            c->base = p;
            c->lines = bytes / HF_LINE;
            break;
        }
        if (bytes == size) return hf__refuse_errno(st, errno, "map", err);
        bytes = bytes / 4 < size ? size : bytes / 4 / PAGE * PAGE;
    }
    /* A forked child doesn't get the mapping: it has no use for it, and a mapping keeps the open
       file alive, and with it the locks of the parent's client. */
    madvise(c->base, bytes, MADV_DONTFORK);
    madvise(c->base, bytes, MADV_DONTDUMP);
    return 0;
}

int hf__map(hf_store *st, int force, int existing, int64_t io_timeout_ms, hf_error *err)
{
    struct hf__client *c = &st->c;
    const struct hf__op op = {c, "open", NULL, err};
    struct hf__boot before, after;
    struct stat s;
    c->io_timeout_us = io_timeout_ms * 1000;
    int rc = open_or_create(st, &s, force, existing, err);
    if (!rc) rc = hf__trust(st, c->fd, &s, force, err);
    if (!rc) rc = hf__check_header(st, c->fd, &s, err);
    if (!rc) rc = reserve(st, (uint64_t)s.st_size, err);
    if (!rc) rc = settle_boot(st, err);
    if (!rc) rc = hf__boot_read(&op, &before);
    if (!rc) rc = hf__session_open(&op);
    /* From now on this session keeps others from recovering the store. Another process may have
       done so before the session began. */
    if (!rc) rc = hf__boot_read(&op, &after);
    if (!rc && (after.seq != before.seq || after.offset_us != c->offset_us))
        rc = hf_fail(err, HF_UNAVAILABLE, 0, "file: open '%s': it was recovered meanwhile",
                     st->path);
    return rc;
}

void hf__unmap(hf_store *st)
{
    struct hf__client *c = &st->c;
    /* HF_LOST: this is a forked child, which doesn't have the mapping. Something else may be mapped
       at that address. */
    if (c->base && !st->attached &&
        atomic_load_explicit(&c->broken, memory_order_acquire) != HF_LOST)
        munmap(c->base, c->lines * HF_LINE);
    hf__close_both(st);
}
