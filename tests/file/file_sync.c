/*
 * file_sync.c - the `file:` driver: which pages of the file a key's sync waits for, and when it is
 * all of them. What recovery makes of it is in power.c and file_power.c.
 */
#include "file_common.h"

#include "../../drivers/file/store.h"

#include <errno.h>
#include <sys/mman.h>

enum { BRIEFLY_MS = 20, PAGE = 4096 };

static struct {
    uint64_t from, to; /* offsets */
} part[64];
static int parts, wholes, msync_sys;
static const unsigned char *base;
static hf_error err;

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
    wholes++;
    return __real_fdatasync(fd);
}

int __real_msync(void *at, size_t n, int flags);
int __wrap_msync(void *at, size_t n, int flags);
int __wrap_msync(void *at, size_t n, int flags)
{
    assert_true(parts < (int)(sizeof part / sizeof *part));
    part[parts].from = (uint64_t)((unsigned char *)at - base);
    part[parts].to = part[parts].from + n;
    parts++;
    errno = msync_sys;
    return msync_sys ? -1 : __real_msync(at, n, flags);
}

static int sync_of(hf_store *st, const char *text)
{
    hf_rowkey key = key_of(text);
    base = hf__client_of(st)->base;
    parts = wholes = 0;
    return drv->sync(st, &key, &err);
}

/* Is it in one of the parts? */
static int is_synced(hf_store *st, const void *at, size_t n)
{
    uint64_t from = hf__offset_of(hf__client_of(st), at);
    for (int i = 0; i < parts; i++)
        if (part[i].from <= from && from + n <= part[i].to) return 1;
    return 0;
}

static struct hf__cell *cell_of(hf_store *st, const char *text)
{
    hf_rowkey key = key_of(text);
    struct hf__found f = {.cell = NULL};
    const struct hf__op op = {hf__client_of(st), "find", &key, &err};
    assert_int_equal(hf__find(&op, hf__bucket_at(op.c, key.hash), &f), 0);
    assert_non_null(f.cell);
    return f.cell;
}

/* The n-th of the keys that share a bucket. */
static const char *neighbor(int n)
{
    static char text[16];
    uint64_t bucket = hf_key_hash("event", 5) & (HF_FILE_BUCKETS - 1);
    for (int i = 0;; i++) {
        int len = snprintf(text, sizeof text, "%d", i);
        if ((hf_key_hash(text, (size_t)len) & (HF_FILE_BUCKETS - 1)) == bucket && !n--) return text;
    }
}

static void put(hf_store *st, const char *text, int is_done)
{
    hf_row row;
    hf_row_init(&row);
    fill_row(&row, 10, 1, 0);
    row.done_us = is_done ? 5 : 0;
    row.keep_until_us = is_done ? INT64_MAX : 0;
    row.result_len = row.done_by_len = 0;
    assert_int_equal(replace(st, text, 0, &row, NULL), 0);
    hf_row_clear(&row);
}

/* Writes so many other keys that they are more than one part of the file. */
static void put_many(hf_store *st, int from)
{
    char text[32];
    for (int i = from; i < from + 400; i++) {
        snprintf(text, sizeof text, "other/%d", i);
        put(st, text, 0);
    }
}

static void only_what_a_key_needs(void **state)
{
    (void)state;
    hf_store *st = open_store();
    hf_rowkey key = key_of("event");
    put(st, neighbor(0), 0); /* this key comes before it in the bucket's chain */
    put_many(st, 0);
    put(st, "event", 1);
    put_many(st, 400);
    assert_int_equal(sync_of(st, "event"), 0);
    assert_int_equal(wholes, 0);
    struct hf__client *c = hf__client_of(st);
    struct hf__cell *cell = cell_of(st, "event");
    assert_true(is_synced(st, hf__bucket_at(c, key.hash), sizeof(struct hf__bucket)));
    assert_true(is_synced(st, cell_of(st, neighbor(0)), sizeof *cell));
    assert_true(is_synced(st, cell, sizeof *cell));
    for (int i = 0; i < 2; i++)
        assert_true(is_synced(st, hf__line_at(c, hf__unseal(cell->body[i]) >> 8), HF_LINE));
    assert_true(cell->marker);
    assert_true(is_synced(st, hf__line_at(c, hf__unseal(cell->marker)), 2 * HF_SECTOR));
    uint64_t bytes = 0;
    for (int i = 0; i < parts; i++) {
        assert_int_equal(part[i].from % PAGE, 0); /* msync refuses anything else */
        bytes += part[i].to - part[i].from;
    }
    assert_int_equal(parts, 3);
    assert_true(bytes < 5 * PAGE);
    assert_false(is_synced(st, cell_of(st, "other/0"), sizeof *cell));
    drv->close(st);
}

static void what_lies_close_is_one_part(void **state)
{
    (void)state;
    hf_store *st = open_store();
    for (int i = 0; i < 12; i++) put(st, neighbor(i), 1);
    put(st, "event", 1);
    assert_int_equal(sync_of(st, "event"), 0);
    assert_int_equal(wholes, 0);
    assert_int_equal(parts, 2); /* the bucket; the cells */
    drv->close(st);
}

static void a_key_that_isnt_there_is_all(void **state)
{
    (void)state;
    hf_store *st = open_store();
    assert_int_equal(sync_of(st, "event"), 0);
    assert_int_equal(wholes, 1);
    assert_int_equal(parts, 0);
    drv->close(st);
}

static void what_lies_in_many_places_is_all(void **state)
{
    (void)state;
    hf_store *st = open_store();
    for (int i = 0; i < 9; i++) {
        put(st, neighbor(i), 0);
        put_many(st, i * 400);
        assert_int_equal(sync_of(st, neighbor(i)), 0);
        /* The bucket, and a part for each cell: eight at most. */
        assert_int_equal(parts, i < 7 ? 2 + i : 0);
        assert_int_equal(wholes, i < 7 ? 0 : 1);
    }
    drv->close(st);
}

/* Damage on the way to the key is no reason not to sync it. */
static void what_cant_be_found_is_all(void **state)
{
    (void)state;
    hf_store *st = open_store();
    put(st, "event", 1);
    struct hf__cell *cell = cell_of(st, "event");
    _Atomic uint64_t *const links[] = {&cell->body[0], &cell->body[1], &cell->marker};
    for (int i = 0; i < 6; i++) {
        uint64_t link = *links[i / 2];
        /* either the number in the link, or its seal */
        *links[i / 2] = link ^ (i % 2 ? UINT64_C(1) << 60 : 1);
        assert_int_equal(sync_of(st, "event"), 0);
        assert_int_equal(wholes, 1);
        assert_int_equal(parts, 0);
        *links[i / 2] = link;
    }
    assert_int_equal(sync_of(st, "event"), 0);
    assert_int_equal(wholes, 0);
    drv->close(st);
}

static void a_bucket_in_use_is_waited_for_a_limited_time(void **state)
{
    hf_url url;
    hf_store *st;
    (void)state;
    hf_store *other = open_store();
    put(other, "event", 1);
    assert_int_equal(hf_url_parse(url_text, &url, &err), 0);
    assert_int_equal(drv->open(&url, BRIEFLY_MS, &st, &(hf_caps){0}, &err), 0);
    hf_rowkey key = key_of("event");
    struct hf__bucket *b = hf__bucket_at(hf__client_of(st), key.hash);
    b->lock = hf__client_of(other)->word; /* the other client lives, and keeps the lock */
    assert_int_equal(sync_of(st, "event"), 0);
    assert_int_equal(wholes, 1);
    assert_int_equal(parts, 0);
    b->lock = 0;
    drv->close(st);
    drv->close(other);
}

static void a_part_that_fails_is_said(void **state)
{
    (void)state;
    hf_store *st = open_store();
    put(st, "event", 1);
    msync_sys = EIO;
    assert_int_equal(sync_of(st, "event"), HF_UNAVAILABLE);
    assert_int_equal(err.sys, EIO);
    assert_non_null(strstr(err.text, "file: sync"));
    assert_non_null(strstr(err.text, strerror(EIO)));
    assert_int_equal(parts, 1);
    msync_sys = 0;
    /* Pages whose writing failed count as clean now: no later sync can prove that they are on
       disk. */
    assert_int_equal(sync_of(st, "event"), HF_UNAVAILABLE);
    assert_int_equal(parts + wholes, 0);
    drv->close(st);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(only_what_a_key_needs, new_path),
        cmocka_unit_test_setup(what_lies_close_is_one_part, new_path),
        cmocka_unit_test_setup(a_key_that_isnt_there_is_all, new_path),
        cmocka_unit_test_setup(what_lies_in_many_places_is_all, new_path),
        cmocka_unit_test_setup(what_cant_be_found_is_all, new_path),
        cmocka_unit_test_setup(a_bucket_in_use_is_waited_for_a_limited_time, new_path),
        cmocka_unit_test_setup(a_part_that_fails_is_said, new_path),
    };
    return TEST_MAIN_WITH(tests, make_dir, remove_dir);
}
