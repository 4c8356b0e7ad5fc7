/*
 * sqlite_commit.c - what the driver sqlite makes of a COMMIT that fails: nothing was written if the
 * transaction was still open and is rolled back; otherwise it is UNKNOWN, whatever the error.
 *
 * This program defines sqlite3_step and sqlite3_exec itself, so that it stands between the driver
 * and the library; errors of the system it gives to the library's VFS.
 */
#include "sqlite_own.h"
#include "test.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

/* ---- a COMMIT that fails ---- */

static int commit_gives; /* 0: what the library does */
static int commit_lands; /* the library does it nevertheless */
static int rollback_fails;

static int begins(const char *sql, const char *word)
{
    return sql && !strncmp(sql, word, strlen(word));
}

/* 0: the call goes to the library; otherwise its result. */
static int injected(const char *sql, int (*real)(void *), void *arg)
{
    if (commit_gives && begins(sql, "COMMIT")) {
        if (commit_lands) real(arg);
        return commit_gives;
    }
    return rollback_fails && begins(sql, "ROLLBACK") ? SQLITE_NOMEM : 0;
}

static int real_step(void *arg)
{
    static int (*real)(sqlite3_stmt *);
    if (!real) {
        void *at = dlsym(RTLD_NEXT, "sqlite3_step");
        memcpy(&real, &at, sizeof at);
    }
    return real(arg);
}

int sqlite3_step(sqlite3_stmt *s)
{
    int sq = injected(sqlite3_sql(s), real_step, s);
    return sq ? sq : real_step(s);
}

struct exec_call {
    sqlite3 *db;
    const char *sql;
    sqlite3_callback see;
    void *arg;
    char **why;
};

static int real_exec(void *arg)
{
    static int (*real)(sqlite3 *, const char *, sqlite3_callback, void *, char **);
    const struct exec_call *c = arg;
    if (!real) {
        void *at = dlsym(RTLD_NEXT, "sqlite3_exec");
        memcpy(&real, &at, sizeof at);
    }
    return real(c->db, c->sql, c->see, c->arg, c->why);
}

int sqlite3_exec(sqlite3 *db, const char *sql, sqlite3_callback see, void *arg, char **why)
{
    struct exec_call c = {db, sql, see, arg, why};
    int sq = injected(sql, real_exec, &c);
    return sq ? sq : real_exec(&c);
}

static const struct {
    int sq, code;
} errors[] = {{SQLITE_NOMEM, HF_NOMEM},
              {SQLITE_ERROR, HF_CORRUPT},
              {SQLITE_INTERRUPT, HF_UNAVAILABLE},
              {SQLITE_BUSY, HF_UNAVAILABLE},
              {SQLITE_FULL, HF_FULL},
              {SQLITE_IOERR, HF_UNAVAILABLE},
              {SQLITE_IOERR_FSYNC, HF_UNAVAILABLE},
              {SQLITE_CORRUPT, HF_CORRUPT},
              {SQLITE_READONLY, HF_DENIED},
              {SQLITE_CANTOPEN, HF_UNAVAILABLE},
              {SQLITE_PROTOCOL, HF_UNAVAILABLE}};

/* ---- what is done ---- */

static int take(hf_store *st, hf_row *row)
{
    hf_party p = {.id = {1}, .lease_ms = 60000, .owner = "me", .owner_len = 2};
    hf_row_init(row);
    return drv->acquire(st, &key, &p, 0, row, &clock_us, &err);
}

static int holders(hf_store *st)
{
    hf_row row;
    hf_row_init(&row);
    said(drv->get(st, &key, &row, &clock_us, &err), 0, NULL);
    int n = (int)row.n_holders;
    hf_row_clear(&row);
    return n;
}

/* The request again, as the core sends it while it doesn't know; and then the row goes. */
static void again(hf_store *st, int landed)
{
    hf_row row;
    assert_int_equal(holders(st), landed);
    said(take(st, &row), landed ? HF_CONFLICT : 0, NULL);
    said(drv->replace(st, &key, row.rev, NULL, NULL, &clock_us, &err), 0, NULL);
    hf_row_clear(&row);
}

/* ---- tests ---- */

static void still_open_and_rolled_back(void **state)
{
    (void)state;
    hf_row row;
    hf_store *st = opened();
    for (size_t i = 0; i < COUNT(errors); i++) {
        commit_gives = errors[i].sq;
        said(take(st, &row), errors[i].code, "sqlite: acquire 'k'");
        said(drv->enter(st, &key, 7, 1, NULL, &err), errors[i].code, "sqlite: enter 'k'");
        commit_gives = 0;
        hf_row_clear(&row);
        again(st, 0);
    }
    drv->close(st);
}

static void still_open_and_not_rolled_back(void **state)
{
    (void)state;
    hf_row row;
    hf_store *st = opened();
    rollback_fails = 1;
    for (size_t i = 0; i < COUNT(errors); i++) {
        commit_gives = errors[i].sq;
        said(take(st, &row), HF_UNKNOWN, "sqlite: acquire 'k'");
        assert_int_equal(err.code, HF_UNKNOWN);
        commit_gives = rollback_fails = 0;
        hf_row_clear(&row);
        again(st, 0);
        rollback_fails = 1;
    }
    rollback_fails = 0;
    drv->close(st);
}

/* The transaction is over, and its outcome isn't known. */
static void over_with_an_error(void **state)
{
    (void)state;
    hf_row row;
    hf_store *st = opened();
    commit_lands = 1;
    for (size_t i = 0; i < COUNT(errors); i++) {
        commit_gives = errors[i].sq;
        said(take(st, &row), HF_UNKNOWN, "sqlite: acquire 'k'");
        said(drv->enter(st, &key, 7, 1, NULL, &err), HF_UNKNOWN, "sqlite: enter 'k'");
        commit_gives = 0;
        hf_row_clear(&row);
        again(st, 1);
    }
    commit_lands = 0;
    drv->close(st);
}

static int no_room_from = -1; /* how many writes succeed before the disk is full; -1: all */

static ssize_t write_at(int fd, const void *from, size_t n, off_t at)
{
    if (!no_room_from) return errno = ENOSPC, -1;
    if (no_room_from > 0) no_room_from--;
    return pwrite(fd, from, n, at);
}

/* The library's own failures: the disk is full at the n-th write of a COMMIT, for all n. */
static void a_full_disk(void **state)
{
    (void)state;
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
    static const char *const calls[] = {"pwrite", "pwrite64"};
    hf_row row;
    for (int mode = 0; mode < 2; mode++) {
        writes(mode ? "PRAGMA journal_mode = DELETE" : "PRAGMA journal_mode = WAL");
        hf_store *st = opened();
        int rc = -1, n = 0;
        assert_int_equal(holders(st), 0); /* this call doesn't need to make the clock */
        for (; rc; n++) {
            for (size_t i = 0; i < COUNT(calls); i++)
                vfs->xSetSystemCall(vfs, calls[i], (sqlite3_syscall_ptr)write_at);
            no_room_from = n;
            rc = take(st, &row);
            no_room_from = -1;
            for (size_t i = 0; i < COUNT(calls); i++) vfs->xSetSystemCall(vfs, calls[i], NULL);
            hf_row_clear(&row);
            /* Before COMMIT nothing is written in WAL mode; otherwise the journal is. */
            if (rc && (rc != HF_UNKNOWN || !strstr(err.text, "full")) && (!mode || rc != HF_FULL))
                fail_msg("mode %d write %d: %d, %s", mode, n, rc, err.text);
            again(st, !rc);
        }
        assert_true(n > 2);
        drv->close(st);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(still_open_and_rolled_back),
        cmocka_unit_test(still_open_and_not_rolled_back),
        cmocka_unit_test(over_with_an_error),
        cmocka_unit_test(a_full_disk),
    };
    if (sqlite_begin()) return 1;
    writes("CREATE TABLE holdfast_enter (key TEXT, token INTEGER)");
    int failed_tests = TEST_MAIN(tests);
    sqlite3_close(other);
    return failed_tests;
}
