/*
 * place.c - sqlite: where a store can be (the file's path, its directory, its filesystem), and the
 * boot whose clock it uses.
 */
#include "os.h"
#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

int hf__sq_refuse(const char *name, int code, int sys, const char *why, hf_error *err)
{
    return hf_fail(err, code, sys, "sqlite: open '%s': %s", name, why);
}

int hf__sq_resolve(hf_url *url, hf_error *err)
{
    char path[sizeof url->path], here[sizeof url->path];
    if (!url->path[0] || url->path[0] == '/') return 0;
    /* For SQLite itself these are databases in memory; here each would be a file of that name. */
    if (!strcmp(url->path, ":memory:") || !strcmp(url->path, "file::memory:"))
        return hf__sq_refuse(url->safe, HF_INVALID, 0,
                             "a database in memory belongs to one connection, so it can't hold "
                             "locks; write mem: for the threads of one process, or name a file",
                             err);
    if (!getcwd(here, sizeof here)) {
        if (errno == ERANGE)
            return hf__sq_refuse(url->safe, HF_INVALID, 0, "the path is too long", err);
        return hf__sq_refuse(url->safe, HF_UNAVAILABLE, errno, strerror(errno), err);
    }
    int n = snprintf(path, sizeof path, "%s/%s", strcmp(here, "/") ? here : "", url->path);
    if (n >= (int)sizeof path)
        return hf__sq_refuse(url->safe, HF_INVALID, 0, "the path is too long", err);
    return hf_url_set_path(url, path, err);
}

/* Returns 1 if the errno says that the process or the machine has too little left; a later attempt
   may succeed. */
static int is_shortage(int sys) { return sys == EMFILE || sys == ENFILE || sys == ENOMEM; }

static const char BOOT_ID[] = "/proc/sys/kernel/random/boot_id";

/* Reads the id of this boot, and its time namespace. Returns 0 or an errno. */
static int boot_here(struct hf__sq_boot *ret)
{
    char text[64];
    FILE *f = hf__fopen(BOOT_ID);
    if (!f) return errno;
    int good = fgets(ret->id, sizeof ret->id, f) != NULL;
    fclose(f);
    if (!good) return EIO;
    ret->id[strcspn(ret->id, "\n")] = 0;
    ssize_t n = readlink("/proc/self/ns/time", text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0; /* n < 0: an older kernel, with one time namespace for all */
    const char *number = strchr(text, '[');
    ret->timens = number ? strtoll(number + 1, NULL, 10) : 0;
    return ret->id[0] ? 0 : EIO;
}

int hf__sq_find_boot(hf_store *st, const hf_url *url, hf_error *err)
{
    int sys = boot_here(&st->boot);
    if (is_shortage(sys)) return hf__sq_refuse(url->safe, HF_UNAVAILABLE, sys, strerror(sys), err);
    if (!sys) return 0;
    return hf_fail(err, HF_UNSUPPORTED, sys,
                   "sqlite: open '%s': can't tell this boot from the last one: %s: %s", url->safe,
                   BOOT_ID, strerror(sys));
}

int hf__sq_is_local(const char *path)
{
    static const unsigned long good[] = {
        0xEF53 /* ext */,       0x58465342 /* xfs */,   0x9123683E /* btrfs */,
        0x01021994 /* tmpfs */, 0x858458f6 /* ramfs */, 0x794c7630 /* overlayfs */,
        0x2fc12fc1 /* zfs */,   0xF2F52010 /* f2fs */,  0xca451a4e /* bcachefs */,
        0x4d44 /* vfat */,      0x2011BAB0 /* exfat */,
    };
    struct statfs fs;
    if (statfs(path, &fs)) return 0;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if ((unsigned long)fs.f_type == good[i]) return 1;
    return 0;
}

/* Finds the number of the mount that a name is in; -1: not known. Returns 0, or the errno of a
   shortage. The descriptor is no open file: closing it drops no lock. */
static int mount_of(const char *path, long *ret)
{
    char name[40], line[100];
    *ret = -1;
    int fd = hf__open(path, O_PATH, 0);
    if (fd < 0) return is_shortage(errno) ? errno : 0;
    snprintf(name, sizeof name, "/proc/self/fdinfo/%d", fd);
    FILE *f = hf__fopen(name);
    int sys = f ? 0 : errno;
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "mnt_id:", 7)) *ret = strtol(line + 7, NULL, 10);
    if (f) fclose(f);
    close(fd);
    return is_shortage(sys) ? sys : 0;
}

int hf__sq_one_name(const char *path, const struct stat *s, const char *name, hf_error *err)
{
    char dir[SQ_PATH_CAP];
    const char *slash = strrchr(path, '/');
    snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    long of_file, of_dir = -1;
    int sys = mount_of(path, &of_file);
    if (!sys) sys = mount_of(dir, &of_dir);
    if (s->st_nlink > 1)
        return hf_fail(err, HF_UNSUPPORTED, 0,
                       "sqlite: open '%s': the file has %lu names (hard links), and SQLite's -wal "
                       "and -shm stand beside each: one key could have two holders; remove the "
                       "other names (find / -xdev -samefile %s)",
                       name, (unsigned long)s->st_nlink, path);
    if (sys)
        return hf_fail(err, HF_UNAVAILABLE, sys,
                       "sqlite: open '%s': can't find which mount it is in: %s", name,
                       strerror(sys));
    if (of_file >= 0 && of_dir >= 0 && of_file != of_dir)
        return hf__sq_refuse(name, HF_UNSUPPORTED, 0,
                             "the file is a mount of its own, and SQLite's -wal and -shm don't "
                             "stand beside the mounted one: one key could have two holders; mount "
                             "its directory instead",
                             err);
    return 0;
}

int hf__sq_directory_refuses(const char *path)
{
    char dir[4096];
    const char *slash = strrchr(path, '/');
    int n =
        snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    if (n >= (int)sizeof dir || !faccessat(AT_FDCWD, dir, W_OK | X_OK, AT_EACCESS)) return 0;
    return errno == EACCES || errno == EROFS ? errno : 0;
}
