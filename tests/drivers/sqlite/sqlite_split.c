/*
 * sqlite_split.c - the driver sqlite in a process with a second copy of SQLite, or with a program
 * that copies the database: either drops the locks of this process, and may let others remove the
 * files. Nobody is told that it holds what another process can have.
 *
 * The second copy is Debian's library again, in a namespace of the loader's own. Called as
 * `sqlite_split try|hold URL` it is another process.
 */
#include "sqlite_own.h"
#include "test.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char path[600], side[620];

/* ---- the second copy ---- */

static struct {
    int (*open)(const char *, sqlite3 **);
    int (*exec)(sqlite3 *, const char *, sqlite3_callback, void *, char **);
    int (*close)(sqlite3 *);
    sqlite3_vfs *(*vfs_find)(const char *);
} copy;

static void *symbol(void *library, const char *name)
{
    void *at = dlsym(library, name);
    if (!at) fail_msg("%s: %s", name, dlerror());
    return at;
}

static void load_copy(void)
{
    void *library = dlmopen(LM_ID_NEWLM, "libsqlite3.so.0", RTLD_NOW);
    if (!library) fail_msg("%s", dlerror());
    void *at[] = {symbol(library, "sqlite3_open"), symbol(library, "sqlite3_exec"),
                  symbol(library, "sqlite3_close"), symbol(library, "sqlite3_vfs_find")};
    memcpy(&copy.open, &at[0], sizeof at[0]);
    memcpy(&copy.exec, &at[1], sizeof at[1]);
    memcpy(&copy.close, &at[2], sizeof at[2]);
    memcpy(&copy.vfs_find, &at[3], sizeof at[3]);
}

static void copy_does(const char *sql)
{
    sqlite3 *db;
    assert_int_equal(copy.open(path, &db), 0);
    assert_int_equal(copy.exec(db, sql, NULL, NULL, NULL), 0);
    assert_int_equal(copy.close(db), 0);
}

/* The application's own look at the database. */
static void copy_looks(void) { copy_does("SELECT count(*) FROM sqlite_master"); }

/* A program that copies the file, or the -shm alone. */
static void read_file(const char *name)
{
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    close(fd);
}

static void file_is_read(void) { read_file(path); }

static void shm_is_read(void)
{
    snprintf(side, sizeof side, "%s-shm", path);
    read_file(side);
}

static void (*const drops[])(void) = {copy_looks, file_is_read, shm_is_read};

/* ---- another process ---- */

static int is_there(const char *tail)
{
    struct stat s;
    snprintf(side, sizeof side, "%s%s", path, tail);
    return !stat(side, &s);
}

static hf_options at_once(void)
{
    hf_options o = HF_OPTIONS_INIT;
    o.wait_ms = 0;
    return o;
}

/* Says by its status whether it was granted the key; "hold": has the store open until its input
   ends. */
static int be_another(const char *what, const char *url)
{
    hf_options o = at_once();
    hf_lock *lock;
    hf *h;
    char byte;
    if (hf_open(url, NULL, &h, NULL)) return 100;
    int rc = hf_acquire(h, strcmp(what, "hold") ? "k" : "other", &o, &lock, NULL);
    if (!strcmp(what, "hold")) {
        if (rc || write(1, "x", 1) != 1) return 101;
        while (read(0, &byte, 1) > 0) continue;
    }
    hf_close(h);
    return -rc;
}

struct another {
    pid_t pid;
    int to, from;
};

static struct another start(const char *what)
{
    int to[2], from[2];
    assert_int_equal(pipe2(to, O_CLOEXEC), 0);
    assert_int_equal(pipe2(from, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        execl("/proc/self/exe", "sqlite_split", what, url_text, (char *)NULL);
        _exit(102);
    }
    close(to[0]);
    close(from[1]);
    return (struct another){pid, to[1], from[0]};
}

static int end(struct another a)
{
    int status;
    close(a.to);
    assert_int_equal(waitpid(a.pid, &status, 0), a.pid);
    close(a.from);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int another_tries(void) { return end(start("try")); }

static struct another another_holds(void)
{
    char byte;
    struct another a = start("hold");
    assert_int_equal(read(a.from, &byte, 1), 1);
    return a;
}

/* ---- tests ---- */

static hf *opens_anew(void)
{
    hf *h;
    hf_lock *lock;
    hf_options o = at_once();
    said(hf_open(url_text, NULL, &h, &err), 0, NULL);
    said(hf_acquire(h, "warm", &o, &lock, &err), 0, NULL);
    said(hf_release(lock, &err), 0, NULL);
    return h;
}

/* The copy's last connection removes the files. A grant after that is still exclusive. */
static void a_grant_after_the_files_went(void **state)
{
    (void)state;
    hf *h = opens_anew();
    hf_lock *lock;
    hf_options o = at_once();
    copy_looks();
    assert_false(is_there("-wal"));
    said(hf_acquire(h, "k", &o, &lock, &err), 0, NULL);
    assert_int_equal(another_tries(), -HF_BUSY);
    said(hf_confirm(lock, &err), 0, NULL);
    said(hf_release(lock, &err), 0, NULL);
    assert_int_equal(another_tries(), 0);
    hf_close(h);
}

static void a_hold_from_before_stays(void **state)
{
    (void)state;
    hf *h = opens_anew();
    hf_lock *lock;
    hf_options o = at_once();
    said(hf_acquire(h, "k", &o, &lock, &err), 0, NULL);
    for (int i = 0; i < 3; i++) {
        copy_looks();
        assert_false(is_there("-wal"));
        assert_int_equal(another_tries(), -HF_BUSY);
        said(hf_confirm(lock, &err), 0, NULL);
    }
    said(hf_release(lock, &err), 0, NULL);
    hf_close(h);
}

/* The row is gone by way of the files that are there now, and another process had the key. */
static void what_another_has_isnt_confirmed(void **state)
{
    (void)state;
    hf *h = opens_anew();
    hf_lock *lock;
    hf_options o = at_once();
    said(hf_acquire(h, "k", &o, &lock, &err), 0, NULL);
    copy_looks();
    copy_does("DELETE FROM holdfast WHERE key = 'k'");
    assert_int_equal(another_tries(), 0);
    assert_int_equal(hf_confirm(lock, &err), HF_LOST);
    hf_close(h);
}

/* Another process has the database open, so nothing is removed, but our locks are gone. They are
   taken again before anything is answered: the other process isn't the last one that closes the
   database. */
static void locks_that_were_dropped(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(drops); i++) {
        hf *h = opens_anew();
        hf_lock *lock;
        hf_options o = at_once();
        struct another a = another_holds();
        drops[i]();
        assert_true(is_there("-wal"));
        said(hf_acquire(h, "k", &o, &lock, &err), 0, NULL);
        assert_int_equal(end(a), 0);
        assert_true(is_there("-wal"));
        assert_int_equal(another_tries(), -HF_BUSY);
        said(hf_confirm(lock, &err), 0, NULL);
        said(hf_release(lock, &err), 0, NULL);
        hf_close(h);
    }
}

/* The program's own connection, by the same copy as ours, keeps the removed files open: nothing is
   granted until it is closed. */
static void a_connection_that_keeps_removed_files(void **state)
{
    (void)state;
    hf *h = opens_anew();
    sqlite3 *db;
    hf_lock *lock;
    hf_options o = at_once();
    assert_int_equal(sqlite3_open(path, &db), 0);
    assert_int_equal(sqlite3_exec(db, "SELECT count(*) FROM holdfast", NULL, NULL, NULL), 0);
    copy_looks();
    assert_false(is_there("-wal"));
    said(hf_acquire(h, "k", &o, &lock, &err), HF_UNAVAILABLE, "keeps removed files");
    assert_int_equal(another_tries(), 0);
    assert_int_equal(sqlite3_close(db), 0);
    said(hf_acquire(h, "k", &o, &lock, &err), 0, NULL);
    assert_int_equal(another_tries(), -HF_BUSY);
    said(hf_release(lock, &err), 0, NULL);
    hf_close(h);
}

/* Other handles of this process have the same files. */
static void all_handles_go_on(void **state)
{
    (void)state;
    hf *a = opens_anew(), *b = opens_anew();
    hf_lock *lock, *second;
    hf_options o = at_once();
    copy_looks();
    assert_false(is_there("-wal"));
    said(hf_acquire(a, "k", &o, &lock, &err), 0, NULL);
    assert_int_equal(hf_acquire(b, "k", &o, &second, &err), HF_BUSY);
    said(hf_release(lock, &err), 0, NULL);
    said(hf_acquire(b, "k", &o, &second, &err), 0, NULL);
    assert_int_equal(another_tries(), -HF_BUSY);
    hf_close(b);
    hf_close(a);
}

/* ---- names ---- */

static int64_t later_s; /* how much later it seems to be, by the time of day */
static int names_seen;  /* how often -wal was looked up */

int clock_gettime(clockid_t which, struct timespec *ret)
{
    int rc = (int)syscall(SYS_clock_gettime, which, ret);
    if (which == CLOCK_REALTIME) ret->tv_sec += later_s;
    return rc;
}

int stat(const char *restrict name, struct stat *restrict ret)
{
    size_t n = strlen(name);
    names_seen += n > 4 && !strcmp(name + n - 4, "-wal");
    return fstatat(AT_FDCWD, name, ret, 0);
}

/* Another program moves the files: in a directory that has just changed, and in one that hasn't
   changed for long. */
static void files_that_are_moved(void **state)
{
    (void)state;
    for (int calm = 0; calm < 2; calm++) {
        hf *h = opens_anew();
        hf_lock *lock;
        hf_options o = at_once();
        char away[640];
        said(hf_acquire(h, "k", &o, &lock, &err), 0, NULL);
        later_s = calm ? 60 : 0;
        said(hf_confirm(lock, &err), 0, NULL);
        names_seen = 0;
        said(hf_confirm(lock, &err), 0, NULL);
        assert_int_equal(names_seen, !calm);
        assert_true(is_there("-wal"));
        snprintf(away, sizeof away, "%s.away", side);
        assert_int_equal(rename(side, away), 0);
        assert_true(is_there("-shm"));
        assert_int_equal(unlink(side), 0);
        assert_int_equal(hf_confirm(lock, &err), HF_LOST);
        later_s = 0;
        assert_int_equal(another_tries(), 0);
        assert_int_equal(unlink(away), 0);
        hf_close(h);
    }
}

/* ---- within a request ---- */

static const char *drop_at; /* after (or with '<' before) the first statement that begins so */
static void (*drop)(void);

int sqlite3_step(sqlite3_stmt *s)
{
    static int (*real)(sqlite3_stmt *);
    const char *sql = sqlite3_sql(s);
    if (!real) {
        void *at = dlsym(RTLD_NEXT, "sqlite3_step");
        memcpy(&real, &at, sizeof at);
    }
    int before = drop_at && *drop_at == '<';
    int due = drop_at && sql && !strncmp(sql, drop_at + before, strlen(drop_at + before));
    if (due) drop_at = NULL;
    if (due && before) drop();
    int rc = real(s);
    if (due && !before) drop();
    return rc;
}

static int take_it(hf_store *st, hf_row *row)
{
    hf_party p = {.id = {1}, .lease_ms = 60000, .owner = "me", .owner_len = 2};
    hf_row_init(row);
    return drv->acquire(st, &key, &p, 0, row, &clock_us, &err);
}

/* A write at whose end the locks are gone may have landed, and may not: it is UNKNOWN. */
static void a_write_that_may_not_have_landed(void **state)
{
    (void)state;
    static const char *const where[] = {"COMMIT", "<COMMIT", "INSERT INTO"};
    for (size_t i = 0; i < COUNT(where) * COUNT(drops); i++) {
        hf_store *st = opened();
        hf_row row, again;
        said(take_it(st, &row), 0, NULL);
        said(drv->replace(st, &key, row.rev, NULL, NULL, &clock_us, &err), 0, NULL);
        drop = drops[i % COUNT(drops)];
        drop_at = where[i / COUNT(drops)];
        said(take_it(st, &row), HF_UNKNOWN, "isn't known whether it was done");
        assert_null(drop_at);
        hf_row_init(&again);
        said(drv->get(st, &key, &again, &clock_us, &err), 0, NULL);
        int rc = take_it(st, &row); /* the same request again */
        assert_int_equal(rc, again.n_holders ? HF_CONFLICT : 0);
        said(drv->replace(st, &key, row.rev, NULL, NULL, &clock_us, &err), 0, NULL);
        hf_row_clear(&row);
        hf_row_clear(&again);
        drv->close(st);
    }
}

static hf_store *store_in_close;
static int taken_in_close;

/* The copy calls this instead of unlink(): what was committed is in the database, and the files are
   removed. */
static int take_before_unlink(const char *name)
{
    hf_row row;
    hf_store *st = store_in_close;
    store_in_close = NULL;
    if (st) taken_in_close = take_it(st, &row);
    if (st) hf_row_clear(&row);
    return unlink(name);
}

/* The copy's last close removes -wal after copying it: what is committed in between is lost. */
static void a_write_while_the_copy_closes(void **state)
{
    (void)state;
    sqlite3_vfs *vfs = copy.vfs_find(NULL);
    hf_url url;
    hf_row row;
    said(hf_url_parse(url_text, &url, &err), 0, NULL);
    hf_store *st = NULL;
    said(drv->open(&url, 1, &st, &(hf_caps){0}, &err), 0,
         NULL); /* it waits for 1 ms for the copy */
    store_in_close = st;
    vfs->xSetSystemCall(vfs, "unlink", (sqlite3_syscall_ptr)take_before_unlink);
    copy_looks();
    vfs->xSetSystemCall(vfs, "unlink", NULL);
    assert_null(store_in_close);
    said(taken_in_close, HF_UNKNOWN, "locked exclusively while");
    said(take_it(st, &row), 0, NULL);
    said(drv->replace(st, &key, row.rev, NULL, NULL, &clock_us, &err), 0, NULL);
    hf_row_clear(&row);
    drv->close(st);
}

/* What was read while the locks were gone is read again. */
static void a_read_is_made_again(void **state)
{
    (void)state;
    hf_store *st = opened();
    hf_row row;
    said(take_it(st, &row), 0, NULL);
    uint64_t rev = row.rev;
    drop = copy_looks;
    drop_at = "SELECT c.boot";
    said(drv->get(st, &key, &row, &clock_us, &err), 0, NULL);
    assert_null(drop_at);
    assert_int_equal(row.rev, rev);
    said(drv->replace(st, &key, rev, NULL, NULL, &clock_us, &err), 0, NULL);
    hf_row_clear(&row);
    drv->close(st);
}

/* A sync of other files doesn't prove that a marker is on disk. */
static void a_sync_of_other_files_is_none(void **state)
{
    (void)state;
    hf_store *st = opened();
    said(drv->sync(st, &key, &err), 0, NULL);
    copy_looks();
    said(drv->sync(st, &key, &err), HF_UNAVAILABLE, NULL);
    said(drv->sync(st, &key, &err), 0, NULL);
    drv->close(st);
}

/* Outside WAL mode: nothing is written once the locks are gone. */
static void locks_dropped_within_a_transaction(void **state)
{
    (void)state;
    copy_does("PRAGMA journal_mode = DELETE");
    hf_store *st = opened();
    hf_row row;
    drop = file_is_read;
    drop_at = "INSERT INTO";
    said(take_it(st, &row), HF_UNAVAILABLE, "dropped within");
    assert_null(drop_at);
    said(drv->get(st, &key, &row, &clock_us, &err), 0, NULL);
    assert_int_equal(row.n_holders, 0);
    said(take_it(st, &row), 0, NULL);
    assert_false(is_there("-wal"));
    said(drv->replace(st, &key, row.rev, NULL, NULL, &clock_us, &err), 0, NULL);
    /* Another program changes the journal mode. */
    copy_does("PRAGMA journal_mode = WAL");
    said(drv->get(st, &key, &row, &clock_us, &err), 0, NULL);
    said(take_it(st, &row), 0, NULL);
    said(drv->replace(st, &key, row.rev, NULL, NULL, &clock_us, &err), 0, NULL);
    hf_row_clear(&row);
    drv->close(st);
}

static void see_copy(void *arg, int ok, const char *text)
{
    if (ok && strstr(text, "second copy of SQLite") && strstr(text, "libsqlite3")) *(int *)arg = 1;
}

static int warns(void)
{
    char text[HF_TEXT_CAP] = "";
    hf *h = opens_anew();
    int found = hf_store_warning(h, text, sizeof text);
    assert_int_equal(found, strstr(text, "second copy of SQLite") && strstr(text, "libsqlite3"));
    hf_close(h);
    return found;
}

/* The driver is linked to the library that the program has: it brings none. Then there are two. */
static void the_driver_brings_no_copy(void **state)
{
    (void)state;
    hf_store *st = opened();
    int seen = 0;
    said(drv->inspect(st, see_copy, &seen, &err), 0, NULL);
    assert_int_equal(seen, 0);
    drv->close(st);
    assert_int_equal(warns(), 0);
    load_copy();
}

static void doctor_names_the_copy(void **state)
{
    (void)state;
    hf_store *st = opened();
    int seen = 0;
    said(drv->inspect(st, see_copy, &seen, &err), 0, NULL);
    assert_int_equal(seen, 1);
    drv->close(st);
    assert_int_equal(warns(), 1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_driver_brings_no_copy),
        cmocka_unit_test(a_grant_after_the_files_went),
        cmocka_unit_test(a_hold_from_before_stays),
        cmocka_unit_test(what_another_has_isnt_confirmed),
        cmocka_unit_test(locks_that_were_dropped),
        cmocka_unit_test(a_connection_that_keeps_removed_files),
        cmocka_unit_test(all_handles_go_on),
        cmocka_unit_test(files_that_are_moved),
        cmocka_unit_test(a_write_that_may_not_have_landed),
        cmocka_unit_test(a_write_while_the_copy_closes),
        cmocka_unit_test(a_read_is_made_again),
        cmocka_unit_test(a_sync_of_other_files_is_none),
        cmocka_unit_test(locks_dropped_within_a_transaction),
        cmocka_unit_test(doctor_names_the_copy),
    };
    if (argc == 3) return be_another(argv[1], argv[2]);
    if (sqlite_begin() || sqlite3_close(other)) return 1;
    snprintf(path, sizeof path, "%s", strchr(url_text, ':') + 1);
    return TEST_MAIN(tests);
}
