/*
 * store.h - sqlite:PATH, rows in a table of an SQLite database: what its files share. See
 * doc/stores/sqlite.md.
 *
 * A handle has one connection, under a mutex, and a second one that notices changes. Every write is
 * a transaction that begins IMMEDIATE: read the row, compare, write.
 *
 * The clock is CLOCK_BOOTTIME plus an offset. A table of one row beside the locks has the offset,
 * and the id of the boot for which it holds. After a reboot the clock starts anew: at the time of
 * day, or above all revs that were ever used, whichever is later. To know these, `ceiling_us` is on
 * disk before any rev passes it. So locks needn't be synced: a lock that a power cut removes from
 * the disk belonged to a process that is gone, too, and tokens go on growing. Markers of events are
 * synced (hf__sq_sync).
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
    SQ_HOLDER,
    SQ_INSERT,
    SQ_UPDATE,
    SQ_DELETE,
    SQ_SCAN,
    SQ_CEILING,
    SQ_STATEMENTS
};

/* What a statement does that finds the database locked: see busy.c. */
enum hf__sq_if_busy {
    SQ_RETRIES,   /* tries again soon */
    SQ_MAKES_WAY, /* tries again, but ever more rarely: other clients' writes are more urgent (only
                     in an opening; hf__sq_acquire makes way without the mutex) */
    SQ_FAILS      /* at once */
};

struct hf__sq_boot {
    char id[40];
    int64_t timens; /* the time namespace of CLOCK_BOOTTIME; 0: the kernel has only one */
};

enum { SQ_PATH_CAP = 1024 + 8 };
enum { SQ_DB, SQ_WAL, SQ_SHM, SQ_FILES };
struct hf__sq_id { /* identifies a file; 0, 0: there is none */
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
    pthread_mutex_t mu; /* protects the connection and what follows */
    sqlite3 *db;        /* NULL: closed because its files have changed; opened again when needed */
    struct hf__sq_files files;         /* changed under both mutexes */
    struct timespec names_seen;        /* under mu; see files.c */
    int told_change;                   /* 1: the change of the files was an event already */
    uint64_t openings;                 /* changed under both mutexes */
    sqlite3_stmt *stmt[SQ_STATEMENTS]; /* NULL: not prepared */
    int64_t offset_us, ceiling_us, last_us;
    int sync_failed;
    pthread_mutex_t version_mu; /* protects the connection that notices changes: notify.c */
    sqlite3 *version_db;
    sqlite3_stmt *version;
    /* These two are used only by the thread that sleeps. */
    hf_event_count flushed; /* the versions at the last flush */
    int any_event;          /* 1: the database has changed since the last flush */
    int64_t ahead; /* of the waits that have looked since the last event, the least number of bytes
                      of the queue before one (atomic); INT64_MAX: none has looked */
    int wake_fd;
    int64_t io_timeout_ms;
    enum hf__sq_if_busy if_busy;
    int may_wait;          /* 1: the busy handler was called, so a later try may succeed */
    int64_t busy_since_us; /* when the present statement found the database locked */
    struct hf__sq_boot boot;
    dev_t dev;
    ino_t ino;
    char path[1024 + 2], wal_path[SQ_PATH_CAP], shm_path[SQ_PATH_CAP];
    char table[160], clock[160]; /* the names are quoted */
    char empty[180];             /* the statement with which a person empties the store */
    int existing;                /* 1: opening and reading must not make the tables */
    int gone;                    /* 1: `existing`, and the table isn't there */
    int old;                     /* 1: the table is there, but with the columns of format 1 */
    int opened;                  /* 1: hf__sq_open has succeeded */
};

/*
 * files.c; the caller holds st->mu.
 * settle: notes the present files, and takes the witnesses. Returns 0 or an errno, with *ret_why
 * and *ret_sq (ESTALE: the files aren't the same as before). changed: returns NULL, or what has
 * changed. names_seen: the store's; NULL without st->mu. wait: if `why` says that another copy of
 * SQLite has the database, waits for it and returns 1. begin, held: take and check the witness in a
 * transaction outside WAL mode.
 */
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
/* Returns 1 if the file is on a filesystem of this machine, so that all its users see each other's
   SQLite locks and have one clock. */
int hf__sq_is_local(const char *path);
/* Refuses a database that has a second name: by a hard link, or because it is mounted as a file.
   `s` is its stat, `name` is for messages. SQLite follows symbolic links by itself. */
int hf__sq_one_name(const char *path, const struct stat *s, const char *name, hf_error *err);
/* Returns the errno with which the directory refuses a new file; 0: it doesn't. SQLite itself
   reports only that there is no file, because it then tries to open the file for reading. */
int hf__sq_directory_refuses(const char *path);

/* busy.c. wait_if_busy: makes the statements of st->db wait while the database is locked, as
   st->if_busy says, for io_timeout_ms. wait: waits once; nth: how often before. pause: waits once,
   for a request that found the database locked at since_us; needs no mutex. Both return 1 to try
   again; 0: the time is over. */
void hf__sq_wait_if_busy(hf_store *st);
int hf__sq_wait(hf_store *st, enum hf__sq_if_busy how, int nth);
int hf__sq_pause(const hf_store *st, int64_t since_us, int makes_way);

/* notify.c */
extern const hf_notify_ops hf__sq_notify;

/* copies.c: returns 1 if another copy of SQLite is loaded, and names the file that has it; 0: there
   is none. */
int hf__sq_second_copy(char *to, size_t cap);

/*
 * sqlite.c. Calls `op` on the database, under st->mu, and checks that the files and locks are still
 * those with which the call began. If they aren't, the answer isn't used: the database is opened
 * again, and `op` is called again. If `op` has set *ret_code, it isn't called again, and that code
 * is the answer (HF_UNKNOWN: the write may have landed).
 */
typedef int hf__sq_op(hf_store *st, void *arg, int *ret_code, hf_error *err);
int hf__sq_attempt(hf_store *st, const char *what, const char *key, hf__sq_op *op, void *arg,
                   hf_error *err);

/* Called before a write. Returns HF_UNAVAILABLE if the locks are gone: a write to removed files
   would overwrite what other processes have written since. */
int hf__sq_files_sound(const hf_store *st, const char *what, const char *key, hf_error *err);

/* stores.c. enlist: adds a store to this process's list, and closes the connections of stores that
   were inherited by a fork. delist: takes it out of the list. */
void hf__sq_enlist(hf_store *st);
void hf__sq_delist(hf_store *st);
/* Closes the connection; `quietly`: without a checkpoint of the log, and without removing it. */
void hf__sq_disconnect(hf_store *st, int quietly);
/* Closes every connection of this process to the database of `st`, whose files have changed. The
   next operation of each store opens it again. */
void hf__sq_close_all(hf_store *st);

/* scratch.c: `scratch` and `discard` of hf_driver. */
int hf__sq_scratch(const hf_url *url, hf_url *ret, hf_error *err);
void hf__sq_discard(const hf_url *url);

/* Rows per page of a scan, which are read together and then shown without the mutex. */
enum { SQ_PAGE_ROWS = 64 };
/* rows.c. Reads a row from the statement's columns, from column `at` on. */
int hf__sq_decode(const hf_store *st, sqlite3_stmt *s, int at, hf_row *row, const char *what,
                  const char *key, hf_error *err);

/* statements.c, under the mutex. */
int hf__sq_failed(hf_store *st, int sq, const char *what, const char *key, int ambiguous,
                  hf_error *err);
/* Run a statement without result rows, or a text of SQL. Return SQLite's code. */
int hf__sq_run(sqlite3_stmt *s);
int hf__sq_exec(sqlite3 *db, const char *sql);
/* Rolls back the transaction that is open, if any. If that fails for lack of memory, other
   connections can't write, and this one doesn't see their writes; so each operation tries again. */
void hf__sq_roll_back(hf_store *st);
/*
 * Commits. After an error only sqlite3_get_autocommit() says what became of the transaction. If it
 * is still open, COMMIT didn't begin, or waited in vain for other connections: a ROLLBACK then
 * leaves nothing of it. If it is over, SQLite has either rolled it back or completed it (with a
 * failure while it removed the journal); and pages that were written to a WAL may count when the
 * WAL is recovered.
 * Returns:
 *   0           committed
 *   HF_UNKNOWN  it may be committed, or may be later
 *   a code      it isn't committed, and won't be
 */
int hf__sq_commit(hf_store *st, const char *what, const char *key, hf_error *err);
void hf__sq_bind_text(sqlite3_stmt *s, int at, const char *text, size_t len);
/* Reads one number by the query `format`, in which %s stands for the table `name`. If the query has
   no result, *ret stays as it is. */
int hf__sq_ask(hf_store *st, const char *format, const char *name, int64_t *ret);
/* Makes the tables and this boot's clock, if they are missing, syncs them, and prepares the
   statements. If st->existing is set and this isn't for a write (`writes` 0), it makes no table: if
   there is none, it returns SQLITE_ERROR, and sets st->gone. */
int hf__sq_make(hf_store *st, int writes);
/* Returns 1 if reading failed because the table was dropped after the store was opened: there are
   no rows. */
static inline int hf__sq_no_rows(const hf_store *st, int sq)
{
    return sq == SQLITE_ERROR && st->gone && st->opened;
}
int hf__sq_prepare(hf_store *st);
void hf__sq_drop_statements(hf_store *st);
/* Returns the store's clock. It never goes back in this process, even if the database is replaced
   by an older one. */
int64_t hf__sq_now_us(hf_store *st);
/* hf__sq_raise_ceiling raises the ceiling of revs, on disk. hf__sq_make_room does so if `rev` would
   pass it. They return SQLite's code. */
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
