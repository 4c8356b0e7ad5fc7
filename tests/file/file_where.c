/*
 * file_where.c - the `file:` driver: where the default store is, how its directories are made and
 * why they can't be made; a store that is only looked at; the one for a trial.
 */
#include "file_common.h"

#include <errno.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

enum { USER = 1234 };

/* ---- the system ---- */

static const char *passwd_home; /* the caller's home directory; NULL: passwd doesn't have the
                                   caller */
int __real_getpwuid_r(uid_t who, struct passwd *to, char *buffer, size_t n, struct passwd **ret);
int __wrap_getpwuid_r(uid_t who, struct passwd *to, char *buffer, size_t n, struct passwd **ret);
int __wrap_getpwuid_r(uid_t who, struct passwd *to, char *buffer, size_t n, struct passwd **ret)
{
    (void)who;
    *ret = NULL;
    if (!passwd_home) return EIO;
    snprintf(buffer, n, "%s", passwd_home);
    to->pw_dir = buffer;
    *ret = to;
    return 0;
}

static const char *mkdir_fails_at; /* every one from that path on */
static int mkdir_says;
int __real_mkdir(const char *name, mode_t mode);
int __wrap_mkdir(const char *name, mode_t mode);
int __wrap_mkdir(const char *name, mode_t mode)
{
    if (!mkdir_fails_at || strncmp(name, mkdir_fails_at, strlen(mkdir_fails_at)))
        return __real_mkdir(name, mode);
    errno = !strcmp(name, mkdir_fails_at) ? mkdir_says : ENOENT;
    return -1;
}

static int is_root; /* 1: the caller is root, and what is called "theirs" is another user's */
static int everything_is_ours;
uid_t __real_geteuid(void);
uid_t __wrap_geteuid(void);
uid_t __wrap_geteuid(void) { return is_root ? 0 : __real_geteuid(); }

int __real_stat64(const char *name, struct stat *s);
int __wrap_stat64(const char *name, struct stat *s);
int __wrap_stat64(const char *name, struct stat *s)
{
    int rc = __real_stat64(name, s);
    if (!rc && is_root) s->st_uid = strstr(name, "/theirs") && !everything_is_ours ? USER : 0;
    return rc;
}

static int no_access;
int __real_access(const char *name, int how);
int __wrap_access(const char *name, int how);
int __wrap_access(const char *name, int how)
{
    if (!no_access) return __real_access(name, how);
    errno = EACCES;
    return -1;
}

/* ---- what is asked ---- */

static void opens_as(const char *url, int code, const char *says)
{
    hf_error err = {0, 0, ""};
    int rc = open_code(url, &err);
    if (rc != code || (code && !strstr(err.text, says)))
        fail_msg("%s: %d, %s: not %d, %s", url, rc, err.text, code, says);
}

static char home[100], store[200];

static int exists(const char *name)
{
    struct stat s;
    return !__real_stat64(name, &s);
}

/* A new, empty home: the default store's directories are made in it with the first store. */
static int new_home(void **unused)
{
    static int n;
    if (new_path(unused)) return 1;
    snprintf(home, sizeof home, "%s/home%d", dir, n++);
    snprintf(store, sizeof store, "%s/.local/state/holdfast/locks", home);
    unsetenv("XDG_STATE_HOME");
    setenv("HOME", home, 1);
    umask(022);
    passwd_home = mkdir_fails_at = NULL;
    is_root = everything_is_ours = no_access = 0;
    return __real_mkdir(home, 0700);
}

/* ---- tests ---- */

static void without_home_the_passwd_says(void **unused)
{
    (void)unused;
    unsetenv("HOME");
    passwd_home = home;
    opens_as("file:", 0, "");
    assert_true(exists(store));
    setenv("HOME", "", 1);
    opens_as("file:", 0, "");
    passwd_home = "relative";
    opens_as("file:", HF_INVALID, "neither XDG_STATE_HOME nor HOME");
    passwd_home = NULL;
    opens_as("file:", HF_INVALID, "neither XDG_STATE_HOME nor HOME");
    setenv("HOME", "not/absolute", 1);
    opens_as("file:", HF_INVALID, "HOME is 'not/absolute', which doesn't begin with '/'");
    char far[2000];
    memset(far, '/', sizeof far);
    far[sizeof far - 1] = 0;
    setenv("XDG_STATE_HOME", far, 1);
    opens_as("file:", HF_INVALID, "neither XDG_STATE_HOME nor HOME");
}

/* A home directory that isn't there is not made; XDG_STATE_HOME is. */
static void a_home_is_not_made(void **unused)
{
    (void)unused;
    assert_int_equal(rmdir(home), 0);
    opens_as("file:", HF_UNAVAILABLE, "isn't made: No such file or directory; name a store");
    assert_false(exists(home));
    setenv("XDG_STATE_HOME", home, 1);
    opens_as("file:", 0, "");
    assert_true(exists(home));
}

/* A umask such as 0777 doesn't keep the user out of the directories. */
static void the_umask_leaves_its_user_in(void **unused)
{
    char made[400];
    struct stat s;
    (void)unused;
    setenv("XDG_STATE_HOME", home, 1);
    snprintf(store, sizeof store, "%s/holdfast/locks", home);
    assert_int_equal(rmdir(home), 0);
    mode_t before = umask(0777);
    opens_as("file:", 0, "");
    umask(before);
    snprintf(made, sizeof made, "%s", store);
    *strrchr(made, '/') = 0;
    assert_int_equal(__real_stat64(made, &s), 0);
    assert_int_equal(s.st_mode & 07777, 0700);
    assert_int_equal(__real_stat64(home, &s), 0);
    assert_int_equal(s.st_mode & 07777, 0700);
    opens_as("file:", 0, "");
}

/* The error names the first directory that can't be made, not what follows from that. */
static void the_first_reason_is_told(void **unused)
{
    static const struct {
        int sys, code;
        const char *says;
    } cases[] = {
        {EROFS, HF_DENIED, "Read-only file system"},   {EACCES, HF_DENIED, "Permission denied"},
        {EPERM, HF_DENIED, "Operation not permitted"}, {ENOSPC, HF_FULL, "No space left"},
        {EDQUOT, HF_FULL, "quota exceeded"},           {ENAMETOOLONG, HF_INVALID, "too long"},
        {EIO, HF_UNAVAILABLE, "Input/output error"}};
    char first[300];
    (void)unused;
    snprintf(first, sizeof first, "%s/.local", home);
    mkdir_fails_at = first;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char says[400];
        mkdir_says = cases[i].sys;
        opens_as("file:", cases[i].code, cases[i].says);
        snprintf(says, sizeof says, "make directory '%s'", first);
        opens_as("file:", cases[i].code, says);
    }
    /* An existing directory needn't be made, whatever mkdir says. */
    mkdir_fails_at = NULL;
    opens_as("file:", 0, "");
    assert_int_equal(unlink(store), 0);
    mkdir_says = EROFS;
    snprintf(first, sizeof first, "%s", dir);
    mkdir_fails_at = first;
    opens_as("file:", 0, "");
    assert_true(exists(store));
}

/* Only the default's. */
static void no_other_directories_are_made(void **unused)
{
    char url[500];
    (void)unused;
    snprintf(url, sizeof url, "file:%s/a/b/locks", home);
    opens_as(url, HF_UNAVAILABLE, "No such file or directory");
    assert_int_equal(rmdir(home), 0); /* nothing is in it */
}

static void root_writes_nothing_into_a_users_home(void **unused)
{
    char theirs[300];
    (void)unused;
    is_root = 1;
    snprintf(theirs, sizeof theirs, "%s/theirs", home);
    setenv("HOME", theirs, 1);
    assert_int_equal(__real_mkdir(theirs, 0700), 0);
    opens_as("file:", HF_DENIED, "belongs to user 1234, where root writes nothing");
    passwd_home = home;
    opens_as("file:", 0, "");
    assert_true(exists(store));
    assert_int_equal(rmdir(theirs), 0); /* nothing is in it */
    /* Nor does it make one below another user's directory. */
    assert_int_equal(__real_mkdir(theirs, 0700), 0);
    snprintf(theirs, sizeof theirs, "%s/theirs/new/home", home);
    setenv("HOME", theirs, 1);
    passwd_home = NULL;
    opens_as("file:", HF_DENIED, "belongs to user");
    /* The other variable, too; HOME is root's. */
    setenv("XDG_STATE_HOME", theirs, 1);
    setenv("HOME", home, 1);
    opens_as("file:", 0, "");
    assert_false(exists(theirs));
    everything_is_ours = 1;
    opens_as("file:", 0, "");
    assert_true(exists(theirs));
    /* A user who isn't root writes where the system permits it. */
    is_root = 0;
    opens_as("file:", 0, "");
}

/* ---- looking makes nothing ---- */

static int look(const char *url_is, hf_error *err)
{
    hf_open_options o = HF_OPEN_OPTIONS_INIT;
    hf *h;
    o.flags = HF_OPEN_EXISTING;
    int rc = hf_open(url_is, &o, &h, err);
    if (!rc) hf_close(h);
    return rc;
}

static void looking_makes_no_store(void **unused)
{
    hf_error err;
    (void)unused;
    assert_int_equal(look("file:", &err), HF_UNAVAILABLE);
    assert_int_equal(err.sys, ENOENT);
    assert_non_null(strstr(err.text, "no store at"));
    assert_int_equal(rmdir(home), 0); /* nothing is in it */
    assert_int_equal(look(url_text, &err), HF_UNAVAILABLE);
    assert_int_equal(err.sys, ENOENT);
    assert_false(exists(path));
    opens_as(url_text, 0, "");
    assert_int_equal(look(url_text, &err), 0);
    hf_open_options o = HF_OPEN_OPTIONS_INIT;
    hf *h;
    o.flags = 2;
    assert_int_equal(hf_open(url_text, &o, &h, &err), HF_INVALID);
}

/* ---- a store for a trial ---- */

static void a_trial_is_beside_it(void **unused)
{
    hf_url url, trial;
    hf_error err;
    hf_store *st;
    (void)unused;
    assert_int_equal(hf_url_parse(url_text, &url, &err), 0);
    url.existing = 1;
    assert_int_equal(drv->scratch(&url, &trial, &err), 0);
    assert_int_equal(strncmp(trial.path, path, strlen(path)), 0);
    assert_int_equal(trial.existing, 0);
    assert_int_equal(drv->open(&trial, 1000, &st, &(hf_caps){0}, &err), 0);
    assert_true(exists(trial.path));
    drv->close(st);
    drv->discard(&trial);
    assert_false(exists(trial.path));
    assert_false(exists(path));
    /* Where the directory isn't there, in the nearest that is. */
    assert_int_equal(rmdir(home), 0);
    snprintf(url.path, sizeof url.path, "%s/x/y/locks", home);
    assert_int_equal(drv->scratch(&url, &trial, &err), 0);
    assert_int_equal(strncmp(trial.path, dir, strlen(dir)), 0);
    assert_null(strchr(trial.path + strlen(dir) + 1, '/'));
    snprintf(url.path, sizeof url.path, "/locks");
    assert_int_equal(drv->scratch(&url, &trial, &err), geteuid() ? HF_DENIED : 0);
    no_access = 1;
    assert_int_equal(drv->scratch(&url, &trial, &err), HF_DENIED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(without_home_the_passwd_says, new_home),
        cmocka_unit_test_setup(a_home_is_not_made, new_home),
        cmocka_unit_test_setup(the_umask_leaves_its_user_in, new_home),
        cmocka_unit_test_setup(the_first_reason_is_told, new_home),
        cmocka_unit_test_setup(no_other_directories_are_made, new_home),
        cmocka_unit_test_setup(root_writes_nothing_into_a_users_home, new_home),
        cmocka_unit_test_setup(looking_makes_no_store, new_home),
        cmocka_unit_test_setup(a_trial_is_beside_it, new_home),
    };
    return TEST_MAIN_WITH(tests, make_dir, remove_dir);
}
