/*
 * sqlite.c - sqlite: opens a database, and opens it again when its files have changed. See store.h.
 *
 * Contents: connecting; when the files have changed; opening; settings.
 */
#include "kit/await.h"
#include "kit/text.h"
#include "store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void sq_close(hf_store *st)
{
    hf__sq_delist(st);
    /* Closes without a checkpoint in two cases. A child of fork must not write what its parent has
       left in the log. And the pages of a removed log would overwrite what other processes have
       written since. */
    hf__sq_disconnect(st, st->pid != getpid() || (st->db && hf__sq_files_changed(st, NULL)));
    if (st->wake_fd >= 0) close(st->wake_fd);
    pthread_mutex_destroy(&st->mu);
    pthread_mutex_destroy(&st->version_mu);
    free(st);
}

/* ---- opening ---- */

static int options(hf_store *st, const hf_url *url, hf_error *err)
{
    static const char *const known[] = {"table", NULL};
    char name[64], clock[sizeof name + 6], text[96];
    if (url->host[0] || url->port || url->user[0] || url->password[0])
        return hf__sq_refuse(url->safe, HF_INVALID, 0, "a file has no host", err);
    if (hf__unknown_option(url, known, name, sizeof name)) {
        snprintf(text, sizeof text, "unknown option '%s'", name);
        return hf__sq_refuse(url->safe, HF_INVALID, 0, text, err);
    }
    int rc = hf_url_get(url, "table", name, sizeof name);
    if (rc == HF_UNSUPPORTED) snprintf(name, sizeof name, "holdfast");
    snprintf(clock, sizeof clock, "%s_clock", name);
    if (rc == HF_INVALID || strchr(name, '.') ||
        hf__quote_name(name, '"', st->table, sizeof st->table) ||
        hf__quote_name(clock, '"', st->clock, sizeof st->clock) || !strncmp(name, "sqlite_", 7))
        return hf__sq_refuse(url->safe, HF_INVALID, 0,
                             "table: not a name of 1 to 57 bytes without '.'", err);
    if (!url->path[0] || url->path[strlen(url->path) - 1] == '/')
        return hf__sq_refuse(url->safe, HF_INVALID, 0, "it names no file", err);
    snprintf(st->empty, sizeof st->empty, "DROP TABLE %s", st->table);
    /* "./" makes "file:..." a name like any other. */
    snprintf(st->path, sizeof st->path, "%s%s", url->path[0] == '/' ? "" : "./", url->path);
    return 0;
}

/* Opens the connection, and checks that the file can be a store. `name` is for messages. */
static int connect_file(hf_store *st, const char *name, int how, hf_error *err)
{
    struct stat s;
    int sq =
        sqlite3_open_v2(st->path, &st->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | how, NULL);
    if (!st->db) return hf__sq_refuse(name, HF_NOMEM, 0, "out of memory", err);
    int denied = sq && how & SQLITE_OPEN_CREATE && sqlite3_system_errno(st->db) == ENOENT
                     ? hf__sq_directory_refuses(st->path)
                     : 0;
    if (denied) return hf__sq_refuse(name, HF_DENIED, denied, strerror(denied), err);
    if (sq) return hf__sq_failed(st, sq, "open", name, HF_UNAVAILABLE, err);
    sqlite3_extended_result_codes(st->db, 1);
    hf__sq_wait_if_busy(st);
    if (sqlite3_db_readonly(st->db, "main") == 1)
        return hf__sq_refuse(name, HF_DENIED, 0,
                             "the database is read-only, and a lock has to be written", err);
    snprintf(st->path, sizeof st->path, "%s", sqlite3_db_filename(st->db, "main"));
    snprintf(st->wal_path, sizeof st->wal_path, "%s-wal", st->path);
    snprintf(st->shm_path, sizeof st->shm_path, "%s-shm", st->path);
    if (stat(st->path, &s)) return hf__sq_refuse(name, HF_UNAVAILABLE, errno, strerror(errno), err);
    if (!S_ISREG(s.st_mode))
        return hf__sq_refuse(name, HF_INVALID, 0, "it is no regular file", err);
    if (!hf__sq_is_local(st->path))
        return hf__sq_refuse(
            name, HF_UNSUPPORTED, 0,
            "its filesystem isn't known to be of this machine alone: SQLite's locks don't "
            "hold on network filesystems",
            err);
    st->dev = s.st_dev;
    st->ino = s.st_ino;
    /* A name that is made later is refused where it is opened. */
    return st->opened ? 0 : hf__sq_one_name(st->path, &s, name, err);
}

static int64_t pragma(hf_store *st, const char *name)
{
    int64_t n = -1;
    hf__sq_ask(st, "PRAGMA %s", name, &n);
    return n;
}

/* Finds out whether the database is UTF-8 (*ret). Returns 0, or a result of SQLite's. */
static int ask_utf8(hf_store *st, int *ret)
{
    sqlite3_stmt *s = NULL;
    int sq = sqlite3_prepare_v2(st->db, "PRAGMA encoding", -1, &s, NULL);
    if (!sq) sq = sqlite3_step(s);
    const char *text = sq == SQLITE_ROW ? (const char *)sqlite3_column_text(s, 0) : "";
    if (!text) sq = SQLITE_NOMEM;
    *ret = text && !strcmp(text, "UTF-8");
    sqlite3_finalize(s);
    return sq == SQLITE_ROW ? 0 : sq;
}

/* Notes the files and locks that the connection uses from now on. */
static int settle(hf_store *st, const char *what, const char *name, hf_error *err)
{
    const char *why;
    int sq, sys = hf__sq_files_settle(st, &why, &sq);
    if (!sys) return 0;
    if (sq) return hf__sq_failed(st, sq, what, name, HF_UNAVAILABLE, err);
    if (sys == ENOMEM)
        return hf_fail(err, HF_NOMEM, 0, "sqlite: %s '%s': out of memory", what, name);
    if (sys != EAGAIN && sys != EBUSY && sys != ESTALE) why = strerror(sys);
    return hf_fail(err, HF_UNAVAILABLE, sys, "sqlite: %s '%s': %s", what, name, why);
}

static int set_up(hf_store *st, const hf_url *url, hf_error *err)
{
    int64_t timens = st->boot.timens;
    /* A database that another program has made keeps its journal mode. */
    if (!st->existing && !pragma(st, "page_count"))
        sqlite3_exec(st->db, "PRAGMA journal_mode = WAL", NULL, NULL, NULL);
    int utf8, sq = ask_utf8(st, &utf8);
    if (sq) return hf__sq_failed(st, sq, "open", url->safe, HF_UNAVAILABLE, err);
    if (!utf8) return hf__sq_refuse(url->safe, HF_UNSUPPORTED, 0, "its encoding isn't UTF-8", err);
    sqlite3_exec(st->db, "PRAGMA synchronous = NORMAL", NULL, NULL, NULL);
    int64_t known = 0;
    sq = hf__sq_ask(st, "SELECT count(*) FROM %s", st->clock, &known);
    if (!sq && known) sq = hf__sq_prepare(st);
    if (sq == SQLITE_ERROR || (!sq && !known)) sq = hf__sq_make(st, 0);
    if (!sq) sq = hf__sq_ask(st, "SELECT timens FROM %s", st->clock, &timens);
    if (sq) return hf__sq_failed(st, sq, "open", url->safe, HF_UNAVAILABLE, err);
    if (timens != st->boot.timens)
        return hf__sq_refuse(
            url->safe, HF_UNSUPPORTED, 0,
            "it belongs to another time namespace, whose clock may differ; open it there, or "
            "name another file",
            err);
    return settle(st, "open", url->safe, err);
}

/* ---- when the files have changed ---- */

enum { ATTEMPTS = 3 };

static int changed(hf_store *st, int code, const char *what, const char *key, const char *why,
                   hf_error *err)
{
    char copy[300] = "";
    int found = err && hf__sq_second_copy(copy, sizeof copy);
    return hf_fail(err, code, 0, "sqlite: %s '%s': %s while '%s' was open%s%s%s: %s", what, key,
                   why, st->path, found ? " (another copy of SQLite is in this process: " : "",
                   copy, found ? ")" : "",
                   code == HF_UNKNOWN ? "it isn't known whether it was done" : "nothing was done");
}

/* Opens the database again after it was closed because its files had changed. The caller holds
   st->mu. */
static int reconnect(hf_store *st, hf_error *err)
{
    dev_t dev = st->dev;
    ino_t ino = st->ino;
    hf_low_hold();
    int sq, rc = connect_file(st, st->path, 0, err);
    if (!rc && (st->dev != dev || st->ino != ino))
        rc = hf__sq_refuse(st->path, HF_CORRUPT, 0, "it was removed or replaced while it was open",
                           err);
    st->dev = dev;
    st->ino = ino;
    if (!rc) sqlite3_exec(st->db, "PRAGMA synchronous = NORMAL", NULL, NULL, NULL);
    if (!rc && (sq = hf__sq_prepare(st)) && sq != SQLITE_ERROR)
        rc = hf__sq_failed(st, sq, "open", st->path, HF_UNAVAILABLE, err);
    if (!rc) rc = settle(st, "open", st->path, err);
    hf_low_free();
    if (rc) {
        hf__sq_drop_statements(st);
        sqlite3_close(st->db);
        st->db = NULL;
    }
    return rc;
}

/* Checks that the name still leads to the database of this store, and connects again if need be.
   Another file in its place has other rows. Uses stat, because to open and close the file would
   drop SQLite's locks. Returns 0 or an error. */
static int ready(hf_store *st, const char *what, const char *key, hf_error *err)
{
    struct stat s;
    int rc = stat(st->path, &s);
    if (rc && errno != ENOENT && errno != ENOTDIR)
        return hf_fail(err, HF_UNAVAILABLE, errno, "sqlite: %s '%s': can't look at '%s': %s", what,
                       key, st->path, strerror(errno));
    if (rc || s.st_dev != st->dev || s.st_ino != st->ino)
        return hf_fail(err, HF_CORRUPT, 0,
                       "sqlite: %s '%s': '%s' was removed or replaced while it was open", what, key,
                       st->path);
    return st->db ? 0 : reconnect(st, err);
}

int hf__sq_attempt(hf_store *st, const char *what, const char *key, hf__sq_op *op, void *arg,
                   hf_error *err)
{
    for (int i = 1;; i++) {
        const char *why = NULL, *unsettled;
        int code = 0, lasts = 1, sq;
        pthread_mutex_lock(&st->mu);
        int rc = ready(st, what, key, err);
        if (!rc) {
            rc = op(st, arg, &code, err);
            why = hf__sq_files_changed(st, &st->names_seen);
            if (why && !hf__sq_files_wait(st, why))
                lasts = !hf__sq_files_settle(st, &unsettled, &sq);
        }
        pthread_mutex_unlock(&st->mu);
        if (!why) return rc;
        if (!lasts) hf__sq_close_all(st);
        if (code || i == ATTEMPTS)
            return changed(st, code ? code : HF_UNAVAILABLE, what, key, why, err);
    }
}

/* ---- opened and closed ---- */

static int sq_open(const hf_url *url, int64_t io_timeout_ms, hf_store **ret, hf_caps *caps,
                   hf_error *err)
{
    (void)caps;
    hf_store *st = calloc(1, sizeof *st);
    if (!st) return hf__sq_refuse(url->safe, HF_NOMEM, 0, "out of memory", err);
    pthread_mutex_init(&st->mu, NULL);
    pthread_mutex_init(&st->version_mu, NULL);
    st->io_timeout_ms = io_timeout_ms > INT32_MAX ? INT32_MAX : io_timeout_ms;
    st->existing = url->existing;
    st->wake_fd = hf__wake_fd();
    int sys = errno;
    hf__sq_enlist(st);
    st->if_busy = SQ_MAKES_WAY;
    int rc = options(st, url, err);
    if (!rc && st->wake_fd < 0)
        rc = hf__sq_refuse(url->safe, HF_UNAVAILABLE, sys, strerror(sys), err);
    if (!rc && !sqlite3_threadsafe())
        rc = hf__sq_refuse(url->safe, HF_UNSUPPORTED, 0, "this SQLite was built without threads",
                           err);
    if (!rc) rc = hf__sq_find_boot(st, url, err);
    pthread_mutex_lock(&st->mu);
    /* SQLite doesn't keep a descriptor below 3, but it opens the file there first, and another
       thread may print into it meanwhile. */
    hf_low_hold();
    struct stat s;
    int none = st->existing && !rc && stat(st->path, &s) && errno == ENOENT;
    if (none)
        rc = hf_fail(err, HF_UNAVAILABLE, ENOENT,
                     "no store at '%s': there is no such file; the first lock makes it", url->safe);
    if (!rc) rc = connect_file(st, url->safe, st->existing ? 0 : SQLITE_OPEN_CREATE, err);
    if (!rc) rc = set_up(st, url, err);
    if (rc && st->gone)
        hf_fail(err, rc, ENOENT,
                "no store at '%s': the database has no table %s; the first lock makes it",
                url->safe, st->table);
    hf_low_free();
    pthread_mutex_unlock(&st->mu);
    if (rc) {
        sq_close(st);
        return rc;
    }
    st->opened = 1;
    st->if_busy = SQ_RETRIES;
    *ret = st;
    return 0;
}

/* ---- settings ---- */

static int sq_warning(hf_store *st, char *to, size_t cap)
{
    char copy[300];
    (void)st;
    if (!hf__sq_second_copy(copy, sizeof copy)) return 0;
    snprintf(to, cap,
             "this process has a second copy of SQLite (%s): it must not open the same database",
             copy);
    return 1;
}

static int sq_inspect(hf_store *st, void (*say)(void *arg, int ok, const char *text), void *arg,
                      hf_error *err)
{
    char text[sizeof st->path + 200], copy[400];
    int64_t flaws = 0;
    (void)err;
    pthread_mutex_lock(&st->mu);
    int sq = hf__sq_ask(st, "SELECT count(*) FROM pragma_quick_check(%s) WHERE quick_check != 'ok'",
                        st->table, &flaws);
    pthread_mutex_unlock(&st->mu);
    snprintf(text, sizeof text, "the locks are in the table %s of %s", st->table, st->path);
    say(arg, 1, text);
    snprintf(text, sizeof text, "SQLite %s, with threads", sqlite3_libversion());
    say(arg, 1, text);
    say(arg, 1, "the file is on a local filesystem");
    if (sq_warning(st, copy, sizeof copy)) {
        snprintf(text, sizeof text, "warning: %s", copy);
        say(arg, 1, text);
    }
    snprintf(text, sizeof text, "the tables are %s",
             sq      ? "damaged, or can't be read"
             : flaws ? "damaged: PRAGMA quick_check finds flaws"
                     : "sound");
    say(arg, !sq && !flaws, text);
    return 0;
}

HF_DRIVER_ENTRY(sqlite) = {
    .abi = HF_DRIVER_ABI,
    .name = "sqlite",
    .about = "a table in an SQLite database on this machine",
    .caps = {.queue_cap = 4096,
             .holders_cap = 1024,
             .threads = 1,
             .queues = 1,
             .notify = &hf__sq_notify},
    .open = sq_open,
    .close = sq_close,
    .get = hf__sq_get,
    .replace = hf__sq_replace,
    .acquire = hf__sq_acquire,
    .enter = hf__sq_enter,
    .sync = hf__sq_sync,
    .scan = hf__sq_scan,
    .inspect = sq_inspect,
    .resolve = hf__sq_resolve,
    .scratch = hf__sq_scratch,
    .discard = hf__sq_discard,
    .warning = sq_warning,
};
