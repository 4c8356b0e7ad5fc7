/*
 * file_doctor.c - what `holdfast doctor` finds out about a store in a file: what is as it should
 * be, and what isn't.
 */
#include "../../drivers/file/store.h"

#include "file_common.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* ---- what the system says ---- */

static int fstat_sys, fstatfs_sys, inotify_sys; /* how they fail */
static long fs_type;                            /* another filesystem's; 0: its own */

int __real_fstat64(int fd, struct stat *s);
int __wrap_fstat64(int fd, struct stat *s);
int __wrap_fstat64(int fd, struct stat *s)
{
    errno = fstat_sys;
    return fstat_sys ? -1 : __real_fstat64(fd, s);
}

int __real_fstatfs64(int fd, struct statfs *s);
int __wrap_fstatfs64(int fd, struct statfs *s);
int __wrap_fstatfs64(int fd, struct statfs *s)
{
    errno = fstatfs_sys;
    int rc = fstatfs_sys ? -1 : __real_fstatfs64(fd, s);
    if (!rc && fs_type) s->f_type = fs_type;
    return rc;
}

int __real_inotify_init1(int flags);
int __wrap_inotify_init1(int flags);
int __wrap_inotify_init1(int flags)
{
    errno = inotify_sys;
    return inotify_sys ? -1 : __real_inotify_init1(flags);
}

/* ---- what is said ---- */

static struct {
    char text[8192]; /* a line each, with "+ " or "- " in front */
    size_t len;
} heard;

static void hear(void *arg, int ok, const char *text)
{
    (void)arg;
    heard.len += (size_t)snprintf(heard.text + heard.len, sizeof heard.text - heard.len, "%c %s\n",
                                  ok ? '+' : '-', text);
    assert_true(heard.len < sizeof heard.text);
}

static hf_error err;

static int inspect(hf_store *st)
{
    heard.len = 0;
    heard.text[0] = err.text[0] = 0;
    return drv->inspect(st, hear, NULL, &err);
}

/* Checks that this text is reported, and that `wrong` settings are. */
static void says(hf_store *st, const char *what, int wrong)
{
    int n = 0;
    assert_int_equal(inspect(st), 0);
    for (const char *at = heard.text; *at; at = strchr(at, '\n') + 1) n += *at == '-';
    if (!strstr(heard.text, what) || n != wrong)
        fail_msg("not '%s', or not %d wrong: %s", what, wrong, heard.text);
}

static void change(size_t at, uint64_t word)
{
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, &word, sizeof word, (off_t)at), sizeof word);
    close(fd);
}

static void a_sound_store_is_sound(void **state)
{
    char text[300];
    (void)state;
    fs_type = 0xEF53;
    hf_store *st = open_store(), *other = open_store();
    assert_int_equal(HF_FILE_SLOTS, 4096);
    snprintf(text, sizeof text, "+ %s on ext4\n", path);
    says(st, text, 0);
    snprintf(text, sizeof text, "+ mode 0600, owner %u\n", (unsigned)geteuid());
    says(st, text, 0);
    says(st, "bytes used\n", 0);
    says(st, "+ 2 of 4096 sessions alive, this one included\n", 0);
    says(st, "+ inotify tells of deaths at once\n", 0);
    drv->close(other);
    says(st, "+ 1 of 4096 sessions alive, this one included\n", 0);
    drv->close(st);
}

static void what_a_filesystem_cant_is_said(void **state)
{
    static const struct {
        long type;
        const char *says;
        int wrong;
    } kinds[] = {{0x01021994, "+ on tmpfs a reboot loses everything", 0},
                 {0x858458f6, "+ on ramfs a reboot loses everything", 0},
                 {0x9123683E, "+ on btrfs a full disk can end a process by SIGBUS", 0},
                 {0x2fc12fc1, "+ on zfs a full disk can end a process by SIGBUS", 0},
                 {0xca451a4e, "+ on bcachefs a full disk can end a process by SIGBUS", 0},
                 {0x6969, " on nfs: memory may not be shared between all its users", 1},
                 {0x1234, " on unknown: memory may not be shared between all its users", 1}};
    (void)state;
    fs_type = 0xEF53;
    hf_store *st = open_store();
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        fs_type = kinds[i].type;
        says(st, kinds[i].says, kinds[i].wrong);
    }
    fs_type = 0;
    drv->close(st);
}

static void who_may_write_is_said(void **state)
{
    (void)state;
    fs_type = 0xEF53;
    hf_store *st = open_store();
    assert_int_equal(chmod(path, 0622), 0);
    says(st, ": others may write it\n", 1);
    assert_int_equal(chmod(path, 0600), 0);
    drv->close(st);
}

static void damage_is_said(void **state)
{
    (void)state;
    fs_type = 0xEF53;
    hf_store *st = open_store();
    change(HF_AT_SLOTS + 1000 * sizeof(struct hf__slot), 12345);
    change(HF_AT_SLOTS + 1001 * sizeof(struct hf__slot), 12345);
    says(st, "- 2 session slots are damaged and passed over\n", 1);
    change(HF_AT_ALLOC + offsetof(struct hf__alloc, bump), 12345);
    says(st, "- how much of it is used cannot be told: that word is damaged\n", 2);
    drv->close(st);
}

static void a_system_without_inotify_is_said(void **state)
{
    (void)state;
    fs_type = 0xEF53;
    inotify_sys = EMFILE;
    hf_store *st = open_store();
    says(st, "- inotify is not available (limit?): deaths are noticed by polling\n", 1);
    inotify_sys = 0;
    drv->close(st);
}

static void a_file_that_is_gone_is_said(void **state)
{
    (void)state;
    fs_type = 0xEF53;
    hf_store *st = open_store();
    assert_int_equal(unlink(path), 0);
    says(st, "- the file was removed while it was open\n", 1);
    assert_int_equal(sync_event(st, &err), HF_CORRUPT); /* from then on it is broken */
    assert_int_equal(inspect(st), HF_CORRUPT);
    assert_non_null(strstr(err.text, "removed"));
    drv->close(st);
}

static void what_cant_be_asked_is_an_error(void **state)
{
    (void)state;
    fs_type = 0xEF53;
    hf_store *st = open_store();
    fstat_sys = EIO;
    assert_int_equal(inspect(st), HF_UNAVAILABLE);
    assert_non_null(strstr(err.text, strerror(EIO)));
    fstat_sys = 0;
    fstatfs_sys = EOVERFLOW;
    assert_int_equal(inspect(st), HF_UNAVAILABLE);
    assert_non_null(strstr(err.text, strerror(EOVERFLOW)));
    fstatfs_sys = 0;
    assert_int_equal(inspect(st), 0);
    drv->close(st);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_sound_store_is_sound, new_path),
        cmocka_unit_test_setup(what_a_filesystem_cant_is_said, new_path),
        cmocka_unit_test_setup(who_may_write_is_said, new_path),
        cmocka_unit_test_setup(damage_is_said, new_path),
        cmocka_unit_test_setup(a_system_without_inotify_is_said, new_path),
        cmocka_unit_test_setup(a_file_that_is_gone_is_said, new_path),
        cmocka_unit_test_setup(what_cant_be_asked_is_an_error, new_path),
    };
    return TEST_MAIN_WITH(tests, make_dir, remove_dir);
}
