/*
 * file_room.c - the `file:` driver where there is little room: of address space, on the disk, of
 * memory; and damage that shows only when the store grows, or when its clock's ceiling is raised,
 * or when it is taken over from an earlier boot.
 */
#include "../../drivers/file/store.h"

#include "file_common.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- what fails ---- */

static int mmaps, fallocates, syncs, callocs; /* how many of the next calls of each function fail */

void *__real_mmap64(void *at, size_t n, int prot, int flags, int fd, off_t from);
void *__wrap_mmap64(void *at, size_t n, int prot, int flags, int fd, off_t from);
void *__wrap_mmap64(void *at, size_t n, int prot, int flags, int fd, off_t from)
{
    errno = ENOMEM;
    return mmaps && mmaps-- ? MAP_FAILED : __real_mmap64(at, n, prot, flags, fd, from);
}

int __real_fallocate64(int fd, int mode, off_t at, off_t n);
int __wrap_fallocate64(int fd, int mode, off_t at, off_t n);
int __wrap_fallocate64(int fd, int mode, off_t at, off_t n)
{
    errno = ENOSPC;
    return fallocates && fallocates-- ? -1 : __real_fallocate64(fd, mode, at, n);
}

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
    errno = EIO;
    return syncs && syncs-- ? -1 : __real_fdatasync(fd);
}

int __real_msync(void *at, size_t n, int flags);
int __wrap_msync(void *at, size_t n, int flags);
int __wrap_msync(void *at, size_t n, int flags)
{
    errno = EIO;
    return syncs && syncs-- ? -1 : __real_msync(at, n, flags);
}

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
    /* The bits of all lines, not a handle. */
    return callocs && size == 1 && callocs-- ? NULL : __real_calloc(n, size);
}

static hf_error err;

static int make(hf_store *st, int i)
{
    char text[300];
    int64_t clock_us;
    hf_row row;
    snprintf(text, sizeof text, "key/%0200d", i);
    hf_rowkey key = key_of(text);
    hf_row_init(&row);
    fill_row(&row, 10, 1, 0);
    int rc = drv->replace(st, &key, 0, &row, NULL, &clock_us, &err);
    hf_row_clear(&row);
    return rc;
}

static void is_there(hf_store *st, int i)
{
    char text[300];
    hf_row row;
    snprintf(text, sizeof text, "key/%0200d", i);
    hf_row_init(&row);
    get(st, text, &row);
    assert_int_equal(row.rev, 10);
    hf_row_clear(&row);
}

static void without(int code, const char *why)
{
    int rc = open_code(url_text, &err);
    if (rc != code || !strstr(err.text, why)) fail_msg("%d, %s: not %s", rc, err.text, why);
}

/* ---- room ---- */

/* A process that finds room for less grows less, and says so when it is over; others go on. */
static void address_space_may_be_short(void **state)
{
    hf_url url;
    hf_store *tight = NULL, *other = open_store();
    int rc = 0, n, tries = 0;
    (void)state;
    assert_int_equal(hf_url_parse(url_text, &url, &err), 0);
    for (;; tries++) { /* the last that opens has the least */
        mmaps = tries + 1;
        hf_store *st = NULL;
        rc = drv->open(&url, 5000, &st, &(hf_caps){0}, &err);
        mmaps = 0;
        if (rc) break;
        if (tight) drv->close(tight);
        tight = st;
        assert_true(tries < 100);
    }
    assert_int_equal(rc, HF_NOMEM);
    assert_non_null(strstr(err.text, "file: map '"));
    assert_non_null(tight);
    for (n = 0; !(rc = make(tight, n)); n++) assert_true(n < 1000000);
    assert_int_equal(rc, HF_FULL);
    assert_non_null(strstr(err.text, "has reached its greatest size"));
    for (int i = 0; i < n; i += 1 + n / 20) is_there(tight, i);
    assert_int_equal(make(other, n), 0);
    is_there(other, n);
    drv->close(tight);
    drv->close(other);
}

/* Less than it would like to have is enough. */
static void a_disk_may_have_room_for_a_little(void **state)
{
    struct stat s;
    (void)state;
    hf_store *st = open_store();
    assert_int_equal(stat(path, &s), 0);
    const off_t before = s.st_size;
    int n = 0;
    do {
        fallocates = 1;
        assert_int_equal(make(st, n++), 0);
        assert_int_equal(stat(path, &s), 0);
    } while (s.st_size == before);
    assert_int_equal(fallocates, 0);
    fallocates = 0;
    assert_true(s.st_size < before + 1000000);
    is_there(st, n - 1);
    /* None at all is. */
    int rc = 0;
    while (!rc) {
        fallocates = 100;
        rc = make(st, n++);
    }
    fallocates = 0;
    assert_int_equal(rc, HF_FULL);
    assert_non_null(strstr(err.text, strerror(ENOSPC)));
    assert_int_equal(make(st, n), 0);
    drv->close(st);
}

/* ---- damage ---- */

static void change(size_t at, uint64_t word)
{
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, &word, sizeof word, (off_t)at), sizeof word);
    close(fd);
}

/* Changes the file as if it were of an earlier boot. `lag`: its second boot block is older than the
   first by this. */
static void reboot(uint64_t lag)
{
    struct hf__boot b[2];
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, b, sizeof b, HF_AT_BOOT), sizeof b);
    for (int i = 0; i < 2; i++) {
        b[i].boot_id[0] ^= 0xff;
        b[i].seq = 100 - (i ? lag : 0);
        b[i].sum = hf__sum(&b[i], offsetof(struct hf__boot, sum), 1);
    }
    assert_int_equal(pwrite(fd, b, sizeof b, HF_AT_BOOT), sizeof b);
    close(fd);
}

/* A rev far ahead of the clock has to be below the ceiling, which is synced first. */
static void the_ceiling_is_raised_on_the_disk(void **state)
{
    hf_row row;
    int64_t clock_us;
    hf_rowkey key = key_of("k");
    (void)state;
    hf_row_init(&row);
    for (int how = 0; how < 2; how++) {
        hf_store *st = open_store();
        fill_row(&row, (uint64_t)drv->caps.local->now(st) + UINT64_C(10000000000), 1, 0);
        if (how)
            change(HF_AT_ALLOC + offsetof(struct hf__alloc, ceiling), 12345);
        else
            syncs = 1;
        int rc = drv->replace(st, &key, 0, &row, NULL, &clock_us, &err);
        assert_int_equal(rc, how ? HF_CORRUPT : HF_UNAVAILABLE);
        assert_non_null(strstr(err.text, how ? "the ceiling of revs" : strerror(EIO)));
        assert_int_equal(syncs, 0);
        drv->close(st);
    }
    reboot(0);
    without(HF_CORRUPT, "the ceiling of revs");
    hf_row_clear(&row);
}

static void what_cant_be_taken_over_is_told(void **state)
{
    hf_row row;
    (void)state;
    hf_row_init(&row);
    hf_store *st = open_store();
    hf_rowkey key = key_of("k");
    fill_row(&row, 10, 1, 0);
    assert_int_equal(replace(st, "k", 0, &row, NULL), 0);
    drv->close(st);
    reboot(1); /* the newer one counts, whichever it is */
    callocs = 1;
    without(HF_NOMEM, "out of memory");
    assert_int_equal(callocs, 0);
    syncs = 1;
    without(HF_UNAVAILABLE, strerror(EIO));
    assert_int_equal(syncs, 0);
    /* It stays a store of the earlier boot until it is recovered. */
    const size_t bucket =
        HF_AT_BUCKETS + (key.hash & (HF_FILE_BUCKETS - 1)) * sizeof(struct hf__bucket);
    const struct {
        size_t at;
        uint64_t word;
        const char *why;
    } wrong[] = {
        {bucket + offsetof(struct hf__bucket, head), UINT64_C(1) << 30, "the link to a cell"},
        {bucket + offsetof(struct hf__bucket, head), HF_AT_BOOT / HF_LINE, "the head of a cell"},
        {HF_AT_HEAP + offsetof(struct hf__cell, body), UINT64_C(1) << 38, "the link to a body"},
        {HF_AT_HEAP + offsetof(struct hf__cell, body), UINT64_C(1) << 8, "the link to a body"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        uint64_t sound;
        int fd = open(path, O_RDONLY);
        assert_int_equal(pread(fd, &sound, 8, (off_t)wrong[i].at), 8);
        close(fd);
        change(wrong[i].at, hf__seal(wrong[i].word));
        without(HF_CORRUPT, wrong[i].why);
        change(wrong[i].at, sound);
    }
    without(0, "");
    hf_row_clear(&row);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(address_space_may_be_short, new_path),
        cmocka_unit_test_setup(a_disk_may_have_room_for_a_little, new_path),
        cmocka_unit_test_setup(the_ceiling_is_raised_on_the_disk, new_path),
        cmocka_unit_test_setup(what_cant_be_taken_over_is_told, new_path),
    };
    return TEST_MAIN_WITH(tests, make_dir, remove_dir);
}
