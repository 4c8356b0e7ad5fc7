/*
 * places.c - the store's file in places that are full, forbidden, planted, remote or seen twice.
 *
 * What can't keep the promise is refused with the reason, at once; what can be reached in two ways
 * is one store.
 */
#include "hurt.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { NOBODY = 65534, STRANGER = 4242, MEGABYTE = 1 << 20 };

/* ---- users and the files they open ---- */

struct opening {
    const char *path;
    uid_t uid;
    int code;
    char text[HF_TEXT_CAP];
};

static int open_as(struct hurt_child *me, void *arg)
{
    const struct opening *o = arg;
    hf *h;
    hf_lock *lock;
    hf_error err = {0};
    if (o->uid && (setgid(o->uid) || setuid(o->uid)))
        return hurt_say(me, "setuid: %s", strerror(errno));
    int rc = hf_open(hurt_url(o->path), NULL, &h, &err);
    if (!rc) {
        rc = hf_acquire(h, "key", NULL, &lock, &err);
        if (!rc) rc = hf_release(lock, &err);
        hf_close(h);
    }
    me->number[0] = (uint64_t)(int64_t)rc;
    hurt_say(me, "%s", err.text);
    return 0;
}

/* Opens the path as this user (0: root), in a child, and uses a key. Returns the result. */
static const struct opening *try_open(const char *path, uid_t uid)
{
    static struct opening o;
    o = (struct opening){.path = path, .uid = uid};
    struct hurt_child *c = hurt_start(open_as, &o);
    hurt_await(c, 10000);
    if (c->late) fail_msg("opening '%s' hangs", path);
    if (c->signal || c->status) fail_msg("opening '%s': %d %d", path, c->signal, c->status);
    o.code = (int)(int64_t)c->number[0];
    snprintf(o.text, sizeof o.text, "%.*s", (int)sizeof o.text - 1, c->text);
    hurt_free(c);
    return &o;
}

/* Checks that the path is refused with this code, by a text that names the path and contains
   `why`. */
static void refused(const char *path, uid_t uid, int code, const char *why)
{
    const struct opening *o = try_open(path, uid);
    if (o->code != code || !strstr(o->text, path) || !strcasestr(o->text, why) ||
        strchr(o->text, '\n'))
        fail_msg("'%s': %s, not %s with '%s': %s", path, hf_code_name(o->code), hf_code_name(code),
                 why, o->text);
}

static void works(const char *path, uid_t uid)
{
    const struct opening *o = try_open(path, uid);
    if (o->code) fail_msg("'%s': %s: %s", path, hf_code_name(o->code), o->text);
}

static const char *directory(const char *name, unsigned mode)
{
    const char *path = hurt_path("%s", name);
    if (mkdir(path, 0700)) fail_msg("mkdir %s: %s", path, strerror(errno));
    assert_int_equal(chmod(path, mode), 0);
    return path;
}

static size_t entries(const char *path)
{
    struct stat s;
    char command[300];
    size_t n = 0;
    assert_int_equal(stat(path, &s), 0);
    snprintf(command, sizeof command, "ls -A %s", path);
    FILE *list = popen(command, "r");
    assert_non_null(list);
    for (int c; (c = getc(list)) != EOF;) n += c == '\n';
    assert_int_equal(pclose(list), 0);
    return n;
}

static void mount_tmpfs(const char *path, const char *options)
{
    if (mount("none", path, "tmpfs", 0, options)) fail_msg("tmpfs: %s", strerror(errno));
}

/* Checks that a hold under one name is a hold under the other, and the other way round. */
static void exclude_each_other(const char *one, const char *two)
{
    struct hurt_child *c = hurt_holder(hurt_url(one), "key", NULL);
    assert_false(hurt_is_free(hurt_url(two), "key"));
    hurt_free(c);
    assert_true(hurt_is_free(hurt_url(two), "key"));
    c = hurt_holder(hurt_url(two), "key", NULL);
    assert_false(hurt_is_free(hurt_url(one), "key"));
    hurt_free(c);
    assert_true(hurt_is_free(hurt_url(one), "key"));
}

/* ---- full ---- */

static void full_at_creation(void **state)
{
    (void)state;
    const char *dir = directory("full", 0700);
    mount_tmpfs(dir, "size=256k");
    refused(hurt_path("full/store"), 0, HF_FULL, "no space");
    assert_int_equal(entries(dir), 0); /* nor is an incomplete store left behind */
    assert_int_equal(mount("none", dir, "tmpfs", MS_REMOUNT, "size=16m"), 0);
    works(hurt_path("full/store"), 0);
}

/* Acquires and releases key/0, key/1 ... until the store refuses. Returns how many. */
static int take_many(hf *h, int *ret_code)
{
    hf_lock *lock;
    char key[200];
    for (int i = 0;; i++) {
        snprintf(key, sizeof key, "key/%0150d", i);
        *ret_code = hf_acquire(h, key, NULL, &lock, &hurt_error);
        if (*ret_code) return i;
        OK(hf_release(lock, &hurt_error));
        if (i == 1000000) fail_msg("never full");
    }
}

static void exists_and_works(hf *h, int n)
{
    hf_lock *lock, *x;
    hf_once once;
    char key[200];
    hf_options try = HF_OPTIONS_INIT;
    try.wait_ms = 0;
    try.flags = HF_ALLOW_RECURSIVE;
    OK(hf_once_begin(h, "done", HF_FOREVER, NULL, &once, &hurt_error));
    assert_null(once.lock);
    assert_string_equal(once.result, "before");
    for (int i = 0; i < n; i += 1 + n / 100) {
        snprintf(key, sizeof key, "key/%0150d", i);
        OK(hf_acquire(h, key, NULL, &lock, &hurt_error));
        IS(HF_BUSY, hf_acquire(h, key, &try, &x, &hurt_error));
        OK(hf_release(lock, &hurt_error));
    }
}

static void finish_one(hf *h, const char *key)
{
    hf_once once;
    OK(hf_once_begin(h, key, HF_FOREVER, NULL, &once, &hurt_error));
    assert_non_null(once.lock);
    OK(hf_once_finish(once.lock, "before", HF_FOREVER, &hurt_error));
}

static void full_while_growing(void **state)
{
    const char *dir = directory("growing", 0700), *url = hurt_url(hurt_path("growing/store"));
    hf *h, *other;
    hf_lock *lock;
    int code, n;
    (void)state;
    mount_tmpfs(dir, "size=6m");
    OK(hf_open(url, NULL, &h, &hurt_error));
    OK(hf_open(url, NULL, &other, &hurt_error));
    finish_one(h, "done");
    n = take_many(h, &code);
    IS(HF_FULL, code);
    assert_non_null(strcasestr(hurt_error.text, "no space"));
    assert_true(n > 100);
    exists_and_works(h, n);
    exists_and_works(other, n);
    IS(HF_FULL, hf_acquire(other, "one more", NULL, &lock, &hurt_error));
    hf_close(other);
    OK(hf_open(url, NULL, &other, &hurt_error));
    exists_and_works(other, n);
    /* There is room again, so all handles go on. */
    assert_int_equal(mount("none", dir, "tmpfs", MS_REMOUNT, "size=32m"), 0);
    OK(hf_acquire(other, "one more", NULL, &lock, &hurt_error));
    OK(hf_acquire(h, "another", NULL, &lock, &hurt_error));
    hf_close(h);
    hf_close(other);
}

static int limited_size(struct hurt_child *me, void *arg)
{
    const struct rlimit limit = {5 * MEGABYTE, 5 * MEGABYTE};
    hf *h;
    hf_lock *lock;
    hf_error err;
    char key[200];
    int rc = hf_open(arg, NULL, &h, &err);
    if (rc) return hurt_say(me, "%s", err.text);
    /* Without a handler SIGXFSZ would end the program. */
    if (setrlimit(RLIMIT_FSIZE, &limit)) return hurt_say(me, "setrlimit: %s", strerror(errno));
    for (int i = 0; !rc && i < 1000000; i++) {
        snprintf(key, sizeof key, "key/%0150d", i);
        rc = hf_acquire(h, key, NULL, &lock, &err);
        if (!rc) rc = hf_release(lock, &err);
    }
    if (rc != HF_FULL) return hurt_say(me, "%s: %s", hf_code_name(rc), err.text);
    rc = hf_acquire(h, "key/0", NULL, &lock, &err); /* needs room too */
    if (rc != HF_FULL) return hurt_say(me, "%s: %s", hf_code_name(rc), err.text);
    snprintf(key, sizeof key, "key/%0150d", 7);
    rc = hf_acquire(h, key, NULL, &lock, &err);
    if (rc) return hurt_say(me, "%s", err.text);
    hf_close(h);
    return 0;
}

static void a_limit_of_file_size(void **state)
{
    (void)state;
    hurt_run(limited_size, (void *)(uintptr_t)hurt_url(hurt_path("limited")), 20000);
    works(hurt_path("limited"), 0);
}

/* ---- forbidden ---- */

static void read_only_directory(void **state)
{
    (void)state;
    directory("ro-dir", 0555);
    refused(hurt_path("ro-dir/store"), NOBODY, HF_DENIED, "permission denied");
    assert_int_equal(entries(hurt_path("ro-dir")), 0);
    refused(hurt_path("no-such-dir/store"), 0, HF_UNAVAILABLE, "no such file");
}

static void read_only_file(void **state)
{
    (void)state;
    directory("ro-file", 0755);
    const char *path = hurt_path("ro-file/store");
    works(path, 0);
    assert_int_equal(chown(path, NOBODY, NOBODY), 0);
    assert_int_equal(chmod(path, 0400), 0);
    refused(path, NOBODY, HF_DENIED, "permission denied");
    assert_int_equal(chmod(path, 0600), 0);
    works(path, NOBODY);
}

static void read_only_filesystem(void **state)
{
    (void)state;
    const char *dir = directory("ro-fs", 0700), *path = hurt_path("ro-fs/store");
    mount_tmpfs(dir, "size=16m");
    works(path, 0);
    assert_int_equal(mount("none", dir, "tmpfs", MS_REMOUNT | MS_RDONLY, NULL), 0);
    refused(path, 0, HF_DENIED, "read-only");
    refused(hurt_path("ro-fs/other"), 0, HF_DENIED, "read-only");
}

/* A store of root's is for the users that the mode with which it was made allows, as its page says;
   the umask takes nothing away. */
static void roots_store_for_others(void **state)
{
    (void)state;
    directory("shared", 0755);
    const char *path = hurt_path("shared/store");
    mode_t was = umask(077);
    works(hurt_path("shared/store?mode=0666"), 0);
    works(hurt_path("shared/group?mode=0660"), 0);
    umask(was);
    works(path, NOBODY);
    works(path, STRANGER);
    refused(hurt_path("shared/group"), NOBODY, HF_DENIED, "permission denied");
    assert_int_equal(chown(hurt_path("shared/group"), 0, NOBODY), 0);
    works(hurt_path("shared/group"), NOBODY);
    refused(hurt_path("shared/group"), STRANGER, HF_DENIED, "permission denied");
}

static void foreign_owner(void **state)
{
    (void)state;
    directory("foreign", 0755);
    const char *path = hurt_path("foreign/store");
    works(path, 0);
    assert_int_equal(chown(path, STRANGER, STRANGER), 0);
    assert_int_equal(chmod(path, 0666), 0);
    refused(path, NOBODY, HF_DENIED, "");
    assert_int_equal(chmod(path, 0600), 0);
    refused(path, NOBODY, HF_DENIED, "");
    refused(path, 0, HF_DENIED, "belongs to user 4242"); /* root refuses it, too */
}

/* A file as an attacker would put it into /tmp. */
static void planted_for_others(void **state)
{
    (void)state;
    directory("sticky", 01777);
    const char *path = hurt_path("sticky/store");
    works(path, STRANGER);
    refused(path, NOBODY, HF_DENIED, "");
    assert_int_equal(chmod(path, 0666), 0);
    refused(path, NOBODY, HF_DENIED, "");
    /* A user that may write to it can take any lock. */
    works(hurt_path("sticky/own"), NOBODY);
    assert_int_equal(chmod(hurt_path("sticky/own"), 0606), 0);
    refused(hurt_path("sticky/own"), NOBODY, HF_DENIED, "writ");
}

static void created_for_the_owner_alone(void **state)
{
    (void)state;
    struct stat s;
    mode_t before = umask(0);
    works(hurt_path("private"), 0);
    umask(before);
    assert_int_equal(stat(hurt_path("private"), &s), 0);
    assert_int_equal(s.st_mode & 07777, 0600);
}

/* ---- planted ---- */

static void links(void **state)
{
    (void)state;
    const char *real = hurt_path("real");
    works(real, 0);
    assert_int_equal(symlink(real, hurt_path("symlink")), 0);
    refused(hurt_path("symlink"), 0, HF_DENIED, "symbolic link");
    assert_int_equal(symlink(hurt_path("nowhere"), hurt_path("dangling")), 0);
    refused(hurt_path("dangling"), 0, HF_DENIED, "symbolic link");
    assert_int_equal(access(hurt_path("nowhere"), F_OK), -1);
    /* Two names are one store; another user's file isn't one under any name. */
    assert_int_equal(link(real, hurt_path("hard")), 0);
    exclude_each_other(real, hurt_path("hard"));
    works(hurt_path("theirs"), 0);
    assert_int_equal(chown(hurt_path("theirs"), STRANGER, STRANGER), 0);
    assert_int_equal(link(hurt_path("theirs"), hurt_path("planted")), 0);
    refused(hurt_path("planted"), 0, HF_DENIED, "belongs to user 4242");
    /* A link on the way there is the owner's affair. */
    directory("behind", 0700);
    assert_int_equal(symlink("behind", hurt_path("way")), 0);
    works(hurt_path("way/store"), 0);
    works(hurt_path("behind/store"), 0);
}

static void not_files(void **state)
{
    (void)state;
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    assert_int_equal(mkfifo(hurt_path("fifo"), 0600), 0);
    refused(hurt_path("fifo"), 0, HF_INVALID, "no regular file");
    refused(directory("dir", 0700), 0, HF_INVALID, "is a directory");
    refused("/dev/null", 0, HF_INVALID, "no regular file");
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(a.sun_path, sizeof a.sun_path, "%s", hurt_path("socket"));
    assert_int_equal(bind(s, (struct sockaddr *)&a, sizeof a), 0);
    refused(hurt_path("socket"), 0, HF_UNAVAILABLE, "");
    close(s);
}

/* ---- remote ---- */

/* Replaces what the system says of the filesystem, at link time (by the names with 64-bit offsets,
   by which everything is compiled). */
static long pretend;
int __real_fstatfs64(int fd, struct statfs *ret);
int __real_statfs64(const char *path, struct statfs *ret);
int __wrap_fstatfs64(int fd, struct statfs *ret);
int __wrap_statfs64(const char *path, struct statfs *ret);

int __wrap_fstatfs64(int fd, struct statfs *ret)
{
    int rc = __real_fstatfs64(fd, ret);
    if (!rc && pretend) ret->f_type = pretend;
    return rc;
}

int __wrap_statfs64(const char *path, struct statfs *ret)
{
    int rc = __real_statfs64(path, ret);
    if (!rc && pretend) ret->f_type = pretend;
    return rc;
}

static void network_filesystems(void **state)
{
    (void)state;
    static const struct {
        long magic;
        const char *name;
    } kinds[] = {
        {0x6969, "nfs"},      {0xff534d42, "cifs"}, {0xfe534d42, "smb"}, {0x01021997, "9p"},
        {0x65735546, "fuse"}, {0x00c36400, "ceph"}, {0x5346414f, "afs"}, {0x0bd00bd0, ""},
    };
    const char *path = hurt_path("remote");
    works(hurt_path("local"), 0);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        pretend = kinds[i].magic;
        refused(path, 0, HF_UNSUPPORTED, kinds[i].name);
        refused(hurt_path("local"), 0, HF_UNSUPPORTED, kinds[i].name);
        /* The message advises nothing that could give a lock out twice. */
        int shared = *kinds[i].name && strcmp(kinds[i].name, "fuse") != 0;
        refused(path, 0, HF_UNSUPPORTED,
                shared ? "take a store with a server" : "only this machine mounts it, ?force=1");
        if (shared) assert_null(strstr(try_open(path, 0)->text, "force"));
        assert_int_equal(access(path, F_OK), -1);
    }
    static const long good[] = {0xef53, 0x58465342, 0x9123683e, 0x01021994, 0x2fc12fc1, 0x794c7630};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        pretend = good[i];
        works(hurt_path("good-%zu", i), 0);
    }
    pretend = 0;
}

/* ---- seen twice ---- */

static void two_mounts(void **state)
{
    (void)state;
    const char *one = directory("one", 0700), *two = directory("two", 0700);
    assert_int_equal(mount(one, two, NULL, MS_BIND, NULL), 0);
    works(hurt_path("one/store"), 0);
    exclude_each_other(hurt_path("one/store"), hurt_path("two/store"));
    /* A file can be mounted too. */
    assert_int_equal(close(open(hurt_path("file"), O_CREAT | O_WRONLY, 0600)), 0);
    assert_int_equal(mount(hurt_path("one/store"), hurt_path("file"), NULL, MS_BIND, NULL), 0);
    exclude_each_other(hurt_path("file"), hurt_path("one/store"));
    assert_int_equal(umount(hurt_path("file")), 0);
    assert_int_equal(umount(two), 0);
}

static void mount_overlay(const char *at, const char *name)
{
    char options[700];
    directory(hurt_path("%s-upper", name), 0700);
    directory(hurt_path("%s-work", name), 0700);
    snprintf(options, sizeof options, "lowerdir=%s,upperdir=%s,workdir=%s", hurt_path("lower"),
             hurt_path("%s-upper", name), hurt_path("%s-work", name));
    if (mount("overlay", at, "overlay", 0, options)) fail_msg("overlay: %s", strerror(errno));
}

/* The store's file lies in the image of a container; the first writer gets a copy. */
static void overlay(void **state)
{
    (void)state;
    directory("lower", 0700);
    works(hurt_path("lower/store"), 0);
    const char *at = directory("over", 0700);
    mount_overlay(at, "over");
    const char *path = hurt_path("over/store");
    int reader = open(path, O_RDONLY | O_CLOEXEC); /* the lower file, for ever */
    exclude_each_other(path, path);
    struct hurt_child *c = hurt_holder(hurt_url(path), "key", NULL);
    assert_true(hurt_is_free(hurt_url(hurt_path("lower/store")), "key")); /* another store */
    hurt_free(c);
    exclude_each_other(hurt_path("over/new"), hurt_path("over/new"));
    close(reader);
    assert_int_equal(umount2(at, MNT_DETACH), 0);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_at_creation),
        cmocka_unit_test(full_while_growing),
        cmocka_unit_test(a_limit_of_file_size),
        cmocka_unit_test(read_only_directory),
        cmocka_unit_test(read_only_file),
        cmocka_unit_test(read_only_filesystem),
        cmocka_unit_test(roots_store_for_others),
        cmocka_unit_test(foreign_owner),
        cmocka_unit_test(planted_for_others),
        cmocka_unit_test(created_for_the_owner_alone),
        cmocka_unit_test(links),
        cmocka_unit_test(not_files),
        cmocka_unit_test(network_filesystems),
        cmocka_unit_test(two_mounts),
        cmocka_unit_test(overlay),
    };
    return HURT_MAIN(argc, argv, tests, NULL, NULL);
}
