/*
 * file.c - the `file:` driver: its table of operations, URLs, open and close, sync, inspect.
 *
 * A store is one file, mapped by every process that uses it. The state is in shared memory; system
 * calls only sleep, wake, and ask whether a process lives. layout.h has the format, shared.h the
 * rules, seam.h the accesses, lock.c the lock words, cell.c the space, rows.c and acquire.c the
 * operations, sync.c what goes to disk, session.c liveness, recover.c reboots, map.c the file
 * itself, system.c the system calls. doc/internals/file.md says why.
 */
#include "store.h"

#include "drivers.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

void hf__break(struct hf__client *c, int code, const char *why)
{
    int sound = 0;
    atomic_store_explicit(&c->broken_why, why, memory_order_release);
    /* Only the first reason is kept. Release order publishes the text. */
    atomic_compare_exchange_strong_explicit(&c->broken, &sound, code, memory_order_acq_rel,
                                            memory_order_acquire);
}

/* Marks the store as broken after a failed sync. Linux marks pages clean whose writing failed, so a
   second fdatasync that succeeds proves nothing. */
int hf__sync_failed(const struct hf__op *op, int sys)
{
    hf__break(op->c, HF_UNAVAILABLE, "could not be written to the disk");
    return hf_fail(op->err, HF_UNAVAILABLE, sys, "file: sync '%s': %s", op->c->path, strerror(sys));
}

/* ---- URLs ---- */

static int options(hf_store *st, const hf_url *url, int *ret_force, hf_error *err)
{
    char value[16], *end;
    st->mode = 0600;
    *ret_force = 0;
    if (url->host[0] || url->port || url->user[0])
        return hf_fail(err, HF_INVALID, 0, "file: open '%s': a file has no host", url->safe);
    for (const char *p = url->query; *p;) {
        size_t n = strcspn(p, "&"), name = strcspn(p, "=&");
        if (!(name == 4 && !memcmp(p, "mode", 4)) && !(name == 5 && !memcmp(p, "force", 5)))
            return hf_fail(err, HF_INVALID, 0, "file: open '%s': unknown option '%.*s'", url->safe,
                           (int)name, p);
        p += n + (p[n] == '&');
    }
    int rc = hf_url_get(url, "mode", value, sizeof value);
    if (!rc) {
        unsigned long mode = strtoul(value, &end, 8);
        if (*end || end == value || mode > 0777 || (mode & 0600) != 0600 || mode & 0111)
            return hf_fail(err, HF_INVALID, 0,
                           "file: open '%s': mode '%s' is not one like 0600 or 0660", url->safe,
                           value);
        st->mode = (unsigned)mode;
    }
    if (rc == HF_INVALID)
        return hf_fail(err, rc, 0, "file: open '%s': mode: too long, or given twice", url->safe);
    rc = hf_url_get(url, "force", value, sizeof value);
    if (!rc) {
        if (value[1] || (value[0] != '0' && value[0] != '1'))
            return hf_fail(err, HF_INVALID, 0, "file: open '%s': force is 0 or 1", url->safe);
        *ret_force = value[0] == '1';
    }
    if (rc == HF_INVALID)
        return hf_fail(err, rc, 0, "file: open '%s': force: too long, or given twice", url->safe);
    return 0;
}

/* Makes the path of a URL absolute, or the default path if it has none. */
static int resolve(hf_url *url, hf_error *err)
{
    char path[HF_FILE_PATH_CAP], here[HF_FILE_PATH_CAP];
    int n = 0;
    if (url->host[0] || url->path[0] == '/') return 0;
    if (!url->path[0]) {
        size_t exists;
        int rc = hf__default_path(path, sizeof path, &exists, err);
        return rc ? rc : hf_url_set_path(url, path, err);
    }
    if (!getcwd(here, sizeof here))
        return hf_fail(err, errno == ERANGE ? HF_INVALID : HF_UNAVAILABLE, errno,
                       "file: open '%s': no working directory: %s", url->safe, strerror(errno));
    n = snprintf(path, sizeof path, "%s/%s", strcmp(here, "/") ? here : "", url->path);
    if (n >= (int)sizeof path)
        return hf_fail(err, HF_INVALID, 0, "file: open '%s': the path is too long", url->safe);
    return hf_url_set_path(url, path, err);
}

/* Makes the URL's path absolute. The core has called `resolve` before; a caller that opens the
   driver without the core hasn't. */
static int find_path(hf_store *st, const hf_url *url, hf_error *err)
{
    hf_url absolute = *url;
    int rc = resolve(&absolute, err);
    if (!rc) snprintf(st->path, sizeof st->path, "%s", absolute.path);
    return rc;
}

/* ---- open, close ---- */

static hf_store *new_store(void)
{
    hf_store *st = calloc(1, sizeof *st);
    if (!st) return NULL;
    st->c.fd = st->c.session_fd = st->death_fd = -1;
    st->c.path = st->path;
    pthread_mutex_init(&st->mu, NULL);
    pthread_mutex_init(&st->c.grow_mu, NULL);
    return st;
}

static void close_store(hf_store *st)
{
    if (!st) return;
    hf__fork_forget(st);
    hf__unmap(st);
    if (st->death_fd >= 0) close(st->death_fd);
    pthread_mutex_destroy(&st->mu);
    pthread_mutex_destroy(&st->c.grow_mu);
    free((void *)st->c.hints);
    free(st);
}

static int open_store(const hf_url *url, int64_t io_timeout_ms, hf_store **ret, hf_caps *caps,
                      hf_error *err)
{
    (void)caps;
    int force, rc;
    hf_store *st = new_store();
    if (!st) return hf_fail(err, HF_NOMEM, 0, "file: open '%s': out of memory", url->safe);
#ifdef HF_SEAM
    st->c.env = &hf__file_env_os;
#endif
    hf__fork_watch(st);
    rc = options(st, url, &force, err);
    if (!rc) rc = find_path(st, url, err);
    if (!rc) rc = hf__map(st, force, url->existing, io_timeout_ms, err);
    if (rc) {
        close_store(st);
        return rc;
    }
    atomic_store_explicit(&st->c.look_at_us, HF_NOW(&st->c) + st->c.offset_us + HF_LOOK_US,
                          memory_order_relaxed);
    *ret = st;
    return 0;
}

#ifdef HF_SEAM
int hf__file_attach(void *base, uint64_t lines, const struct hf__file_env *env, void *env_arg,
                    hf_store **ret, hf_error *err)
{
    struct hf__boot boot;
    hf_store *st = new_store();
    if (!st) return hf_fail(err, HF_NOMEM, 0, "file: attach: out of memory");
    struct hf__client *c = &st->c;
    const struct hf__op op = {c, "open", NULL, err};
    st->attached = 1;
    snprintf(st->path, sizeof st->path, "(attached)");
    c->base = base;
    c->lines = lines;
    c->env = env;
    c->env_arg = env_arg;
    c->io_timeout_us = 5000000;
    atomic_store_explicit(&c->look_at_us, INT64_MAX, memory_order_relaxed); /* no file to check */
    uint64_t limit = HF_LOAD("attach.limit", &HF_ALLOC(c)->limit);
    atomic_store_explicit(&c->limit, hf__unseal(limit), memory_order_relaxed);
    int rc = hf__boot_read(&op, &boot);
    c->offset_us = boot.offset_us;
    if (!rc) rc = hf__session_open(&op);
    if (rc) {
        close_store(st);
        return rc;
    }
    *ret = st;
    return 0;
}
#endif

/* ---- time, disk ---- */

static int64_t now(hf_store *st)
{
    struct hf__client *c = hf__client_of(st);
    int64_t clock_us = HF_NOW(c) + c->offset_us;
    hf__look_sometimes(c, clock_us);
    return clock_us;
}

static int sync_store(hf_store *st, const hf_rowkey *key, hf_error *err)
{
    struct hf__client *c = hf__client_of(st);
    const struct hf__op op = {c, "sync", key, err};
    const char *why;
    int rc = hf__broken(&op);
    if (rc) return rc;
    rc = hf__sync_key(&op);
    if (rc) return rc;
    /* If the path leads to another file by now, the marker is lost: no client will open the old
       file again. */
    if (HF_ENV(c, same_file)(c, &why)) hf__break(c, HF_CORRUPT, why);
    return hf__broken(&op);
}

/* ---- doctor ---- */

struct report {
    void (*say)(void *arg, int ok, const char *text);
    void *arg;
};

__attribute__((format(printf, 3, 4))) static void tell(const struct report *r, int ok,
                                                       const char *format, ...)
{
    char text[HF_FILE_PATH_CAP + 200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    r->say(r->arg, ok, text);
}

static void tell_sessions(const struct report *r, struct hf__client *c)
{
    unsigned alive = 0, damaged = 0;
    for (uint32_t i = 0; i < HF_FILE_SLOTS; i++) {
        if (!hf__sealed(HF_LOAD("inspect.slot", &hf__slot_at(c, i)->generation)))
            damaged++;
        else if (i == (c->session & 0xffff) || HF_PROBE("inspect", c, HF_BYTE_SESSION + i) > 0)
            alive++;
    }
    tell(r, alive < HF_FILE_SLOTS, "%u of %u sessions alive, this one included%s", alive,
         HF_FILE_SLOTS, alive < HF_FILE_SLOTS ? "" : ": there is room for no other");
    if (damaged) tell(r, 0, "%u session slots are damaged and passed over", damaged);
}

static int inspect(hf_store *st, void (*say)(void *arg, int ok, const char *text), void *arg,
                   hf_error *err)
{
    struct hf__client *c = hf__client_of(st);
    const struct hf__op op = {c, "inspect", NULL, err};
    const struct report r = {say, arg};
    struct statfs fs;
    struct stat s;
    const char *why;
    int good, rc = hf__broken(&op);
    if (rc) return rc;
    if (fstat(c->fd, &s) || fstatfs(c->fd, &fs))
        return hf_fail(err, HF_UNAVAILABLE, errno, "file: inspect '%s': %s", st->path,
                       strerror(errno));
    const char *name = hf__filesystem((long)fs.f_type, &good);
    tell(&r, good, "%s on %s%s", st->path, name,
         good ? "" : ": memory may not be shared between all its users");
    if (!strcmp(name, "tmpfs") || !strcmp(name, "ramfs"))
        tell(&r, 1, "on %s a reboot loses everything, done markers too", name);
    if (!strcmp(name, "btrfs") || !strcmp(name, "zfs") || !strcmp(name, "bcachefs"))
        tell(&r, 1, "on %s a full disk can end a process by SIGBUS: copies are made on write",
             name);
    int open_to = (s.st_mode & 022 & ~st->mode) != 0;
    tell(&r, !open_to, "mode %04o, owner %u%s", (unsigned)s.st_mode & 07777, (unsigned)s.st_uid,
         open_to ? ": others may write it" : "");
    uint64_t bump = HF_LOAD("inspect.bump", &HF_ALLOC(c)->bump);
    if (hf__sealed(bump))
        tell(&r, 1, "%llu of %lld bytes used", (unsigned long long)hf__unseal(bump) * HF_LINE,
             (long long)s.st_size);
    else
        tell(&r, 0, "how much of it is used cannot be told: that word is damaged");
    tell_sessions(&r, c);
    tell(&r, hf__file_death_fd(st) >= 0, "inotify %s",
         hf__file_death_fd(st) >= 0 ? "tells of deaths at once"
                                    : "is not available (limit?): deaths are noticed by polling");
    if (HF_ENV(c, same_file)(c, &why)) tell(&r, 0, "the file %s", why);
    return 0;
}

static const hf_local_ops local = {.now = now,
                                   .update = hf__rows_update,
                                   .wakeup_begin = hf__file_wakeup_begin,
                                   .sleep = hf__file_sleep,
                                   .interrupt = hf__file_interrupt,
                                   .next_event = hf__file_next_event};

static const hf_liveness_ops liveness = {.session = hf__file_session,
                                         .session_fd = hf__file_session_fd,
                                         .alive = hf__file_alive,
                                         .death_fd = hf__file_death_fd,
                                         .death_read = hf__file_death_read};

const hf_driver hf__file_driver = {
    .abi = HF_DRIVER_ABI,
    .name = "file",
    .about = "one file on a local filesystem, shared by the processes of one machine",
    .caps = {.queue_cap = HF_PARTIES_CAP,
             .holders_cap = HF_PARTIES_CAP,
             .threads = 1,
             .queues = 1,
             .local = &local,
             .liveness = &liveness},
    .open = open_store,
    .close = close_store,
    .get = hf__rows_get,
    .replace = hf__rows_replace,
    .acquire = hf__rows_acquire,
    .sync = sync_store,
    .scan = hf__rows_scan,
    .inspect = inspect,
    .resolve = resolve,
    .scratch = hf__file_scratch,
    .discard = hf__file_discard,
};
