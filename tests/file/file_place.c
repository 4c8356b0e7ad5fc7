/*
 * file_place.c - the `file:` driver and its file: where it is, whose it is, what is wrong with it,
 * full disks, other mounts, reboots. Needs root, for mounts and other users.
 */
#include "../../drivers/file/store.h"

#include "file_common.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif

/* Checks in a child process, which may change its user or namespaces. Its status is the line that
   failed. */
#define CHECK(truth)                                              \
    do {                                                          \
        if (!(truth)) {                                           \
            fprintf(stderr, "# line %d: %s\n", __LINE__, #truth); \
            _exit(1);                                             \
        }                                                         \
    } while (0)

static void in_child(void (*what)(void))
{
    int status;
    pid_t child = fork();
    if (!child) {
        what();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static int code_of(const char *url)
{
    hf_error err;
    int rc = open_code(url, &err);
    if (rc && strchr(err.text, '\n')) rc = 1; /* errors are one line */
    return rc;
}

static unsigned mode_of(const char *name)
{
    struct stat s;
    return stat(name, &s) ? 0 : s.st_mode & 07777;
}

static void write_file(const char *name, const void *text, size_t n)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, n), n);
    close(fd);
}

/* ---- where ---- */

static void the_default_place(void **state)
{
    char name[300];
    (void)state;
    umask(0);
    snprintf(name, sizeof name, "%s/state", dir);
    setenv("XDG_STATE_HOME", name, 1);
    assert_int_equal(code_of("file:"), 0);
    assert_int_equal(mode_of(name), 0700);
    snprintf(name, sizeof name, "%s/state/holdfast", dir);
    assert_int_equal(mode_of(name), 0700);
    snprintf(name, sizeof name, "%s/state/holdfast/locks", dir);
    assert_int_equal(mode_of(name), 0600);
    setenv("XDG_STATE_HOME", "relative/is/refused", 1);
    setenv("HOME", dir, 1);
    assert_int_equal(code_of("file:"), HF_INVALID);
    setenv("XDG_STATE_HOME", "", 1);
    assert_int_equal(code_of("file:"), 0);
    snprintf(name, sizeof name, "%s/.local/state/holdfast/locks", dir);
    assert_int_equal(mode_of(name), 0600);
    unsetenv("XDG_STATE_HOME");
    umask(022);
}

static void a_relative_path_goes_on_meaning_the_same(void **state)
{
    hf_store *st;
    hf_row row;
    hf_event_count since;
    hf_error err;
    hf_url url;
    (void)state;
    hf_row_init(&row);
    assert_int_equal(chdir(dir), 0);
    assert_int_equal(hf_url_parse("file:here", &url, &err), 0);
    assert_int_equal(drv->open(&url, 5000, &st, &(hf_caps){0}, &err), 0);
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(drv->caps.local->wakeup_begin(st, 0, 0, &since, &err), 0);
    assert_int_equal(drv->caps.local->sleep(st, 0, &since, hf__local_us() + 1000, &err),
                     0); /* looks at it */
    get(st, "k", &row);
    drv->close(st);
    snprintf(path, sizeof path, "%s/here", dir);
    assert_int_equal(mode_of(path), 0600);
}

static void options_are_checked(void **state)
{
    char text[300];
    (void)state;
    snprintf(text, sizeof text, "%s?mode=0660", url_text);
    assert_int_equal(code_of(text), 0);
    assert_int_equal(mode_of(path), 0660);
    const char *bad[] = {"?mode=",
                         "?mode=abc",
                         "?mode=0999",
                         "?mode=0400",
                         "?mode=0755",
                         "?mode=1000",
                         "?colour=1",
                         "?force=maybe",
                         "?force=",
                         "?force=2",
                         "?mode=0600&mode=0600",
                         "?force=1&force=1",
                         "?moda=0600",
                         "?forca=1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(text, sizeof text, "%s%s", url_text, bad[i]);
        if (code_of(text) != HF_INVALID) fail_msg("%s is accepted", bad[i]);
    }
    assert_int_equal(code_of("file://host/path"), HF_INVALID);
    assert_int_equal(code_of("file://me@/path"), HF_INVALID);
    assert_int_equal(code_of("file://:80/path"), HF_INVALID);
    snprintf(text, sizeof text, "%s?force=0&mode=0640", url_text);
    assert_int_equal(code_of(text), 0);
    snprintf(text, sizeof text, "file:%s/no/such/directory", dir);
    assert_int_equal(code_of(text), HF_UNAVAILABLE);
    snprintf(text, sizeof text, "%s/below", url_text);
    assert_int_equal(code_of(text), HF_INVALID);
}

/* ---- whose, and what ---- */

static void what_is_not_ours_is_refused(void **state)
{
    char name[300];
    (void)state;
    assert_int_equal(code_of(url_text), 0);
    assert_int_equal(chown(path, 12345, 0), 0);
    assert_int_equal(code_of(url_text), HF_DENIED);
    assert_int_equal(chown(path, 0, 0), 0);
    assert_int_equal(chmod(path, 0620), 0);
    assert_int_equal(code_of(url_text), HF_DENIED);
    assert_int_equal(chmod(path, 0644), 0); /* others may look */
    assert_int_equal(code_of(url_text), 0);
    snprintf(name, sizeof name, "%s.real", path);
    assert_int_equal(rename(path, name), 0);
    assert_int_equal(symlink(name, path), 0);
    assert_int_equal(code_of(url_text), HF_DENIED);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/nowhere", path), 0);
    assert_int_equal(code_of(url_text), HF_DENIED);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(code_of(url_text), HF_INVALID);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(code_of(url_text), HF_INVALID);
}

static void as_nobody(void)
{
    char name[300];
    snprintf(name, sizeof name, "file:%s/nobody's", dir);
    CHECK(!setgid(65534) && !setuid(65534));
    CHECK(code_of(name) == HF_DENIED);     /* the directory can't be written */
    CHECK(code_of(url_text) == HF_DENIED); /* the file neither */
}

static void as_root_read_only(void)
{
    CHECK(!unshare(CLONE_NEWNS) && !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    CHECK(!mount(dir, dir, NULL, MS_BIND, NULL));
    CHECK(!mount(NULL, dir, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL));
    CHECK(code_of(url_text) == HF_DENIED);
    new_path(NULL);
    CHECK(code_of(url_text) == HF_DENIED);
}

static void what_cannot_be_written_is_denied(void **state)
{
    (void)state;
    assert_int_equal(code_of(url_text), 0);
    assert_int_equal(chmod(dir, 0755), 0);
    in_child(as_nobody);
    assert_int_equal(chmod(dir, 0700), 0);
    in_child(as_root_read_only);
}

static void other_filesystems_are_refused(void **state)
{
    hf_error err;
    (void)state;
    assert_int_equal(open_code("file:/proc/self/oom_score_adj", &err), HF_UNSUPPORTED);
    assert_non_null(strstr(err.text, "proc"));
    assert_int_equal(open_code("file:/proc/self/oom_score_adj?force=1", &err), HF_CORRUPT);
}

/* ---- damage ---- */

static void what_is_no_store_is_an_error(void **state)
{
    static char text[70000];
    (void)state;
    write_file(path, "", 0);
    assert_int_equal(code_of(url_text), HF_CORRUPT);
    assert_int_equal(mode_of(path), 0600);
    write_file(path, "notes\n", 6);
    assert_int_equal(code_of(url_text), HF_CORRUPT);
    memset(text, 'x', sizeof text);
    write_file(path, text, sizeof text);
    assert_int_equal(code_of(url_text), HF_CORRUPT);
    struct stat s;
    assert_int_equal(stat(path, &s), 0);
    assert_int_equal(s.st_size, sizeof text); /* and isn't touched */
}

static void every_truncation_is_an_error(void **state)
{
    struct stat s;
    (void)state;
    assert_int_equal(code_of(url_text), 0);
    assert_int_equal(stat(path, &s), 0);
    for (off_t n = s.st_size - 1; n > 0; n -= n > 9000 ? 8191 : 61) {
        assert_int_equal(truncate(path, n), 0);
        if (code_of(url_text) != HF_CORRUPT) fail_msg("cut to %lld bytes", (long long)n);
    }
}

static void expect_broken(hf_store *st, const char *why)
{
    hf_rowkey key = key_of("k");
    hf_error err;
    hf_row row;
    int64_t clock_us;
    hf_row_init(&row);
    drv->caps.liveness->death_read(st);
    assert_int_equal(drv->get(st, &key, &row, &clock_us, &err), HF_CORRUPT);
    assert_non_null(strstr(err.text, why));
    assert_int_equal(sync_event(st, &err), HF_CORRUPT);
    drv->close(st);
}

static void a_file_that_changes_under_us_is_noticed(void **state)
{
    char name[300];
    hf_store *st = open_store();
    hf_error err;
    hf_event_count since;
    struct stat s;
    (void)state;
    drv->caps.liveness->death_fd(st);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(code_of(url_text), 0); /* another one is made */
    expect_broken(st, "removed");

    st = open_store();
    drv->caps.liveness->death_fd(st);
    snprintf(name, sizeof name, "%s.other", path);
    assert_int_equal(rename(path, name), 0);
    expect_broken(st, "moved");

    st = open_store();
    drv->caps.liveness->death_fd(st);
    assert_int_equal(stat(path, &s), 0);
    assert_int_equal(truncate(path, s.st_size - 4096), 0);
    expect_broken(st, "truncated");

    assert_int_equal(unlink(path), 0);
    st = open_store(); /* without inotify, a sleep that no wakeup ends checks the file */
    assert_int_equal(rename(name, path), 0);
    assert_int_equal(drv->caps.local->wakeup_begin(st, 0, 0, &since, &err), 0);
    assert_int_equal(drv->caps.local->sleep(st, 0, &since, hf__local_us() + 1000, &err),
                     HF_CORRUPT);
    drv->close(st);
}

/* ---- full disks ---- */

static void in_a_small_tmpfs(void)
{
    char mount_point[100], text[200], key[32];
    hf_url url;
    hf_error err;
    hf_store *st;
    hf_row row, cur;
    int64_t clock_us;
    glob_t left = {0};
    int n, rc = 0;
    CHECK(!unshare(CLONE_NEWNS) && !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    snprintf(mount_point, sizeof mount_point, "%s/small", dir);
    CHECK(!mkdir(mount_point, 0700) && !mount("none", mount_point, "tmpfs", 0, "size=64k"));
    snprintf(text, sizeof text, "file:%s/locks", mount_point);
    CHECK(code_of(text) == HF_FULL); /* too small for an empty store */
    snprintf(key, sizeof key, "/*");
    snprintf(text, sizeof text, "%s/*", mount_point);
    CHECK(glob(text, 0, NULL, &left) == GLOB_NOMATCH); /* nothing is left behind */

    CHECK(!mount("none", mount_point, "tmpfs", 0, "size=6m"));
    snprintf(text, sizeof text, "file:%s/locks", mount_point);
    CHECK(!hf_url_parse(text, &url, &err) && !drv->open(&url, 5000, &st, &(hf_caps){0}, &err));
    hf_row_init(&row);
    hf_row_init(&cur);
    for (n = 0; !rc && n < 100000; n++) {
        snprintf(key, sizeof key, "k%d", n);
        hf_rowkey k = key_of(key);
        fill_row(&row, 10, 1, 0);
        rc = drv->replace(st, &k, 0, &row, NULL, &clock_us, &err);
    }
    CHECK(rc == HF_FULL && err.sys == ENOSPC);
    for (int i = 0; i < n - 1; i++) { /* keys that exist still work */
        snprintf(key, sizeof key, "k%d", i);
        get(st, key, &cur);
        CHECK(cur.rev == 10);
        row.rev = 11;
        CHECK(replace(st, key, 10, &row, NULL) == 0);
    }
    hf_row_clear(&row);
    hf_row_clear(&cur);
    drv->close(st);
}

static void a_full_disk_is_an_error_only(void **state)
{
    (void)state;
    in_child(in_a_small_tmpfs);
}

/* ---- other views ---- */

static void at_another_mount(void)
{
    char there[200], text[300];
    hf_url url;
    hf_error err;
    hf_row row;
    hf_store *st = open_store(), *other;
    hf_row_init(&row);
    CHECK(!unshare(CLONE_NEWNS) && !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    snprintf(there, sizeof there, "%s/there", dir);
    CHECK(!mkdir(there, 0700) && !mount(dir, there, NULL, MS_BIND, NULL));
    snprintf(text, sizeof text, "file:%s%s", there, strrchr(path, '/'));
    CHECK(!hf_url_parse(text, &url, &err) && !drv->open(&url, 5000, &other, &(hf_caps){0}, &err));
    fill_row(&row, 7, 1, 0);
    CHECK(replace(st, "k", 0, &row, NULL) == 0);
    row.rev = 0;
    get(other, "k", &row);
    CHECK(row.rev == 7);
    uint64_t session;
    CHECK(!drv->caps.liveness->session(st, &session, &err) &&
          drv->caps.liveness->alive(other, session, &err) == 1);
    drv->close(st);
    CHECK(drv->caps.liveness->alive(other, session, &err) == 0);
    drv->close(other);
    hf_row_clear(&row);
}

static void two_mounts_of_a_file_are_one_store(void **state)
{
    (void)state;
    in_child(at_another_mount);
}

static void in_another_time_namespace(void)
{
    int status;
    CHECK(!unshare(CLONE_NEWTIME));
    pid_t child = fork(); /* the new namespace counts for its children */
    if (!child) _exit(code_of(url_text) != HF_UNSUPPORTED);
    CHECK(waitpid(child, &status, 0) == child && !status);
}

static void another_time_namespace_is_refused(void **state)
{
    (void)state;
    assert_int_equal(code_of(url_text), 0);
    in_child(in_another_time_namespace);
}

/* ---- reboots ---- */

/* Changes the file as if it were of an earlier boot. */
static void reboot(void)
{
    struct hf__boot b[2];
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, b, sizeof b, HF_AT_BOOT), sizeof b);
    for (int i = 0; i < 2; i++) {
        b[i].boot_id[0] ^= 0xff;
        b[i].sum = hf__sum(&b[i], offsetof(struct hf__boot, sum), 1);
    }
    assert_int_equal(pwrite(fd, b, sizeof b, HF_AT_BOOT), sizeof b);
    close(fd);
}

enum { EVENTS = 300 };

static void a_reboot_keeps_markers_and_tokens(void **state)
{
    hf_store *st = open_store();
    hf_row row, cur;
    hf_party p;
    char text[32];
    (void)state;
    hf_row_init(&row);
    hf_row_init(&cur);
    int64_t before = drv->caps.local->now(st);
    for (int i = 0; i < EVENTS; i++) {
        snprintf(text, sizeof text, "event/%d", i);
        fill_row(&row, (uint64_t)before + 50000000, 1, 2);
        row.done_us = i % 2 ? 99 + i : 0;
        row.keep_until_us = INT64_MAX;
        row.result_len = (uint16_t)snprintf(row.result, sizeof row.result, "result %d", i);
        row.done_by_len = 0;
        row.done_by[0] = 0;
        assert_int_equal(replace(st, text, 0, &row, NULL), 0);
    }
    for (int i = 0; i < EVENTS; i += 10) { /* some are deleted */
        snprintf(text, sizeof text, "event/%d", i + 1);
        assert_int_equal(replace(st, text, row.rev, NULL, NULL), 0);
    }
    drv->close(st);
    const uint64_t least = row.rev;
    uint64_t last = least;
    for (int boot = 0; boot < 3; boot++) {
        reboot();
        st = open_store();
        assert_true((uint64_t)drv->caps.local->now(st) > last); /* beyond every rev */
        for (int i = 0; i < EVENTS; i++) {
            snprintf(text, sizeof text, "event/%d", i);
            get(st, text, &cur);
            assert_int_equal(cur.n_holders + cur.n_queue, 0);
            int deleted = i % 10 == 1;
            assert_true(deleted ? cur.rev == 0 : cur.rev >= least);
            assert_int_equal(cur.done_us, i % 2 && !deleted ? 99 + i : 0);
            snprintf(text, sizeof text, "result %d", i);
            if (cur.done_us) assert_string_equal(cur.result, text);
        }
        fill_party(&p, boot, "");
        assert_int_equal(take(st, "event/298", &p, &cur), 0);
        assert_true(cur.token > last);
        /* a rev that is far ahead of the clock, as after very many writes */
        last = cur.token + 70000000;
        uint64_t seen = cur.rev;
        cur.rev = last;
        assert_int_equal(replace(st, "event/298", seen, &cur, NULL), 0);
        drv->close(st);
    }
    hf_row_clear(&row);
    hf_row_clear(&cur);
}

static void nobody_recovers_what_is_in_use(void **state)
{
    hf_store *st = open_store();
    hf_error err;
    (void)state;
    reboot();
    assert_int_equal(open_code(url_text, &err), HF_UNAVAILABLE);
    assert_non_null(strstr(err.text, "in use"));
    drv->close(st);
    assert_int_equal(open_code(url_text, &err), 0);
}

/* A recovery locks the bytes of all sessions, a little longer than its boot block says so. */
static void a_recovery_is_waited_for(void **state)
{
    hf_error err;
    struct flock all = {.l_type = F_WRLCK,
                        .l_whence = SEEK_SET,
                        .l_start = HF_BYTE_SESSION,
                        .l_len = HF_BYTE_RECOVER - HF_BYTE_SESSION + 1};
    int up[2], raw;
    char c;
    (void)state;
    assert_int_equal(open_code(url_text, &err), 0);
    assert_int_equal(pipe(up), 0);
    pid_t child = fork();
    if (!child) {
        int fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0 || fcntl(fd, F_OFD_SETLK, &all) || write(up[1], "x", 1) != 1) _exit(1);
        usleep(300000);
        _exit(0);
    }
    assert_int_equal(read(up[0], &c, 1), 1);
    int rc = open_code(url_text, &err);
    if (rc) fail_msg("%s", err.text);
    assert_int_equal(waitpid(child, &raw, 0), child);
    assert_int_equal(raw, 0);
    close(up[0]);
    close(up[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_default_place, new_path),
        cmocka_unit_test_setup(a_relative_path_goes_on_meaning_the_same, new_path),
        cmocka_unit_test_setup(options_are_checked, new_path),
        cmocka_unit_test_setup(what_is_not_ours_is_refused, new_path),
        cmocka_unit_test_setup(what_cannot_be_written_is_denied, new_path),
        cmocka_unit_test_setup(other_filesystems_are_refused, new_path),
        cmocka_unit_test_setup(what_is_no_store_is_an_error, new_path),
        cmocka_unit_test_setup(every_truncation_is_an_error, new_path),
        cmocka_unit_test_setup(a_file_that_changes_under_us_is_noticed, new_path),
        cmocka_unit_test_setup(a_full_disk_is_an_error_only, new_path),
        cmocka_unit_test_setup(two_mounts_of_a_file_are_one_store, new_path),
        cmocka_unit_test_setup(another_time_namespace_is_refused, new_path),
        cmocka_unit_test_setup(a_reboot_keeps_markers_and_tokens, new_path),
        cmocka_unit_test_setup(nobody_recovers_what_is_in_use, new_path),
        cmocka_unit_test_setup(a_recovery_is_waited_for, new_path),
    };
    return TEST_MAIN_WITH(tests, make_dir, remove_dir);
}
