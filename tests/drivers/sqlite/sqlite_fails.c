/*
 * sqlite_fails.c - the n-th call of a function of SQLite's, or of the system, fails, for n = 1, 2,
 * 3 ..., alone or with all that follow, in each way that it may: what the driver makes of it.
 *
 * This program defines the functions itself, so that it stands between the driver and the library.
 * Whatever fails: the call says what that means, no transaction stays open, and what comes next
 * works again.
 */
#undef _FORTIFY_SOURCE /* it makes some of these functions inline */
#include "sqlite_own.h"
#include "test.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* ---- what fails ---- */

static const char *name_to_fail = "";
static int nth, on, with, failed; /* the n-th call since, or all from it on; how; did it? */
static int step_fails_with;       /* 0: it doesn't */
static int inside;                /* the library, whose own calls don't fail */

static int fails(const char *name)
{
    if (inside) return 0;
    if (!strcmp(name, "sqlite3_step") && step_fails_with) return 1;
    if (strcmp(name, name_to_fail) != 0) return 0;
    if (--nth && !(on && nth < 0)) return 0;
    failed = 1;
    return 1;
}

static void arm(const char *name, int n, int all, int how)
{
    name_to_fail = name;
    nth = n;
    on = all;
    with = how;
    failed = 0;
}

static void disarm(void) { name_to_fail = ""; }

/* Defines NAME(PARAMS), which returns FAILURE when it is to fail, and otherwise calls the real
   function. */
#define DEFINE(type, name, params, args, failure)  \
    type name params;                              \
    type name params                               \
    {                                              \
        static void *real;                         \
        type(*as) params;                          \
        if (fails(#name)) return failure;          \
        if (!real) real = dlsym(RTLD_NEXT, #name); \
        memcpy(&as, &real, sizeof as);             \
        inside++;                                  \
        type is_ = as args;                        \
        inside--;                                  \
        return is_;                                \
    }

DEFINE(int, sqlite3_step, (sqlite3_stmt * s), (s), step_fails_with ? step_fails_with : with)
DEFINE(int, sqlite3_exec,
       (sqlite3 * db, const char *sql, sqlite3_callback see, void *arg, char **why),
       (db, sql, see, arg, why), with)
DEFINE(int, sqlite3_prepare_v2,
       (sqlite3 * db, const char *sql, int n, sqlite3_stmt **ret, const char **end),
       (db, sql, n, ret, end), with)
DEFINE(int, sqlite3_prepare_v3,
       (sqlite3 * db, const char *sql, int n, unsigned how, sqlite3_stmt **ret, const char **end),
       (db, sql, n, how, ret, end), with)
DEFINE(int, sqlite3_busy_timeout, (sqlite3 * db, int ms), (db, ms), with)
/* The builder is freed even if there is no text. */
static char *finished_in_vain(sqlite3_str *s)
{
    void *real = dlsym(RTLD_NEXT, "sqlite3_str_finish");
    char *(*as)(sqlite3_str *);
    memcpy(&as, &real, sizeof as);
    inside++;
    sqlite3_free(as(s));
    inside--;
    return NULL;
}
DEFINE(char *, sqlite3_str_finish, (sqlite3_str * s), (s), finished_in_vain(s))
DEFINE(const unsigned char *, sqlite3_column_text, (sqlite3_stmt * s, int at), (s, at), NULL)
DEFINE(int, sqlite3_threadsafe, (void), (), 0)
DEFINE(int, sqlite3_db_readonly, (sqlite3 * db, const char *name), (db, name), 1)
DEFINE(int, sqlite3_open_v2, (const char *path, sqlite3 **ret, int flags, const char *vfs),
       (path, ret, flags, vfs), (*ret = NULL, with))
DEFINE(int, eventfd, (unsigned n, int flags), (n, flags), (errno = with, -1))
DEFINE(ssize_t, readlink, (const char *path, char *to, size_t n), (path, to, n), (errno = with, -1))
DEFINE(char *, getcwd, (char *to, size_t n), (to, n),
       with ? (errno = with, NULL) : (to[0] = '/', to[1] = 0, to))
/* The file of the boot's name is empty; or its line is; or it can't be read. */
DEFINE(FILE *, fdopen, (int fd, const char *how), (fd, how),
       with > 0 ? (errno = with, NULL) : (close(fd), fopen("/dev/null", how)))
DEFINE(char *, fgets, (char *to, int n, FILE *from), (to, n, from), (to[0] = '\n', to[1] = 0, to))
DEFINE(int, sqlite3_system_errno, (sqlite3 * db), (db), with)

/* Changes the result of stat: to another kind, another device, or a failure. */
static int another(struct stat *s, int how)
{
    if (how > 0) errno = how;
    if (how == 0) s->st_mode = S_IFCHR;
    if (how < 0) s->st_dev++;
    return how > 0 ? -1 : 0;
}

/* The names of these functions for large files: stat64, statfs64. */
int stat(const char *path, struct stat *s)
{
    static void *real;
    int (*as)(const char *, struct stat *);
    if (!real) real = dlsym(RTLD_NEXT, "stat64");
    memcpy(&as, &real, sizeof as);
    int rc = as(path, s);
    return fails("stat") ? another(s, with) : rc;
}

int statfs(const char *path, struct statfs *s)
{
    static void *real;
    int (*as)(const char *, struct statfs *);
    if (!real) real = dlsym(RTLD_NEXT, "statfs64");
    memcpy(&as, &real, sizeof as);
    int rc = as(path, s);
    if (!fails("statfs")) return rc;
    s->f_type = with;
    return with ? 0 : -1;
}

char *sqlite3_mprintf(const char *format, ...)
{
    va_list args;
    if (fails("sqlite3_mprintf")) return NULL;
    va_start(args, format);
    char *text = sqlite3_vmprintf(format, args);
    va_end(args);
    return text;
}

/* ---- what is done ---- */

static const hf_party me = {.id = {1}, .lease_ms = 60000, .owner = "me", .owner_len = 2};
static uint64_t rev; /* the rev of the row that the operations start with */

static int get(hf_store *st)
{
    hf_row row;
    hf_row_init(&row);
    int rc = drv->get(st, &key, &row, &clock_us, &err);
    hf_row_clear(&row);
    return rc;
}

static int take(hf_store *st)
{
    hf_row row;
    hf_row_init(&row);
    int rc = drv->acquire(st, &key, &me, 0, &row, &clock_us, &err);
    if (!rev) rev = row.rev;
    hf_row_clear(&row);
    return rc;
}

static int write_on(hf_store *st, uint64_t seen, int erases)
{
    hf_row row, cur;
    hf_row_init(&row);
    hf_row_init(&cur);
    row.done_us = 1;
    row.rev = rev + 1;
    int rc = drv->replace(st, &key, seen, erases ? NULL : &row, &cur, &clock_us, &err);
    hf_row_clear(&row);
    hf_row_clear(&cur);
    return rc;
}

static int insert(hf_store *st) { return write_on(st, 0, 0); }
static int update(hf_store *st) { return write_on(st, rev, 0); }
static int erase(hf_store *st) { return write_on(st, rev, 1); }
static int enter(hf_store *st) { return drv->enter(st, &key, 7, 1, NULL, &err); }
static int sync_it(hf_store *st) { return drv->sync(st, &key, &err); }

static int see(void *arg, const hf_rowkey *k, hf_row *row)
{
    (void)k;
    *(int *)arg += row ? 1 : 100;
    return 0;
}

static int list(hf_store *st)
{
    int seen = 0;
    return drv->scan(st, "", see, &seen, &clock_us, &err);
}

static int hear(hf_store *st)
{
    hf_event_count since;
    int rc = drv->caps.notify->flush(st, &since, &err);
    return rc ? rc : drv->caps.notify->sleep(st, &since, 0, &err);
}

static void note(void *arg, int ok, const char *text)
{
    (void)text;
    *(int *)arg += !ok;
}

static int inspect(hf_store *st)
{
    int flaws = 0;
    said(drv->inspect(st, note, &flaws, &err), 0, NULL);
    return flaws ? hf_fail(&err, HF_CORRUPT, 0, "the tables are damaged") : 0;
}

static int open_another(hf_store *st)
{
    hf_store *more = NULL;
    (void)st;
    int rc = opens(&more);
    if (!rc) drv->close(more);
    return rc;
}

static const struct op {
    const char *name;
    int (*run)(hf_store *st);
    int is_there; /* is the row there before it? */
    int good;     /* what it answers */
} ops[] = {{"get", get, 1, 0},
           {"take", take, 0, 0},
           {"take what is held", take, 1, HF_CONFLICT},
           {"insert", insert, 0, 0},
           {"update", update, 1, 0},
           {"erase", erase, 1, 0},
           {"update what isn't there", update, 0, HF_CONFLICT},
           {"enter", enter, 1, 0},
           {"sync", sync_it, 1, 0},
           {"list", list, 1, 0},
           {"hear", hear, 1, 0},
           {"inspect", inspect, 1, 0},
           {"open", open_another, 1, 0}};

static void prepare(const struct op *op, const char *sql)
{
    writes("DELETE FROM holdfast");
    if (op->is_there) writes("INSERT INTO holdfast SELECT * FROM model");
    if (sql) writes(sql);
}

/* ---- SQLite's codes ---- */

static const struct way {
    const char *function;
    int with, code; /* the result with which it fails, and the driver's code for that */
} ways[] = {
    {"sqlite3_step", SQLITE_BUSY, HF_UNAVAILABLE},
    {"sqlite3_step", SQLITE_LOCKED, HF_UNAVAILABLE},
    {"sqlite3_step", SQLITE_INTERRUPT, HF_UNAVAILABLE},
    {"sqlite3_step", SQLITE_PROTOCOL, HF_UNAVAILABLE},
    {"sqlite3_step", SQLITE_READONLY, HF_DENIED},
    {"sqlite3_step", SQLITE_PERM, HF_DENIED},
    {"sqlite3_step", SQLITE_AUTH, HF_DENIED},
    {"sqlite3_step", SQLITE_CANTOPEN, HF_UNAVAILABLE},
    {"sqlite3_step", SQLITE_FULL, HF_FULL},
    {"sqlite3_step", SQLITE_TOOBIG, HF_FULL},
    {"sqlite3_step", SQLITE_CORRUPT, HF_CORRUPT},
    {"sqlite3_step", SQLITE_NOTADB, HF_CORRUPT},
    {"sqlite3_step", SQLITE_MISMATCH, HF_CORRUPT},
    {"sqlite3_step", SQLITE_ERROR, HF_CORRUPT},
    {"sqlite3_step", SQLITE_NOMEM, HF_NOMEM},
    {"sqlite3_step", SQLITE_IOERR, HF_UNKNOWN},
    {"sqlite3_step", SQLITE_DONE, HF_CORRUPT}, /* a query that always has a row returns none */
    {"sqlite3_exec", SQLITE_ERROR, HF_CORRUPT},
    {"sqlite3_exec", SQLITE_FULL, HF_FULL},
    {"sqlite3_exec", SQLITE_IOERR, HF_UNKNOWN},
    {"sqlite3_prepare_v2", SQLITE_NOMEM, HF_NOMEM},
    {"sqlite3_prepare_v2", SQLITE_ERROR, HF_CORRUPT},
    {"sqlite3_prepare_v3", SQLITE_NOMEM, HF_NOMEM},
    {"sqlite3_prepare_v3", SQLITE_CORRUPT, HF_CORRUPT},
    {"sqlite3_busy_timeout", SQLITE_NOMEM, HF_NOMEM},
    {"sqlite3_str_finish", 0, HF_NOMEM},
    {"sqlite3_column_text", 0, HF_NOMEM},
    {"sqlite3_mprintf", 0, HF_NOMEM},
};

/* Returns 1 if the operation may return rc. After an error of the disk it isn't known whether a
   write was done; a read is only UNAVAILABLE. A version that can't be read only wakes no waiter. */
static int may_say(const struct op *op, const struct way *way, int rc)
{
    if (rc == op->good) return 1;
    if (op->run == hear) return rc == HF_UNAVAILABLE;
    if (op->run == inspect) return rc == HF_CORRUPT;
    if (op->run == open_another && way->with == SQLITE_DONE && rc == HF_UNAVAILABLE) return 1;
    /* BEGIN returned success, but didn't begin: there is nothing to commit. */
    if (way->with == SQLITE_DONE && rc == HF_UNKNOWN) return 1;
    return rc == way->code || (way->code == HF_UNKNOWN && rc == HF_UNAVAILABLE);
}

/* Makes the n-th call fail, for all n, after running `sql`. Returns how many calls there are. */
static int fail_each(const struct op *op, const struct way *way, int all, const char *sql)
{
    int n = 1;
    for (;; n++) {
        hf_store *st = opened();
        prepare(op, sql);
        memset(&err, 0, sizeof err);
        arm(way->function, n, all, way->with);
        int rc = op->run(st);
        disarm();
        const char *text = rc < 0 ? err.text : "something in words";
        if (failed ? !may_say(op, way, rc) || strlen(text) < 10 : rc != op->good)
            fail_msg("%s, %s %d fails with %d: %d, %s", op->name, way->function, n, way->with, rc,
                     err.text);
        /* The next call works, and other connections can write. */
        if (get(st)) fail_msg("%s, %s %d: get: %s", op->name, way->function, n, err.text);
        if (!sql) {
            prepare(op, NULL);
            rc = op->run(st);
            if (rc != op->good && !(op->run == sync_it && way->with == SQLITE_IOERR))
                fail_msg("%s, %s %d, then: %d, %s", op->name, way->function, n, rc, err.text);
        }
        drv->close(st);
        if (!failed) return n - 1;
    }
}

static void calls_fail(void **state)
{
    (void)state;
    int sum = 0;
    for (size_t o = 0; o < COUNT(ops); o++)
        for (size_t w = 0; w < COUNT(ways); w++)
            /* In some of the ways all later calls fail, too, so that the cleaning up fails. */
            for (int all = 0; all <= (w % 4 == 0); all++)
                sum += fail_each(&ops[o], &ways[w], all, NULL);
    if (sum < 1000) fail_msg("only %d calls", sum);
}

/* A missing table can't be made again. */
static void what_was_dropped_isnt_made(void **state)
{
    (void)state;
    static const char *const drop[] = {"DROP TABLE holdfast",
                                       "UPDATE holdfast_clock SET boot = 'another'"};
    int sum = 0;
    for (size_t o = 0; o < COUNT(ops); o++)
        for (size_t w = 0; w < COUNT(ways); w++) {
            const struct op *op = &ops[o];
            /* Only for operations that change nothing if the table is missing. */
            if (op->good || op->run == inspect || op->run == enter) continue;
            if (!strcmp(ways[w].function, "sqlite3_step") && ways[w].with != SQLITE_FULL) continue;
            struct op bare = *op;
            bare.is_there = 0;
            if (op->run == update || op->run == erase) bare.good = HF_CONFLICT;
            sum += fail_each(&bare, &ways[w], 1, drop[w % 2]);
        }
    if (sum < 100) fail_msg("only %d calls", sum);
}

/* ---- the system ---- */

/* The system's reason why a file can't be opened. */
static void what_the_system_said_counts(void **state)
{
    (void)state;
    static const struct {
        int sys, code;
    } codes[] = {{EACCES, HF_DENIED},   {EPERM, HF_DENIED},    {EROFS, HF_DENIED},
                 {ENOTDIR, HF_INVALID}, {EISDIR, HF_INVALID},  {ENAMETOOLONG, HF_INVALID},
                 {ENOSPC, HF_FULL},     {EDQUOT, HF_FULL},     {EFBIG, HF_FULL},
                 {ENOMEM, HF_NOMEM},    {EIO, HF_UNAVAILABLE}, {0, HF_UNAVAILABLE}};
    for (size_t i = 0; i < COUNT(codes); i++) {
        hf_store *st = opened();
        step_fails_with = SQLITE_CANTOPEN;
        arm("sqlite3_system_errno", 1, 1, codes[i].sys);
        int rc = get(st);
        disarm();
        step_fails_with = 0;
        if (rc != codes[i].code) fail_msg("%s: %d, %s", strerror(codes[i].sys), rc, err.text);
        said(rc, rc, codes[i].sys ? strerror(codes[i].sys) : "get 'k'");
        said(get(st), 0, NULL);
        drv->close(st);
    }
}

/* The result of opening for each of them. */
static void opening_fails(void **state)
{
    (void)state;
    static const struct {
        const char *function;
        int nth, with, code;
        const char *says;
    } cases[] = {
        {"sqlite3_open_v2", 1, SQLITE_NOMEM, HF_NOMEM, "out of memory"},
        {"sqlite3_threadsafe", 1, 0, HF_UNSUPPORTED, "without threads"},
        {"sqlite3_db_readonly", 1, 0, HF_DENIED, "is read-only"},
        {"eventfd", 1, EMFILE, HF_UNAVAILABLE, "Too many open files"},
        {"fdopen", 1, EMFILE, HF_UNAVAILABLE, "Too many open files"},
        {"fdopen", 1, ENFILE, HF_UNAVAILABLE, "Too many open files in system"},
        {"fdopen", 1, ENOMEM, HF_UNAVAILABLE, "Cannot allocate memory"},
        {"fdopen", 1, ENOENT, HF_UNSUPPORTED, "boot_id: No such file or directory"},
        {"fdopen", 1, 0, HF_UNSUPPORTED, "can't tell this boot"},
        {"fdopen", 2, EMFILE, HF_UNAVAILABLE,
         "can't find which mount it is in: Too many open files"},
        {"fdopen", 3, ENOMEM, HF_UNAVAILABLE,
         "can't find which mount it is in: Cannot allocate memory"},
        {"fdopen", 2, ENOENT, 0, ""},
        {"fgets", 1, 0, HF_UNSUPPORTED, "can't tell this boot"},
        {"readlink", 1, ENOENT, HF_UNSUPPORTED, "another time namespace"},
        {"statfs", 1, 0, HF_UNSUPPORTED, "its filesystem isn't known"},
        {"statfs", 1, 0x6969, HF_UNSUPPORTED, "its filesystem isn't known"},
        {"stat", 1, EACCES, HF_UNAVAILABLE, "Permission denied"},
        {"stat", 1, 0, HF_INVALID, "no regular file"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        hf_store *st = NULL;
        arm(cases[i].function, cases[i].nth, 0, cases[i].with);
        int rc = opens(&st);
        disarm();
        if (!failed || rc != cases[i].code || !strstr(err.text, cases[i].says))
            fail_msg("%s: %d, %s", cases[i].says, rc, err.text);
        if (!rc) drv->close(st);
        drv->close(opened());
    }
}

/* A relative name becomes one from anywhere, or is refused. */
static void relative_names(void **state)
{
    (void)state;
    hf_url url;
    said(hf_url_parse("sqlite:x.db", &url, &err), 0, NULL);
    arm("getcwd", 1, 0, ERANGE);
    said(drv->resolve(&url, &err), HF_INVALID, "too long");
    arm("getcwd", 1, 0, EACCES);
    said(drv->resolve(&url, &err), HF_UNAVAILABLE, "Permission denied");
    arm("getcwd", 1, 0, 0);
    said(drv->resolve(&url, &err), 0, NULL);
    disarm();
    assert_string_equal(url.path, "/x.db");
    said(hf_url_parse("sqlite:", &url, &err), 0, NULL);
    said(drv->resolve(&url, &err), 0, NULL);
    assert_string_equal(url.path, "");
    memset(url.path, 'x', sizeof url.path - 1);
    url.path[sizeof url.path - 1] = 0;
    said(drv->resolve(&url, &err), HF_INVALID, "too long");
}

/* Another file in place of the database isn't written to, and no call reports the former rows as
   gone. A file that can't be looked at isn't a removed one. */
static void a_replaced_file_is_another_world(void **state)
{
    (void)state;
    static const int hows[] = {-1 /* another device */, ENOENT, ENOTDIR, EACCES};
    for (size_t o = 0; o < COUNT(ops); o++)
        for (size_t i = 0; i < COUNT(hows); i++) {
            if (ops[o].run == hear || ops[o].run == inspect || ops[o].run == open_another) continue;
            if (ops[o].run == sync_it) continue;
            hf_store *st = opened();
            prepare(&ops[o], NULL);
            arm("stat", 1, 1, hows[i]);
            int rc = ops[o].run(st);
            disarm();
            int gone = hows[i] != EACCES;
            if (rc != (gone ? HF_CORRUPT : HF_UNAVAILABLE))
                fail_msg("%s: %d, %s", ops[o].name, rc, err.text);
            said(rc, rc, gone ? "removed or replaced" : "can't look at");
            drv->close(st);
        }
}

int main(void)
{
    if (sqlite_begin()) return 1;
    hf_store *st = opened();
    if (take(st)) return 1;
    drv->close(st);
    writes("PRAGMA synchronous = OFF; CREATE TABLE model AS SELECT * FROM holdfast;"
           "CREATE TABLE holdfast_enter (key TEXT, token INTEGER)");
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_fail),
        cmocka_unit_test(what_was_dropped_isnt_made),
        cmocka_unit_test(what_the_system_said_counts),
        cmocka_unit_test(opening_fails),
        cmocka_unit_test(relative_names),
        cmocka_unit_test(a_replaced_file_is_another_world),
    };
    int failed_tests = TEST_MAIN(tests);
    sqlite3_close(other);
    return failed_tests;
}
