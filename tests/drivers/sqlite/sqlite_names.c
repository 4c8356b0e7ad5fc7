/*
 * sqlite_names.c - the name of a database: what a holder is told when the file under it is removed
 * or replaced, and which second names of a file are refused, because SQLite's -wal and -shm stand
 * beside each name. Needs root, for a mount.
 */
#include "sqlite_own.h"
#include "test.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[600], there[640], away[640];

static hf *store(const char *name)
{
    hf *h;
    char url[700];
    snprintf(url, sizeof url, "sqlite:%s", name);
    said(hf_open(url, NULL, &h, &err), 0, NULL);
    return h;
}

static hf_lock *held(hf *h, const char *what)
{
    hf_lock *lock;
    hf_options o = HF_OPTIONS_INIT;
    o.wait_ms = 0;
    o.lease_ms = 600000; /* its end tells nobody here */
    said(hf_acquire(h, what, &o, &lock, &err), 0, NULL);
    return lock;
}

/* ---- the file goes while a lock is held ---- */

static void removed(void)
{
    snprintf(away, sizeof away, "%s.away", path);
    assert_int_equal(rename(path, away), 0);
}

static void replaced(void)
{
    removed();
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
}

static int confirms(hf_lock *lock) { return hf_confirm(lock, &err); }
static int renews(hf_lock *lock) { return hf_renew(lock, 0, &err); }

static void a_holder_is_told(void **state)
{
    (void)state;
    static void (*const goes[])(void) = {removed, replaced};
    static const char *const keys[] = {"a", "b", "c", "d"};
    static int (*const asks[])(hf_lock *) = {confirms, renews};
    for (size_t i = 0; i < 4; i++) {
        hf *h = store(path);
        hf_lock *lock = held(h, keys[i]); /* the row stays in the file that is away */
        struct pollfd told = {hf_lost_fd(lock), POLLIN, 0};
        goes[i % 2]();
        size_t n = 0;
        do { /* what a renewal meets may pass: it is a loss if it is still so after a pause */
            said(asks[i / 2](lock), HF_CORRUPT, "was removed or replaced");
            n++;
        } while (i / 2 && !poll(&told, 1, 50));
        assert_true(n > i / 2);
        assert_int_equal(poll(&told, 1, 0), 1);
        said(hf_lost_reason(lock, &err), HF_CORRUPT, "was removed or replaced");
        assert_true(hf_left_ms(lock) <= 0);
        hf_release(lock, NULL);
        hf_close(h);
        assert_int_equal(rename(away, path), 0);
    }
}

/* ---- second names ---- */

static int is_granted(const char *name)
{
    hf *h;
    hf_lock *lock;
    hf_options o = HF_OPTIONS_INIT;
    char url[700];
    snprintf(url, sizeof url, "sqlite:%s", name);
    int rc = hf_open(url, NULL, &h, &err);
    if (rc) return rc;
    o.wait_ms = 0;
    rc = hf_acquire(h, "k", &o, &lock, &err);
    hf_close(h);
    return rc;
}

/* A process that held the key before the second name was made goes on; nobody comes by either
   name. */
static void hard_links_are_refused(void **state)
{
    (void)state;
    hf *h = store(path);
    hf_lock *lock = held(h, "k");
    snprintf(there, sizeof there, "%s.link", path);
    assert_int_equal(link(path, there), 0);
    said(is_granted(there), HF_UNSUPPORTED, "2 names (hard links)");
    said(is_granted(path), HF_UNSUPPORTED, "2 names (hard links)");
    said(hf_confirm(lock, &err), 0, NULL);
    said(hf_renew(lock, 0, &err), 0, NULL);
    assert_int_equal(unlink(there), 0);
    said(is_granted(path), HF_BUSY, NULL);
    hf_close(h);
}

static void symbolic_links_are_followed(void **state)
{
    (void)state;
    hf *h = store(path);
    hf_lock *lock = held(h, "k");
    snprintf(there, sizeof there, "%s.symlink", path);
    assert_int_equal(symlink(path, there), 0);
    said(is_granted(there), HF_BUSY, NULL);
    said(hf_release(lock, &err), 0, NULL);
    hf_close(h);
    h = store(there);
    lock = held(h, "k");
    said(is_granted(path), HF_BUSY, NULL);
    said(hf_release(lock, &err), 0, NULL);
    hf_close(h);
    assert_int_equal(unlink(there), 0);
}

/* Mounts in a namespace of its own. Returns 0 if the mounted directory is the same store, and the
   mounted file is refused. */
static int sees_mounts(void)
{
    char dir[640], name[700];
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL)) return 1;
    snprintf(name, sizeof name, "%s", path);
    *strrchr(name, '/') = 0;
    snprintf(dir, sizeof dir, "%s.mount", path);
    if (mkdir(dir, 0700) || mount(name, dir, NULL, MS_BIND, NULL)) return 2;
    snprintf(name, sizeof name, "%s%s", dir, strrchr(path, '/'));
    if (is_granted(name) != HF_BUSY) return 3;
    if (umount(dir) || rmdir(dir)) return 4;
    snprintf(name, sizeof name, "%s.mounted", path);
    int fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || close(fd) || mount(path, name, NULL, MS_BIND, NULL)) return 5;
    if (is_granted(name) != HF_UNSUPPORTED || !strstr(err.text, "mount its directory")) return 6;
    return umount(name) || unlink(name) ? 7 : 0;
}

static void mounts_of_one_file_are_refused(void **state)
{
    (void)state;
    int status;
    hf *h = store(path);
    held(h, "k");
    pid_t child = fork();
    if (!child) _exit(sees_mounts());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    hf_close(h);
}

/* SQLite's names of a database in memory, which no other process would see. With a folder before
   it such a name is a file's. */
static void a_database_in_memory_is_refused(void **state)
{
    (void)state;
    static const char *const names[] = {":memory:", "file::memory:", ":memory:?table=locks"};
    char here[640], dir[640], name[700];
    assert_non_null(getcwd(here, sizeof here));
    snprintf(dir, sizeof dir, "%s.memory", path);
    assert_int_equal(mkdir(dir, 0700), 0);
    assert_int_equal(chdir(dir), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        said(is_granted(names[i]), HF_INVALID, "write mem: for the threads of one process");
    assert_int_equal(chdir(here), 0);
    assert_int_equal(rmdir(dir), 0); /* no file was made */
    snprintf(name, sizeof name, "%s.d", path);
    assert_int_equal(mkdir(name, 0700), 0);
    snprintf(name, sizeof name, "%s.d/:memory:", path);
    said(is_granted(name), 0, NULL);
    assert_int_equal(access(name, F_OK), 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_holder_is_told),
        cmocka_unit_test(hard_links_are_refused),
        cmocka_unit_test(symbolic_links_are_followed),
        cmocka_unit_test(mounts_of_one_file_are_refused),
        cmocka_unit_test(a_database_in_memory_is_refused),
    };
    if (sqlite_begin()) return 1;
    sqlite3_close(other);
    snprintf(path, sizeof path, "%s", url_text + strlen("sqlite:"));
    return TEST_MAIN(tests);
}
