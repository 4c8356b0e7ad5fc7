/*
 * trust.c - checks whether a file may be used as a store: its filesystem, owner, mode and header.
 */
#include "store.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { PAGE = 4096 };

enum { BAD, GOOD, NETWORK }; /* NETWORK: machines that share it don't share memory */

static const struct {
    long magic;
    int kind;
    const char *name;
} filesystems[] = {
    {0xEF53, GOOD, "ext4"},        {0x58465342, GOOD, "xfs"},       {0x9123683E, GOOD, "btrfs"},
    {0x01021994, GOOD, "tmpfs"},   {0x794c7630, GOOD, "overlayfs"}, {0x2fc12fc1, GOOD, "zfs"},
    {0xF2F52010, GOOD, "f2fs"},    {0xca451a4e, GOOD, "bcachefs"},  {0x858458f6, GOOD, "ramfs"},
    {0x6969, NETWORK, "nfs"},      {0xFF534D42, NETWORK, "cifs"},   {0xFE534D42, NETWORK, "smb"},
    {0x517B, NETWORK, "smb"},      {0x01021997, NETWORK, "9p"},     {0x65735546, BAD, "fuse"},
    {0x00c36400, NETWORK, "ceph"}, {0x5346414F, NETWORK, "afs"},    {0x9fa0, BAD, "proc"},
    {0x4d44, BAD, "vfat"},         {0x2011BAB0, BAD, "exfat"},
};

static const char *kind_of(long type, int *ret_kind)
{
    *ret_kind = BAD;
    for (size_t i = 0; i < sizeof filesystems / sizeof *filesystems; i++)
        if ((unsigned long)filesystems[i].magic == (unsigned long)type) {
            *ret_kind = filesystems[i].kind;
            return filesystems[i].name;
        }
    return "unknown";
}

const char *hf__filesystem(long type, int *ret_good)
{
    const char *name = kind_of(type, ret_good);
    *ret_good = *ret_good == GOOD;
    return name;
}

int hf__file_code(int sys)
{
    return sys == EACCES || sys == EPERM || sys == EROFS            ? HF_DENIED
           : sys == ENOSPC || sys == EDQUOT || sys == EFBIG         ? HF_FULL
           : sys == ENOMEM                                          ? HF_NOMEM
           : sys == ENOTDIR || sys == EISDIR || sys == ENAMETOOLONG ? HF_INVALID
                                                                    : HF_UNAVAILABLE;
}

int hf__refuse_errno(hf_store *st, int sys, const char *what, hf_error *err)
{
    return hf_fail(err, hf__file_code(sys), sys, "file: %s '%s': %s", what, st->path,
                   strerror(sys));
}

int hf__trust_filesystem(hf_store *st, int fd, int force, hf_error *err)
{
    struct statfs fs;
    int kind;
    if (fstatfs(fd, &fs)) return hf__refuse_errno(st, errno, "open", err);
    const char *name = kind_of((long)fs.f_type, &kind);
    if (kind == GOOD || force) return 0;
    if (kind == NETWORK)
        return hf_fail(
            err, HF_UNSUPPORTED, 0,
            "file: open '%s': %s is a network filesystem: two machines have no memory in "
            "common there, and would both be granted a lock; take a store with a server",
            st->path, name);
    return hf_fail(err, HF_UNSUPPORTED, 0,
                   "file: open '%s': a filesystem of type %s (%#lx) is not known to share memory "
                   "between all its users; if it does, and only this machine mounts it, ?force=1 "
                   "opens it",
                   st->path, name, (unsigned long)fs.f_type);
}

int hf__trust(hf_store *st, int fd, const struct stat *s, int force, hf_error *err)
{
    if (!S_ISREG(s->st_mode))
        return hf_fail(err, HF_INVALID, 0, "file: open '%s': it is no regular file", st->path);
    if (s->st_uid != geteuid() && s->st_uid != 0)
        return hf_fail(err, HF_DENIED, 0,
                       "file: open '%s': it belongs to user %u, neither to this one nor to root",
                       st->path, (unsigned)s->st_uid);
    return hf__trust_filesystem(st, fd, force, err);
}

int hf__check_header(hf_store *st, int fd, const struct stat *s, hf_error *err)
{
    _Alignas(8) unsigned char page[PAGE];
    ssize_t n = pread(fd, page, sizeof page, 0);
    if (n < 0) return hf__refuse_errno(st, errno, "read", err);
    if (n < (ssize_t)sizeof page || s->st_size < (off_t)HF_AT_HEAP)
        return hf_fail(err, HF_CORRUPT, 0,
                       "file: open '%s': it has %lld bytes, less than an empty store", st->path,
                       (long long)s->st_size);
    const struct hf__static *h = (const void *)page;
    const char *wrong = hf__static_wrong(h);
    if (wrong) return hf_fail(err, HF_CORRUPT, 0, "file: open '%s': it %s", st->path, wrong);
    st->mode = h->mode;
    if (s->st_mode & 022 & ~h->mode)
        return hf_fail(err, HF_DENIED, 0,
                       "file: open '%s': others may write to it (mode %04o, made with %04o)",
                       st->path, (unsigned)s->st_mode & 07777, h->mode);
    struct hf__alloc *a = (struct hf__alloc *)(void *)(page + HF_AT_ALLOC);
    uint64_t limit = a->limit, bump = a->bump;
    const char *word = !hf__sealed(limit) ? "limit" : !hf__sealed(bump) ? "bump" : NULL;
    if (word)
        return hf_fail(err, HF_CORRUPT, 0,
                       "file: open '%s': it is damaged: the allocator's %s at offset %zu", st->path,
                       word,
                       HF_AT_ALLOC + (*word == 'l' ? offsetof(struct hf__alloc, limit)
                                                   : offsetof(struct hf__alloc, bump)));
    /* The file may have grown since *s was filled in; so if it seems too short, its size is read
       again. */
    struct stat since = *s;
    if (hf__unseal(limit) * HF_LINE > (uint64_t)since.st_size && fstat(fd, &since))
        return hf__refuse_errno(st, errno, "look at", err);
    if (hf__unseal(limit) * HF_LINE > (uint64_t)since.st_size)
        return hf_fail(err, HF_CORRUPT, 0,
                       "file: open '%s': it was truncated: it has %lld bytes of %llu", st->path,
                       (long long)since.st_size, (unsigned long long)hf__unseal(limit) * HF_LINE);
    atomic_store_explicit(&st->c.limit, hf__unseal(limit), memory_order_relaxed);
    return 0;
}
