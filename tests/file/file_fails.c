/*
 * file_fails.c - the `file:` driver when the system says no: each call that opening a store makes
 * fails, in each way it may; what the system says of the file is odd; what is in it is wrong. What
 * becomes of locks then is in resources.c.
 */
#include "../../drivers/file/store.h"

#include "file_common.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* ---- what fails ---- */

static struct {
    const char *name; /* the name of the function that fails; NULL: none */
    int from, to;     /* which of its calls fail, counted from 1 */
    int sys;          /* how it fails; 0: it doesn't, but `hook` is called first */
    void (*hook)(void *arg);
    void (*then)(void); /* when it has failed */
    int calls;
} plan;

static void arm(const char *name, int from, int to, int sys, void (*hook)(void *))
{
    plan.name = name;
    plan.from = from;
    plan.to = to;
    plan.sys = sys;
    plan.hook = hook;
    plan.then = NULL;
    plan.calls = 0;
}

/* Returns 1 if the function was called that often. */
static int disarm(void)
{
    plan.name = NULL;
    return plan.calls >= plan.from;
}

static int due(const char *name)
{
    if (!plan.name || strcmp(name, plan.name) != 0) return 0;
    plan.calls++;
    return plan.calls >= plan.from && plan.calls <= plan.to;
}

static int fails(void)
{
    int sys = plan.sys;
    if (sys && plan.then) plan.then();
    if (sys) errno = sys;
    return sys != 0;
}

#define CALLS(X)                                                                  \
    X(int, stat64, (const char *name, struct stat *s), (name, s))                 \
    X(int, fstatfs64, (int fd, struct statfs *s), (fd, s))                        \
    X(int, fallocate64, (int fd, int mode, off_t at, off_t n), (fd, mode, at, n)) \
    X(int, fchmod, (int fd, mode_t mode), (fd, mode))                             \
    X(int, fsync, (int fd), (fd))                                                 \
    X(int, getrlimit64, (int what, struct rlimit *ret), (what, ret))              \
    X(ssize_t, pread64, (int fd, void *to, size_t n, off_t at), (fd, to, n, at))  \
    X(ssize_t, read, (int fd, void *to, size_t n), (fd, to, n))

#define DEFINE(type, name, params, args) \
    type __real_##name params;           \
    type __wrap_##name params;           \
    type __wrap_##name params { return due(#name) && fails() ? (type)-1 : __real_##name args; }
CALLS(DEFINE)
#undef DEFINE

int __real_fstat64(int fd, struct stat *s);
int __wrap_fstat64(int fd, struct stat *s);
int __wrap_fstat64(int fd, struct stat *s)
{
    int is_due = due("fstat64");
    if (is_due && fails()) return -1;
    int is_ = __real_fstat64(fd, s);
    if (is_due && plan.hook) plan.hook(s);
    return is_;
}

ssize_t __real_pwrite64(int fd, const void *from, size_t n, off_t at);
ssize_t __wrap_pwrite64(int fd, const void *from, size_t n, off_t at);
ssize_t __wrap_pwrite64(int fd, const void *from, size_t n, off_t at)
{
    int is_due = due("pwrite64");
    if (is_due && fails()) return -1;
    if (is_due && plan.hook) plan.hook(&n); /* it may write less */
    return __real_pwrite64(fd, from, n, at);
}

int __real_link(const char *from, const char *to);
int __wrap_link(const char *from, const char *to);
int __wrap_link(const char *from, const char *to)
{
    int is_due = due("link");
    if (is_due && fails()) return -1;
    int is_ = __real_link(from, to);
    if (is_due && plan.hook) plan.hook((void *)(uintptr_t)to);
    return is_;
}

int __real_open64(const char *name, int flags, ...);
int __wrap_open64(const char *name, int flags, ...);
int __wrap_open64(const char *name, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    int mode = flags & O_CREAT ? va_arg(args, int) : 0;
    va_end(args);
    /* The calls that keep descriptors above 2 don't fail. */
    return !(flags & O_PATH) && due("open64") && fails() ? -1 : __real_open64(name, flags, mode);
}

int __real_fcntl64(int fd, int command, ...);
int __wrap_fcntl64(int fd, int command, ...);
int __wrap_fcntl64(int fd, int command, ...)
{
    va_list args;
    va_start(args, command);
    void *arg = va_arg(args, void *);
    va_end(args);
    int is_due = due("fcntl64");
    if (is_due && plan.hook) plan.hook(arg);
    return is_due && fails() ? -1 : __real_fcntl64(fd, command, arg);
}

void *__real_mmap64(void *at, size_t n, int prot, int flags, int fd, off_t from);
void *__wrap_mmap64(void *at, size_t n, int prot, int flags, int fd, off_t from);
void *__wrap_mmap64(void *at, size_t n, int prot, int flags, int fd, off_t from)
{
    return due("mmap64") && fails() ? MAP_FAILED : __real_mmap64(at, n, prot, flags, fd, from);
}

char *__real_getcwd(char *to, size_t n);
char *__wrap_getcwd(char *to, size_t n);
char *__wrap_getcwd(char *to, size_t n)
{
    int is_due = due("getcwd");
    if (is_due && fails()) return NULL;
    char *is_ = __real_getcwd(to, n);
    if (is_due && plan.hook) plan.hook(to);
    return is_;
}

/* ---- what it makes of that ---- */

static hf_error err;

static void opens_as(const char *text, int code, const char *why)
{
    memset(&err, 0, sizeof err);
    int rc = open_code(text, &err);
    if (rc != code || !strstr(err.text, why))
        fail_msg("%s: %d, %s: not %d, %s", text, rc, err.text, code, why);
}

static size_t files(void)
{
    char pattern[160];
    glob_t found = {0};
    snprintf(pattern, sizeof pattern, "%s*", path);
    int rc = glob(pattern, 0, NULL, &found);
    size_t n = rc == GLOB_NOMATCH ? 0 : found.gl_pathc;
    globfree(&found);
    return n;
}

static int expected(int sys)
{
    switch (sys) {
    case EACCES:
    case EPERM:
    case EROFS: return HF_DENIED;
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return HF_FULL;
    case ENOMEM: return HF_NOMEM;
    case ENOTDIR:
    case EISDIR:
    case ENAMETOOLONG: return HF_INVALID;
    default: return HF_UNAVAILABLE;
    }
}

/* Each call fails with each reason that the system may give. */
static void each_reason_has_its_code(void **state)
{
    static const struct {
        const char *name;
        int nth, makes; /* is the store made by that? */
    } calls[] = {{"open64", 1, 0},    {"open64", 2, 0},      {"open64", 2, 1},  {"fstat64", 1, 0},
                 {"fstat64", 2, 0},   {"fstatfs64", 1, 0},   {"pread64", 1, 0}, {"mmap64", 1, 0},
                 {"fstatfs64", 1, 1}, {"fallocate64", 1, 1}, {"fchmod", 1, 1},  {"fsync", 1, 1},
                 {"link", 1, 1},      {"pwrite64", 1, 1}};
    static const int reasons[] = {EACCES, EPERM, EROFS,   ENOSPC, EDQUOT,       EFBIG,
                                  ENOMEM, EIO,   ENOTDIR, EISDIR, ENAMETOOLONG, EMFILE};
    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        for (size_t k = 0; k < sizeof reasons / sizeof *reasons; k++) {
            unlink(path);
            if (!calls[i].makes) opens_as(url_text, 0, "");
            arm(calls[i].name, calls[i].nth, calls[i].name[0] == 'm' ? 100 : calls[i].nth,
                reasons[k], NULL);
            opens_as(url_text, expected(reasons[k]), strerror(reasons[k]));
            assert_true(disarm());
            assert_int_equal(err.sys, reasons[k]);
            assert_int_equal(files(), !calls[i].makes); /* nothing is left lying about */
        }
    opens_as(url_text, 0, "");
}

/* A filesystem that provides no blocks on demand: they are written, by pieces of any size. */
static int zeros_sys; /* how the second piece fails; 0: it is a short one */
static void second_piece(void *arg) { *(size_t *)arg = *(size_t *)arg / 3 + 1; }

static int after_fallocate; /* what fails after fallocate: 0 nothing, 1 fstat, 2 a piece */
static void no_blocks(void)
{
    plan.name = NULL;
    if (after_fallocate == 1) arm("fstat64", 1, 1, EIO, NULL);
    if (after_fallocate == 2) arm("pwrite64", 2, 2, zeros_sys, second_piece);
}

static void blocks_can_be_written_where_they_arent_given(void **state)
{
    struct stat s;
    (void)state;
    opens_as(url_text, 0, "");
    assert_int_equal(stat(path, &s), 0);
    const off_t whole = s.st_size;
    static const struct {
        int after, sys, code;
    } ways[] = {
        {0, 0, 0}, {1, EIO, HF_UNAVAILABLE}, {2, 0, 0}, {2, EINTR, 0}, {2, ENOSPC, HF_FULL}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        assert_int_equal(unlink(path), 0);
        after_fallocate = ways[i].after;
        zeros_sys = ways[i].sys;
        arm("fallocate64", 1, 1, EOPNOTSUPP, NULL);
        plan.then = no_blocks;
        opens_as(url_text, ways[i].code, ways[i].code ? strerror(ways[i].sys) : "");
        plan.then = NULL;
        disarm();
        assert_int_equal(files(), !ways[i].code);
        opens_as(url_text, 0, "");
        assert_int_equal(stat(path, &s), 0);
        assert_int_equal(s.st_size, whole);
    }
    assert_int_equal(unlink(path), 0);
    arm("getrlimit64", 1, 100, EIO, NULL); /* then there may be none */
    opens_as(url_text, 0, "");
    assert_true(disarm());
}

/* ---- the file itself ---- */

static void another_inode(void *arg) { ((struct stat *)arg)->st_ino++; }
static void another_device(void *arg) { ((struct stat *)arg)->st_dev++; }
static void no_name(void *arg) { ((struct stat *)arg)->st_nlink = 0; }

static void what_is_replaced_while_it_is_opened_is_opened_again(void **state)
{
    static void (*const lies[])(void *) = {another_inode, another_device, no_name};
    (void)state;
    opens_as(url_text, 0, "");
    for (int i = 0; i < 3; i++) {
        arm("fstat64", 1, 1, 0, lies[i]);
        opens_as(url_text, 0, "");
        assert_true(disarm());
    }
    arm("fstat64", 1, 1000, 0, no_name); /* for ever */
    opens_as(url_text, HF_UNAVAILABLE, strerror(EAGAIN));
    assert_true(disarm());
    opens_as(url_text, 0, "");
}

static void remove_it(void *arg) { assert_int_equal(unlink(arg), 0); }

static void what_comes_and_goes_is_given_up(void **state)
{
    (void)state;
    arm("link", 1, 1, 0, remove_it);
    opens_as(url_text, 0, ""); /* made anew */
    assert_true(disarm());
    assert_int_equal(unlink(path), 0);
    arm("link", 1, 1000, 0, remove_it);
    opens_as(url_text, HF_UNAVAILABLE, "removed again and again");
    assert_true(disarm());
    assert_int_equal(files(), 0);
}

static void what_is_replaced_while_it_is_open_is_noticed(void **state)
{
    char kept[160];
    (void)state;
    hf_store *st = open_store();
    snprintf(kept, sizeof kept, "%s.kept", path);
    assert_int_equal(link(path, kept), 0);
    assert_int_equal(unlink(path), 0);
    opens_as(url_text, 0, "");
    int rc = sync_event(st, &err);
    assert_int_equal(rc, HF_CORRUPT);
    assert_non_null(strstr(err.text, "was replaced while it was open"));
    drv->close(st);
}

/* A check that can't be made is no reason to give up what is held. */
static void what_the_system_doesnt_say_breaks_nothing(void **state)
{
    (void)state;
    hf_store *st = open_store();
    arm("fstat64", 1, 100, EIO, NULL);
    assert_int_equal(sync_event(st, &err), 0);
    assert_true(disarm());
    arm("stat64", 1, 100, EACCES, NULL);
    assert_int_equal(sync_event(st, &err), 0);
    assert_true(disarm());
    drv->close(st);
}

/* The path leads to no file: its name is gone, or a directory of it is a file or a loop now. */
static void what_is_moved_while_it_is_open_is_noticed(void **state)
{
    static const int gone[] = {ENOENT, ENOTDIR, ELOOP};
    (void)state;
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++) {
        hf_store *st = open_store();
        arm("stat64", 1, 100, gone[i], NULL);
        assert_int_equal(sync_event(st, &err), HF_CORRUPT);
        assert_true(disarm());
        assert_non_null(strstr(err.text, "was moved while it was open"));
        drv->close(st);
    }
}

/* ---- what is in it ---- */

static void change(size_t at, const void *bytes, size_t n)
{
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, n, (off_t)at), n);
    close(fd);
}

static void what_the_header_says_is_checked(void **state)
{
    static const uint32_t odd = 99;
    static const struct {
        size_t at;
        int sums; /* does its sum agree? */
        const char *why;
    } wrong[] = {{offsetof(struct hf__static, magic), 1, "its first bytes are others"},
                 {offsetof(struct hf__static, format), 0, "damaged: the header"},
                 {offsetof(struct hf__static, format), 1, "a format that this version doesn't"},
                 {offsetof(struct hf__static, byte_order), 1, "a geometry"},
                 {offsetof(struct hf__static, slots), 1, "a geometry"},
                 {offsetof(struct hf__static, buckets), 1, "a geometry"},
                 {offsetof(struct hf__static, wakeups), 1, "a geometry"}};
    struct hf__static sound, s;
    (void)state;
    opens_as(url_text, 0, "");
    int fd = open(path, O_RDONLY);
    assert_int_equal(pread(fd, &sound, sizeof sound, 0), sizeof sound);
    close(fd);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        s = sound;
        memcpy((char *)&s + wrong[i].at, &odd, sizeof odd);
        if (wrong[i].sums) s.sum = hf__sum(&s, offsetof(struct hf__static, sum), 0);
        change(0, &s, sizeof s);
        opens_as(url_text, HF_CORRUPT, wrong[i].why);
    }
    change(0, &sound, sizeof sound);
    opens_as(url_text, 0, "");
}

static void what_the_allocator_says_is_checked(void **state)
{
    static const struct {
        size_t at;
        const char *why;
    } words[] = {{offsetof(struct hf__alloc, limit), "the allocator's limit at offset 1552"},
                 {offsetof(struct hf__alloc, bump), "the allocator's bump at offset 1544"}};
    uint64_t sound;
    const uint64_t odd = 12345;
    struct stat s;
    (void)state;
    opens_as(url_text, 0, "");
    for (size_t i = 0; i < 2; i++) {
        int fd = open(path, O_RDONLY);
        assert_int_equal(pread(fd, &sound, 8, (off_t)(HF_AT_ALLOC + words[i].at)), 8);
        close(fd);
        change(HF_AT_ALLOC + words[i].at, &odd, 8);
        opens_as(url_text, HF_CORRUPT, words[i].why);
        change(HF_AT_ALLOC + words[i].at, &sound, 8);
    }
    /* The header says more than the file has; an error, unless the size can't be read. */
    assert_int_equal(stat(path, &s), 0);
    assert_int_equal(truncate(path, s.st_size - 4096), 0);
    opens_as(url_text, HF_CORRUPT, "it was truncated");
    arm("fstat64", 3, 3, EIO, NULL);
    opens_as(url_text, HF_UNAVAILABLE, strerror(EIO));
    assert_true(disarm());
    assert_int_equal(truncate(path, s.st_size), 0);
    opens_as(url_text, 0, "");
}

/* ---- boots ---- */

static void this_boot_has_to_be_known(void **state)
{
    (void)state;
    opens_as(url_text, 0, "");
    static const int none_left[] = {EMFILE, ENFILE, ENOMEM};
    for (int i = 0; i < 3; i++) {
        arm("open64", 3, 3, none_left[i], NULL);
        opens_as(url_text, HF_UNAVAILABLE, "boot_id");
        assert_true(disarm());
    }
    arm("open64", 3, 3, EACCES, NULL);
    opens_as(url_text, HF_UNSUPPORTED, "can't tell this boot from the last one");
    assert_true(disarm());
    arm("read", 1, 1, EIO, NULL);
    opens_as(url_text, HF_UNSUPPORTED, "can't tell this boot from the last one");
    assert_true(disarm());
}

/* Changes both copies of the boot block. */
static void change_boots(uint8_t id, uint64_t seq, int64_t offset_us)
{
    struct hf__boot b[2];
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, b, sizeof b, HF_AT_BOOT), sizeof b);
    for (int i = 0; i < 2; i++) {
        b[i].boot_id[0] ^= id;
        b[i].seq += seq;
        b[i].offset_us += offset_us;
        b[i].sum = hf__sum(&b[i], offsetof(struct hf__boot, sum), 1);
    }
    assert_int_equal(pwrite(fd, b, sizeof b, HF_AT_BOOT), sizeof b);
    close(fd);
}

static uint64_t seq_change;
static int64_t offset_change;
static void recover_it(void *arg)
{
    (void)arg;
    change_boots(0, seq_change, offset_change);
}

static void what_is_recovered_while_it_is_opened_isnt_used(void **state)
{
    (void)state;
    opens_as(url_text, 0, "");
    for (int i = 0; i < 2; i++) {
        seq_change = !i;
        offset_change = i;
        arm("fcntl64", 2, 2, 0, recover_it);
        opens_as(url_text, HF_UNAVAILABLE, "it was recovered meanwhile");
        assert_true(disarm());
        opens_as(url_text, 0, "");
    }
}

static void settled(void *arg)
{
    struct flock *f = arg;
    if (f->l_type != F_UNLCK) change_boots(0xff, 1, 0);
}

static void a_recovery_can_fail(void **state)
{
    (void)state;
    opens_as(url_text, 0, "");
    change_boots(0xff, 0, 0);
    arm("fcntl64", 1, 1, ENOLCK, NULL); /* the byte of the recovery */
    opens_as(url_text, HF_UNAVAILABLE, strerror(ENOLCK));
    assert_true(disarm());
    arm("fcntl64", 2, 2, ENOLCK, NULL); /* those of all sessions */
    opens_as(url_text, HF_UNAVAILABLE, strerror(ENOLCK));
    assert_true(disarm());
    arm("fcntl64", 2, 2, EACCES, NULL); /* some systems report a locked byte by this errno */
    opens_as(url_text, HF_UNAVAILABLE, "in use under another boot id");
    assert_true(disarm());
    arm("fstat64", 3, 3, EIO, NULL);
    opens_as(url_text, HF_UNAVAILABLE, strerror(EIO));
    assert_true(disarm());
    /* Another process has recovered the store while this one waited for the byte. */
    arm("fcntl64", 1, 1, 0, settled);
    opens_as(url_text, 0, "");
    assert_true(disarm());
}

/* ---- where it is ---- */

static void far_below(void *arg)
{
    char *to = arg;
    memset(to, 'x', HF_FILE_PATH_CAP - 4);
    to[0] = '/';
    to[HF_FILE_PATH_CAP - 4] = 0;
}

static void a_relative_path_needs_a_directory(void **state)
{
    char text[200];
    (void)state;
    assert_int_equal(chdir(dir), 0);
    arm("getcwd", 1, 1, ENOENT, NULL);
    opens_as("file:here", HF_UNAVAILABLE, "no working directory");
    assert_true(disarm());
    arm("getcwd", 1, 1, ERANGE, NULL);
    opens_as("file:here", HF_INVALID, "no working directory");
    assert_true(disarm());
    arm("getcwd", 1, 1, 0, far_below);
    opens_as("file:here", HF_INVALID, "too long");
    assert_true(disarm());
    assert_int_equal(chdir("/"), 0);
    snprintf(text, sizeof text, "file:%s", path + 1); /* from there */
    opens_as(text, 0, "");
    assert_int_equal(access(path, F_OK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(each_reason_has_its_code, new_path),
        cmocka_unit_test_setup(blocks_can_be_written_where_they_arent_given, new_path),
        cmocka_unit_test_setup(what_is_replaced_while_it_is_opened_is_opened_again, new_path),
        cmocka_unit_test_setup(what_comes_and_goes_is_given_up, new_path),
        cmocka_unit_test_setup(what_is_replaced_while_it_is_open_is_noticed, new_path),
        cmocka_unit_test_setup(what_the_system_doesnt_say_breaks_nothing, new_path),
        cmocka_unit_test_setup(what_is_moved_while_it_is_open_is_noticed, new_path),
        cmocka_unit_test_setup(what_the_header_says_is_checked, new_path),
        cmocka_unit_test_setup(what_the_allocator_says_is_checked, new_path),
        cmocka_unit_test_setup(this_boot_has_to_be_known, new_path),
        cmocka_unit_test_setup(what_is_recovered_while_it_is_opened_isnt_used, new_path),
        cmocka_unit_test_setup(a_recovery_can_fail, new_path),
        cmocka_unit_test_setup(a_relative_path_needs_a_directory, new_path),
    };
    return TEST_MAIN_WITH(tests, make_dir, remove_dir);
}
