/*
 * store.h - sqlite:PATH, rows in a table of an SQLite database: what its files share. See
 * doc/stores/sqlite.md.
 *
 * A handle has one connection, under a mutex, and a second one for watching. Every write is a
 * transaction that begins IMMEDIATE: read the row, compare, write.
 *
 * The clock is CLOCK_BOOTTIME plus an offset that stands in a table of one row beside the locks,
 * with the boot id that it belongs to. Under another boot id it starts anew, at the time of day or
 * above everything that was ever given out, whichever is later: `ceiling_us` is on disk before any
 * rev may pass it. So locks needn't be synced: what a power cut takes was a lock of a process
 * that is gone too, and tokens go on growing. Markers of events are synced (hf__sq_sync).
 */
#ifndef HF_SQLITE_STORE_H
#define HF_SQLITE_STORE_H

#include "kit/columns.h"

#include <pthread.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <time.h>

enum hf__sq_statement {
    SQ_BEGIN,
    SQ_COMMIT,
    SQ_ROLLBACK,
    SQ_GET,
    SQ_INSERT,
    SQ_UPDATE,
    SQ_DELETE,
    SQ_SCAN,
    SQ_CEILING,
    SQ_STATEMENTS
};

struct hf__sq_boot {
    char id[40];
    int64_t timens; /* the time namespace of the boot clock; 0: there is one for all */
};

enum { SQ_PATH_CAP = 1024 + 8 };
enum { SQ_DB, SQ_WAL, SQ_SHM, SQ_FILES };
struct hf__sq_id { /* of a file; 0, 0: there is none */
    dev_t dev;
    ino_t ino;
};

/* What the connection works on: see files.c. */
struct hf__sq_files {
    int settled, wal; /* wal: the database is in WAL mode */
    struct hf__sq_id id[SQ_FILES];
    struct hf__sq_witness *db_witness, *shm_witness;
    unsigned db_lost, shm_lost;
    int dir; /* the directory of the files; 0: the database isn't open */
};

struct hf_store {
    struct hf_store *next; /* the list of all stores that are open in this process */
    pid_t pid;
    pthread_mutex_t mu; /* the connection and what follows */
    sqlite3 *db;        /* NULL: closed because its files have changed; opened again when needed */
    struct hf__sq_files files;         /* changed under both mutexes */
    struct timespec names_seen;        /* under mu; see files.c */
    int told_change;                   /* it was an event already */
    uint64_t openings;                 /* changed under both mutexes */
    sqlite3_stmt *stmt[SQ_STATEMENTS]; /* NULL: to be made anew */
    int64_t offset_us, ceiling_us, last_us;
    int sync_failed;
    pthread_mutex_t version_mu; /* the connection that notices changes: notify.c */
    sqlite3 *version_db;
    sqlite3_stmt *version;
    hf_event_count flushed; /* as of the last flush; used by the thread that sleeps, as any_event */
    int any_event;          /* the database has changed since the last flush */
    int wake_fd;
    int64_t io_timeout_ms;
    struct hf__sq_boot boot;
    dev_t dev;
    ino_t ino;
    char path[1024 + 2], wal_path[SQ_PATH_CAP], shm_path[SQ_PATH_CAP];
    char table[160], clock[160]; /* the names are quoted */
    char empty[180];             /* the statement with which a person empties the store */
    int existing;                /* opening and reading make nothing */
    int gone;                    /* and the table isn't there */
    int old;                     /* the table is there, with the columns of format 1 */
    int opened;                  /* it was */
};

/* files.c; under the mutex. settle: takes the files and locks as they are; if it fails, *ret_why,
   errno and *ret_sq say why (ESTALE: they aren't the same any more). changed: returns NULL, or what
   has changed; names_seen: the store's, or NULL without its mutex. wait: returns 1 if `why` passes
   when another copy of SQLite is done, after waiting for that. begin, held: called around a
   transaction outside WAL mode. */
int hf__sq_files_settle(hf_store *st, const char **ret_why, int *ret_sq);
const char *hf__sq_files_changed(const hf_store *st, struct timespec *names_seen);
int hf__sq_files_wait(const hf_store *st, const char *why);
void hf__sq_files_drop(struct hf__sq_files *f);
void hf__sq_files_begin(hf_store *st);
int hf__sq_files_held(const hf_store *st);

/* place.c */
/* Makes the error "sqlite: open 'NAME': WHY". Returns its code. */
int hf__sq_refuse(const char *name, int code, int sys, const char *why, hf_error *err);
/* Makes a relative path absolute, because its meaning depends on the working directory. */
int hf__sq_resolve(hf_url *url, hf_error *err);
int hf__sq_find_boot(hf_store *st, const hf_url *url, hf_error *err);
/* Returns 1 if all users of the file see each other's SQLite locks, and one machine's clock. */
int hf__sq_is_local(const char *path);
/* Finds out why the database can't be created. SQLite, if it may not create a file, tries to read
   it, and reports that there is none. Returns 0, or why the directory takes no file. */
int hf__sq_directory_refuses(const char *path);

/* notify.c */
extern const hf_notify_ops hf__sq_notify;

/* copies.c: returns the address of an object with another copy of SQLite; 0: there is none. */
int hf__sq_second_copy(char *to, size_t cap);

/*
 * sqlite.c. Calls `op` on the database, under the mutex, and checks that files and locks are still
 * those with which the call began. If they aren't, the answer isn't used. The files are opened
 * again, and `op` is called again, unless it has set *ret_code: then that code is the answer
 * (UNKNOWN: the write may have landed).
 */
typedef int hf__sq_op(hf_store *st, void *arg, int *ret_code, hf_error *err);
int hf__sq_attempt(hf_store *st, const char *what, const char *key, hf__sq_op *op, void *arg,
                   hf_error *err);

/* Called before a write. Returns HF_UNAVAILABLE if the locks are gone: a write to removed files
   would overwrite what other processes have written since. */
int hf__sq_files_sound(const hf_store *st, const char *what, const char *key, hf_error *err);

/* stores.c. Enters a store into the list of those of this process, and closes those that a fork has
   left; takes it out of the list. */
void hf__sq_enlist(hf_store *st);
void hf__sq_delist(hf_store *st);
/* Closes the connection; `quietly`: without a checkpoint of the log, and without removing it. */
void hf__sq_disconnect(hf_store *st, int quietly);
/* Closes every connection of this process to that database, because the change concerns all of
   them. The next operation of each opens it again. */
void hf__sq_close_all(hf_store *st);

/* scratch.c: of the driver. */
int hf__sq_scratch(const hf_url *url, hf_url *ret, hf_error *err);
void hf__sq_discard(const hf_url *url);

/* rows.c, for scan.c: reads the fields from column `at` on. */
/* rows per page of a scan: read together, then shown without the mutex */
enum { SQ_PAGE_ROWS = 64 };
int hf__sq_decode(const hf_store *st, sqlite3_stmt *s, int at, hf_row *row, const char *what,
                  const char *key, hf_error *err);

/* statements.c, under the mutex. */
int hf__sq_failed(hf_store *st, int sq, const char *what, const char *key, int ambiguous,
                  hf_error *err);
/* These run a statement that has no rows to show, and a text. They return SQLite's code. */
int hf__sq_run(sqlite3_stmt *s);
int hf__sq_exec(sqlite3 *db, const char *sql);
/* Ends a transaction if there is one. A transaction that stays open, for want of memory, keeps the
   others from writing, and this connection from seeing what they wrote: the next operation tries
   again. */
void hf__sq_roll_back(hf_store *st);
/*
 * Commits. After an error sqlite3_get_autocommit() alone says what became of the transaction. It is
 * still open: COMMIT didn't begin, or waited for others in vain, and a ROLLBACK leaves nothing. It
 * is over: SQLite has rolled it back, or was already through with it (the journal is gone, but its
 * removal failed); and what a WAL was given can come back when it is recovered.
 * Returns:
 *   0           committed
 *   HF_UNKNOWN  it may be committed, or may be later
 *   a code      nothing was, nor will be
 */
int hf__sq_commit(hf_store *st, const char *what, const char *key, hf_error *err);
void hf__sq_bind_text(sqlite3_stmt *s, int at, const char *text, size_t len);
/* Reads one number by a query in whose format %s is the table. If there is none, *ret stays as it
   is. */
int hf__sq_ask(hf_store *st, const char *format, const char *name, int64_t *ret);
/* Makes what is missing: the tables, the clock of this boot, all of it on disk; prepares the
   statements. If opening or reading must not make the table, it returns SQLITE_ERROR, and sets
   `gone`. */
int hf__sq_make(hf_store *st, int writes);
/* Returns 1 if reading failed because the table was dropped after the store was opened: there are
   no rows. */
static inline int hf__sq_no_rows(const hf_store *st, int sq)
{
    return sq == SQLITE_ERROR && st->gone && st->opened;
}
int hf__sq_prepare(hf_store *st);
void hf__sq_drop_statements(hf_store *st);
/* Returns the store's clock. It never goes back in this process, whatever happens to the database.
 */
int64_t hf__sq_now_us(hf_store *st);
/* Raise the ceiling of revs on disk; hf__sq_make_room, before a rev passes it. They return SQLite's
   code. */
int hf__sq_raise_ceiling(hf_store *st, int64_t to_us);
int hf__sq_make_room(hf_store *st, uint64_t rev);

/* rows.c: the operations on rows; scan in scan.c. */
int hf__sq_get(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
               hf_error *err);
int hf__sq_replace(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                   hf_row *cur, int64_t *ret_clock_us, hf_error *err);
int hf__sq_acquire(hf_store *st, const hf_rowkey *key, const hf_party *party, uint32_t may_queue,
                   hf_row *cur, int64_t *ret_clock_us, hf_error *err);
int hf__sq_enter(hf_store *st, const hf_rowkey *key, uint64_t token, int alone, const char *where,
                 hf_error *err);
int hf__sq_sync(hf_store *st, const hf_rowkey *key, hf_error *err);
int hf__sq_scan(hf_store *st, const char *prefix,
                int (*see)(void *arg, const hf_rowkey *, hf_row *), void *arg,
                int64_t *ret_clock_us, hf_error *err);

#endif
