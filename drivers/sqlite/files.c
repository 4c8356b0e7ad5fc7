/*
 * files.c - sqlite: checks that the files and locks are still those the connection began with.
 *
 * The kernel drops every POSIX lock that a process has on a file when the process closes any
 * descriptor of that file. One copy of SQLite avoids that among its own connections. A second copy
 * in the process (another library's own), or a program that copies the database, does not avoid it.
 * Other processes may then remove -wal and -shm, and this process would go on in removed files.
 *
 * A request whose answer depends on the database is checked once, after its last statement and
 * before its answer is used. In WAL mode one check after the statements is enough, because each
 * fault that may have happened during them still shows then:
 *   - The process holds a lock of its own, the witness, on a byte of the database and on a byte of
 *     -shm that no other process uses. A close that drops SQLite's locks on a file drops the
 *     witness, too. Only settling takes the witness again, and it counts that in `lost` first. So
 *     if the witness stands and `lost` is unchanged, the locks have stood since the request began.
 *     (F_OFD_GETLK shows the POSIX locks of the process that asks, F_GETLK doesn't.)
 *   - While SQLite's SHARED lock on the database stands, no other process removes -wal or -shm,
 *     changes the journal mode, or works on -wal without -shm: each needs EXCLUSIVE first. A second
 *     copy in this process gets EXCLUSIVE all the same, because locks of one process don't exclude
 *     each other: its lock replaces SHARED. When that copy closes the database, it copies -wal into
 *     the database and removes -wal; what is committed between the two is lost. So a request whose
 *     check finds a write lock on SHARED's bytes isn't answered either. If the copy takes EXCLUSIVE
 *     after the check, it copies what the request committed, too. If it has given EXCLUSIVE back
 *     before the check, that has dropped the witness.
 *   - The three files are looked up by name. Against SQLite the locks suffice; this finds changes
 *     that obey no lock (rm, mv, a restored backup). No check makes those safe; this one notices
 *     them in the next request at the latest. The names of -wal and -shm are looked up only if the
 *     change time of their directory is another than when they were last seen, or was then too
 *     recent to tell (file times may be as coarse as 2 s). The database's name is looked up each
 *     time, because a parent directory may be renamed.
 * A write looks at the database's witness before it begins, too: pages that are written to -wal
 * without SHARED may destroy what other processes write.
 *
 * Outside WAL mode SQLite itself unlocks the whole file after each transaction. There the witness
 * is taken in each transaction, and checked before COMMIT.
 *
 * Contents: settling; looking. The witnesses: witness.c.
 */
#include "os.h"
#include "store.h"
#include "witness.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SETTLE_TRIES = 3 };
/* In seconds: file times are as coarse as 2 s (vfat), plus the kernel's tick. */
enum { COARSEST_STAMP_S = 3 };
void hf__sq_files_drop(struct hf__sq_files *f)
{
    hf__sq_drop_witness(&f->db_witness);
    hf__sq_drop_witness(&f->shm_witness);
    if (f->dir) close(f->dir);
    f->dir = f->settled = 0;
}

/* ---- settling ---- */

static struct hf__sq_id id_of(const char *path)
{
    struct stat s;
    struct hf__sq_id id = {0, 0};
    if (!stat(path, &s)) id = (struct hf__sq_id){s.st_dev, s.st_ino};
    return id;
}

static void look(const hf_store *st, struct hf__sq_id ret[SQ_FILES])
{
    ret[SQ_DB] = id_of(st->path);
    ret[SQ_WAL] = id_of(st->wal_path);
    ret[SQ_SHM] = id_of(st->shm_path);
}

static int same_id(struct hf__sq_id a, struct hf__sq_id b)
{
    return a.dev == b.dev && a.ino == b.ino;
}

/* Returns 1 if the -shm file that our copy of SQLite has mapped was removed; 0: it wasn't; -1: not
   known. */
static int shm_removed(hf_store *st)
{
    sqlite3_file *file = NULL;
    volatile void *at = NULL;
    char *line = NULL;
    size_t cap = 0;
    int found = -1;
    sqlite3_file_control(st->db, "main", SQLITE_FCNTL_FILE_POINTER, &file);
    if (!file || !file->pMethods || file->pMethods->iVersion < 2 ||
        file->pMethods->xShmMap(file, 0, 32768, 0, &at) || !at)
        return -1;
    FILE *f = hf__fopen("/proc/self/maps");
    while (f && found < 0 && getline(&line, &cap, f) > 0) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx", &from, &to) != 2 || (uintptr_t)at < from || (uintptr_t)at >= to)
            continue;
        found = strstr(line, " (deleted)") != NULL;
    }
    free(line);
    if (f) fclose(f);
    return found;
}

static int in_wal_mode(hf_store *st, int *ret)
{
    sqlite3_stmt *s = NULL;
    int sq = sqlite3_prepare_v2(st->db, "PRAGMA journal_mode", -1, &s, NULL);
    if (!sq) sq = sqlite3_step(s);
    const char *text = sq == SQLITE_ROW ? (const char *)sqlite3_column_text(s, 0) : NULL;
    *ret = text && !strcmp(text, "wal");
    sqlite3_finalize(s);
    return sq == SQLITE_ROW ? 0 : sq;
}

/* Tries once to note the files and to take the witnesses. In WAL mode SQLite holds two locks as
   long as the database is open: SHARED on the database, and one byte of -shm (its "dead man's
   switch"). If these were dropped, they are taken again here, because SQLite believes that it still
   has them. Returns 0 or an errno; EAGAIN: another process has them, or a file changed meanwhile;
   EBUSY: another copy of SQLite has EXCLUSIVE. */
static int settle_once(hf_store *st, struct hf__sq_files *f)
{
    struct hf__sq_id seen[SQ_FILES];
    look(st, f->id);
    int sys = hf__sq_take_witness(st->path, &f->db_witness, &f->db_lost);
    if (!sys && f->wal) sys = hf__sq_take_witness(st->shm_path, &f->shm_witness, &f->shm_lost);
    if (!sys && f->wal && !hf__sq_wait_until_shared(f->db_witness, st->io_timeout_ms)) sys = EBUSY;
    if (!sys && f->wal)
        sys = hf__sq_lock_range(f->db_witness->fd, HF_SQ_SHARED_FIRST, HF_SQ_SHARED_SIZE);
    if (!sys && f->wal) sys = hf__sq_lock_range(f->shm_witness->fd, HF_SQ_DMS_BYTE, 1);
    if (sys) return sys == ENOENT ? EAGAIN : sys;
    look(st, seen);
    for (int i = 0; i < SQ_FILES; i++)
        if (!same_id(f->id[i], seen[i])) return EAGAIN;
    const struct hf__sq_witness *db = f->db_witness, *shm = f->shm_witness;
    if (!same_id(f->id[SQ_DB], (struct hf__sq_id){db->dev, db->ino}) ||
        (shm && !same_id(f->id[SQ_SHM], (struct hf__sq_id){shm->dev, shm->ino})))
        return EAGAIN;
    if (f->wal && (!hf__sq_stood(db, f->db_lost) || !hf__sq_stood(shm, f->shm_lost))) return EAGAIN;
    return 0;
}

static const char dropped[] = "this process's locks on it were dropped",
                  exclusive[] = "another copy of SQLite in this process had it locked exclusively";

static int open_directory(const hf_store *st)
{
    char name[SQ_PATH_CAP];
    snprintf(name, sizeof name, "%s", st->path);
    char *slash = strrchr(name, '/');
    if (!slash) return 0;
    slash[slash == name] = 0;
    int fd = hf__open(name, O_PATH | O_DIRECTORY, 0);
    return fd > 0 ? fd : 0;
}

int hf__sq_files_settle(hf_store *st, const char **ret_why, int *ret_sq)
{
    struct hf__sq_files now = {.settled = 0}, *was = &st->files;
    int64_t any;
    int sys = EAGAIN, sq = hf__sq_ask(st, "SELECT count(*) FROM %s", "sqlite_master", &any);
    *ret_why = "its locks can't be taken again";
    if (!sq) sq = in_wal_mode(st, &now.wal);
    *ret_sq = sq;
    if (sq) return EIO;
    if (now.wal && shm_removed(st) == 1) {
        *ret_why = "another connection of this process keeps removed files of it open";
        return EBUSY;
    }
    for (int i = 0; sys == EAGAIN && i < SETTLE_TRIES; i++) {
        hf__sq_files_drop(&now);
        sys = settle_once(st, &now);
    }
    if (sys == EBUSY) *ret_why = exclusive;
    /* The database must still be the same file; if it was in WAL mode, -wal and -shm, too. */
    for (int i = 0; !sys && was->settled && i < SQ_FILES; i++)
        if ((i == SQ_DB || was->wal) && !same_id(was->id[i], now.id[i])) sys = ESTALE;
    if (sys) {
        hf__sq_files_drop(&now);
        return sys;
    }
    now.settled = 1;
    now.dir = open_directory(st);
    st->names_seen = (struct timespec){0, 0};
    /* under the mutex, because the thread that sleeps for events reads the files, too */
    pthread_mutex_lock(&st->version_mu);
    hf__sq_files_drop(was);
    *was = now;
    st->told_change = 0;
    pthread_mutex_unlock(&st->version_mu);
    return 0;
}

/* ---- looking ---- */

/* Returns NULL if the names still lead to the same files; else what has changed. *names_seen: the
   directory's change time at which the names of -wal and -shm were last found to be right, if it
   was old enough then to tell a later change; this call sets it anew. NULL: look up all names. */
static const char *names_changed(const hf_store *st, struct timespec *names_seen)
{
    static const char *const replaced[SQ_FILES] = {"the database was removed or replaced",
                                                   "its -wal was removed or replaced",
                                                   "its -shm was removed or replaced"};
    struct hf__sq_id now[SQ_FILES];
    struct stat dir = {.st_ino = 0};
    const struct hf__sq_files *f = &st->files;
    int known = names_seen && f->dir && !fstat(f->dir, &dir);
    if (known && names_seen->tv_sec && dir.st_ctim.tv_sec == names_seen->tv_sec &&
        dir.st_ctim.tv_nsec == names_seen->tv_nsec)
        return NULL;
    look(st, now);
    for (int i = 0; i < SQ_FILES; i++)
        if (!same_id(f->id[i], now[i])) return replaced[i];
    if (known && hf__day_us() / 1000000 - dir.st_ctim.tv_sec > COARSEST_STAMP_S)
        *names_seen = dir.st_ctim;
    return NULL;
}

/* The check for EXCLUSIVE comes before that of the witness: if another copy has given EXCLUSIVE
   back by then, the witness is gone. */
const char *hf__sq_files_changed(const hf_store *st, struct timespec *names_seen)
{
    const struct hf__sq_files *f = &st->files;
    if (!f->settled) return "it isn't open";
    if (f->wal && !hf__sq_is_shared(f->db_witness)) return exclusive;
    if (f->wal &&
        (!hf__sq_stood(f->db_witness, f->db_lost) || !hf__sq_stood(f->shm_witness, f->shm_lost)))
        return dropped;
    return names_changed(st, names_seen);
}

int hf__sq_files_wait(const hf_store *st, const char *why)
{
    if (why == exclusive) hf__sq_wait_until_shared(st->files.db_witness, st->io_timeout_ms);
    return why == exclusive;
}

int hf__sq_files_sound(const hf_store *st, const char *what, const char *key, hf_error *err)
{
    const struct hf__sq_files *f = &st->files;
    if (f->settled && (!f->wal || hf__sq_stood(f->db_witness, f->db_lost))) return 0;
    return hf_fail(err, HF_UNAVAILABLE, 0, "sqlite: %s '%s': %s", what, key, dropped);
}

/* Takes the witness at the beginning of a transaction outside WAL mode: SQLite has dropped it at
   the end of the last one. */
void hf__sq_files_begin(hf_store *st)
{
    struct hf__sq_files *f = &st->files;
    if (f->wal || !f->db_witness) return;
    hf__sq_lock_byte(f->db_witness);
    f->db_lost = atomic_load(&f->db_witness->lost);
}

int hf__sq_files_held(const hf_store *st)
{
    const struct hf__sq_files *f = &st->files;
    return f->wal || (f->db_witness && hf__sq_stood(f->db_witness, f->db_lost));
}
