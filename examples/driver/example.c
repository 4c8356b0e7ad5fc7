/*
 * example.c - a whole store in one file: rows as files in a directory of this machine.
 *
 *     holdfast -S example:/var/lib/locks run backup -- backup.sh
 *
 * It is an example to learn from; doc/adding-a-driver.md leads through it. It has the five required
 * operations and nothing else. The library polls for its waiters, serializes the calls of each
 * handle, and makes all decisions.
 *
 * What is stored. A file HASH.json for each hash of a key: a JSON object with a member for each key
 * of that hash, which is nearly always one. The key is the member's name, so any key fits, however
 * long, and two keys of one hash are apart. The member's value is the row (doc/row.md).
 *
 * How a write is safe. A writer has an flock(2) of the directory while it reads the file, compares
 * `rev` and replaces the file by rename(2). The kernel drops the lock when the process dies. A
 * reader needs no lock: it sees the file before the rename or after it, never half of one.
 *
 * What survives. A process may be killed at any moment: the row is the old one or the new one. The
 * file is on disk before it is renamed, so that a power cut leaves an old row or a new one, too.
 * The rename itself is not awaited: the last seconds of writes may be gone. No holder survives a
 * power cut, so no lock is held twice for that; but the mark of an event (`once`) may be lost.
 *
 * Nobody may remove the directory while it is in use.
 *
 * The clock is this machine's time of day. If it is set forward, leases end early; if it is set
 * back, they end late.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <holdfast/kit/document.h>
#include <holdfast/kit/json.h>
#include <holdfast/kit/os.h>
#include <holdfast/kit/text.h>
#include <holdfast_driver.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

/* The file that is written and then renamed. Only the holder of the flock touches it. */
#define NEW_FILE "new"

struct hf_store {
    int dir;               /* the directory, open */
    int64_t io_timeout_us; /* how long one operation may wait for the flock */
};

/* ---- small parts ---- */

/* Fills the error of an operation from errno, and returns the code that errno means. */
static int failed(const char *what, const char *key, hf_error *err)
{
    int sys = errno, code = HF_UNAVAILABLE; /* it may work later */
    if (sys == EACCES || sys == EPERM || sys == EROFS) code = HF_DENIED;
    if (sys == ENOSPC || sys == EDQUOT) code = HF_FULL;
    if (sys == ENOMEM) code = HF_NOMEM;
    return hf_fail(err, code, sys, "example: %s '%s': %s", what, key, strerror(sys));
}

static int no_memory(const char *what, const char *key, hf_error *err)
{
    errno = ENOMEM;
    return failed(what, key, err);
}

/* Returns what the kit's messages about a row have to name. */
static struct hf__row_reader reader(const char *what, const char *key)
{
    return (struct hf__row_reader){"example", what, key, "rm *.json in its directory"};
}

/* ---- the lock of the directory ---- */

/* Waits for the flock. The wait has a limit, because a process may be stopped while it has it;
   flock(2) knows no limit, so this tries again each millisecond. */
static int lock(hf_store *st, const char *what, const char *key, hf_error *err)
{
    int64_t until_us = hf__local_us() + st->io_timeout_us;
    while (flock(st->dir, LOCK_EX | LOCK_NB)) {
        if (errno != EWOULDBLOCK && errno != EINTR) return failed(what, key, err);
        if (hf__local_us() >= until_us)
            return hf_fail(err, HF_UNAVAILABLE, 0,
                           "example: %s '%s': another process has kept the directory locked", what,
                           key);
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    return 0;
}

/* ---- one file ---- */

enum { NAME_CAP = 32 };

static void name_of(const hf_rowkey *key, char to[NAME_CAP])
{
    snprintf(to, NAME_CAP, "%016llx.json", (unsigned long long)key->hash);
}

/* Reads the rows of a file: *ret is a new JSON object, empty if there is no such file. */
static int load(hf_store *st, const char *file, const char *what, const char *key, json_t **ret,
                hf_error *err)
{
    errno = hf__json_load(st->dir, file, ret);
    if (errno == ENOENT && (*ret = json_object())) return 0;
    if (errno == EBADMSG || (!errno && !json_is_object(*ret)))
        return hf_fail(err, HF_CORRUPT, 0, "example: %s '%s': %s is no object", what, key, file);
    return errno ? failed(what, key, err) : 0;
}

/* Writes NEW_FILE, to the disk. Returns 0, or -1 and errno. */
static int write_new(hf_store *st, const char *text)
{
    int fd = hf__open_at(st->dir, NEW_FILE, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0) return -1;
    for (ssize_t n = 0; *text; text += n > 0 ? n : 0) {
        n = write(fd, text, strlen(text));
        if (n < 0 && errno != EINTR) break;
    }
    int bad = *text || fsync(fd), sys = errno;
    close(fd);
    errno = sys;
    return bad ? -1 : 0;
}

/* Replaces the rows of a file. It is removed if there are none. */
static int save(hf_store *st, const char *file, const char *key, const json_t *rows, hf_error *err)
{
    int some = json_object_size(rows) > 0;
    char *text = some ? hf__json_text(rows) : NULL;
    if (some && !text) return no_memory("replace", key, err);
    int bad = some && write_new(st, text);
    free(text);
    if (bad) return failed("replace", key, err); /* only NEW_FILE has changed */
    bad = some ? renameat(st->dir, NEW_FILE, st->dir, file) : unlinkat(st->dir, file, 0);
    if (!bad || (!some && errno == ENOENT)) return 0;
    if (errno != EIO) return failed("replace", key, err);
    return hf_fail(err, HF_UNKNOWN, EIO, "example: replace '%s': stored or not: disk error", key);
}

/* ---- the five operations ---- */

static int ex_open(const hf_url *url, int64_t io_timeout_ms, hf_store **ret, hf_caps *caps,
                   hf_error *err)
{
    static const char *const options[] = {NULL}; /* it has none */
    char name[64];
    struct statfs fs;
    const char *why = NULL;
    (void)caps; /* what a store can do doesn't depend on its URL */
    if (hf__unknown_option(url, options, name, sizeof name)) why = "it has no options";
    if (*url->host || *url->user || *url->path != '/') why = "not the whole path of a directory";
    if (why) return hf_fail(err, HF_INVALID, 0, "example: open '%s': %s", url->safe, why);
    if (!url->existing && mkdir(url->path, 0777) && errno != EEXIST)
        return failed("open", url->safe, err);
    int dir = hf__open(url->path, O_RDONLY | O_DIRECTORY, 0);
    if (dir < 0 && errno == ENOENT)
        return hf_fail(err, HF_UNAVAILABLE, ENOENT, "example: open: no store at '%s'", url->safe);
    if (dir < 0) return failed("open", url->safe, err);
    hf_store *st = calloc(1, sizeof *st);
    int rc = st && !fstatfs(dir, &fs) ? 0 : failed("open", url->safe, err);
    if (!rc && fs.f_type == NFS_SUPER_MAGIC) /* each machine would have its own clock */
        rc = hf_fail(err, HF_UNSUPPORTED, 0, "example: open '%s': network filesystem", url->safe);
    if (rc) {
        close(dir);
        free(st);
        return rc;
    }
    st->dir = dir;
    st->io_timeout_us = io_timeout_ms * 1000;
    *ret = st;
    return 0;
}

static void ex_close(hf_store *st)
{
    close(st->dir);
    free(st);
}

static int ex_get(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
                  hf_error *err)
{
    struct hf__row_reader where = reader("get", key->text);
    char file[NAME_CAP];
    json_t *rows;
    name_of(key, file);
    int rc = load(st, file, "get", key->text, &rows, err);
    if (!rc) rc = hf__row_from_document(json_object_get(rows, key->text), &where, row, err);
    json_decref(rows);
    *ret_clock_us = hf__day_us();
    return rc;
}

/* The part of ex_replace that is done under the flock. */
static int compare_and_write(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                             hf_row *now, hf_error *err)
{
    struct hf__row_reader where = reader("replace", key->text);
    char file[NAME_CAP];
    json_t *rows, *document = NULL;
    name_of(key, file);
    int rc = load(st, file, "replace", key->text, &rows, err);
    if (!rc) rc = hf__row_from_document(json_object_get(rows, key->text), &where, now, err);
    if (!rc && now->rev != seen) rc = HF_CONFLICT;
    if (!rc && row) rc = hf__row_to_document(row, &where, &document, err);
    if (!rc && row && json_object_set_new(rows, key->text, document))
        rc = no_memory("replace", key->text, err);
    if (!rc && !row) json_object_del(rows, key->text);
    if (!rc) rc = save(st, file, key->text, rows, err);
    json_decref(rows);
    return rc;
}

static int ex_replace(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                      hf_row *cur, int64_t *ret_clock_us, hf_error *err)
{
    hf_row now;
    int rc = lock(st, "replace", key->text, err);
    if (rc) return rc; /* nothing was done */
    hf_row_init(&now);
    rc = compare_and_write(st, key, seen, row, &now, err);
    *ret_clock_us = hf__day_us();
    flock(st->dir, LOCK_UN);
    if (rc == HF_CONFLICT && cur && hf_row_copy(cur, &now))
        rc = no_memory("replace", key->text, err);
    hf_row_clear(&now);
    return rc;
}

/* Shows the rows of one file. Returns 0; 1: `see` has had enough; or an error. */
static int show(hf_store *st, const char *file, const char *prefix,
                int (*see)(void *arg, const hf_rowkey *, hf_row *), void *arg, hf_error *err)
{
    json_t *rows, *document;
    const char *name;
    hf_row row;
    int rc = load(st, file, "scan", prefix, &rows, err);
    hf_row_init(&row);
    json_object_foreach(rows, name, document)
    {
        if (rc || strncmp(name, prefix, strlen(prefix)) != 0) continue;
        struct hf__row_reader where = reader("scan", name);
        hf_rowkey key = {.text = name, .len = (uint32_t)strlen(name)};
        key.hash = hf_key_hash(key.text, key.len);
        rc = hf__row_from_document(document, &where, &row, err);
        if (!rc || rc == HF_CORRUPT) rc = see(arg, &key, rc ? NULL : &row) != 0; /* NULL: damaged */
    }
    hf_row_clear(&row);
    json_decref(rows);
    return rc;
}

/* Holds the flock: while another process renames a file, readdir may miss that file. */
static int ex_scan(hf_store *st, const char *prefix,
                   int (*see)(void *arg, const hf_rowkey *, hf_row *), void *arg,
                   int64_t *ret_clock_us, hf_error *err)
{
    int rc = lock(st, "scan", prefix, err);
    if (rc) return rc;
    int fd = hf__open_at(st->dir, ".", O_RDONLY | O_DIRECTORY, 0);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    if (!list) rc = failed("scan", prefix, err);
    if (!list && fd >= 0) close(fd);
    for (struct dirent *entry; !rc && (entry = readdir(list));)
        if (strstr(entry->d_name, ".json")) rc = show(st, entry->d_name, prefix, see, arg, err);
    if (list) closedir(list);
    *ret_clock_us = hf__day_us();
    flock(st->dir, LOCK_UN);
    return rc > 0 ? 0 : rc;
}

HF_DRIVER_ENTRY(example) = {
    .abi = HF_DRIVER_ABI,
    .name = "example",
    .about = "rows as files in a directory on this machine (an example)",
    .caps = {.queue_cap = 1024, .holders_cap = 256, .queues = 1},
    .open = ex_open,
    .close = ex_close,
    .get = ex_get,
    .replace = ex_replace,
    .scan = ex_scan,
};
