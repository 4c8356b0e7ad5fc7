/*
 * damage.c - a store's file with flipped bytes.
 *
 * The scene: a file in which one key is held by one process and waited for by another, a second is
 * shared by two, a third is held by a lease, an event is done, and others were used. All of its
 * processes are stopped, so it changes only by what a test does to it. Whatever that is: the next
 * process gets the truth or an error that names what is wrong. It doesn't crash or hang; a held key
 * isn't free to it; what is done isn't undone.
 *
 * SEED=N damages in other places.
 */
#include "hurt.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HELD   "seats/held"
#define SHARED "seats/shared"
#define LEASED "seats/leased"
#define DONE   "events/done"
#define USED   "seats/used"
#define RESULT "sent 3 mails"

enum { FILL = 12, HEADER = 4096, SECTOR = 512, PAGE = 4096, TABLES = 4096 + 4096 * 128 };

static struct {
    const char *path, *url;
    struct hurt_child *a, *b, *waiter;
    uint64_t used_token;
    size_t keys;
    struct hurt_image whole;
    unsigned char *map; /* the file itself */
} scene;

/* ---- the scene ---- */

static int use(hf *h, const char *key, const hf_options *o, uint64_t *ret_token, hf_error *err)
{
    hf_lock *lock;
    int rc = hf_acquire(h, key, o, &lock, err);
    if (rc) return rc;
    if (ret_token) *ret_token = hf_token(lock);
    return hf_release(lock, err);
}

static int furnish(struct hurt_child *me, void *arg)
{
    hf *h;
    hf_lock *lock;
    hf_once once;
    hf_error err;
    hf_options lease = HF_OPTIONS_INIT;
    char key[HF_KEY_CAP];
    (void)arg;
    lease.lease_ms = 3600000;
    lease.flags = HF_DETACHED;
    int rc = hf_open(scene.url, NULL, &h, &err);
    for (int i = 0; !rc && i < FILL; i++) {
        snprintf(key, sizeof key, "fill/%d", i);
        rc = use(h, key, NULL, NULL, &err);
    }
    memset(key, 'k', sizeof key - 1);
    key[sizeof key - 1] = 0;
    if (!rc) rc = use(h, key, NULL, NULL, &err);
    if (!rc) rc = hf_once_begin(h, DONE, HF_FOREVER, NULL, &once, &err);
    if (!rc) rc = hf_once_finish(once.lock, RESULT, HF_FOREVER, &err);
    if (!rc) rc = use(h, USED, NULL, &me->number[0], &err);
    if (!rc) rc = hf_acquire(h, LEASED, &lease, &lock, &err);
    if (rc) return hurt_say(me, "%s", err.text);
    return 0; /* the handle isn't closed, so that its slot stays in use */
}

static int hold_two(struct hurt_child *me, void *arg)
{
    hf *h;
    hf_lock *lock;
    hf_error err;
    hf_options share = HF_OPTIONS_INIT;
    share.mode = HF_SHARED;
    int rc = hf_open(scene.url, NULL, &h, &err);
    if (!rc) rc = hf_acquire(h, SHARED, &share, &lock, &err);
    if (!rc && arg) rc = hf_acquire(h, HELD, NULL, &lock, &err);
    if (rc) return hurt_say(me, "%s", err.text);
    __atomic_store_n(&me->at, 1, __ATOMIC_RELEASE);
    for (;;) pause();
}

static int wait_for_held(struct hurt_child *me, void *arg)
{
    hf *h;
    hf_lock *lock;
    hf_error err;
    (void)arg;
    int rc = hf_open(scene.url, NULL, &h, &err);
    if (!rc) rc = hf_acquire(h, HELD, NULL, &lock, &err);
    return hurt_say(me, "%s", rc ? err.text : "it was granted");
}

struct tally {
    size_t keys, held, done, waiters;
    int wrong;
};

static int tally_one(void *arg, const hf_info *info)
{
    struct tally *t = arg;
    t->keys++;
    t->waiters += info->n_waiters;
    if (!strcmp(info->key, HELD)) t->held += info->n_holders == 1;
    if (!strcmp(info->key, SHARED)) t->held += info->n_holders == 2;
    if (!strcmp(info->key, LEASED)) t->held += info->n_holders == 1;
    if (!strcmp(info->key, DONE)) t->done += info->done_us && !strcmp(info->result, RESULT);
    return 0;
}

/* Opens with a short io timeout, because a lock word that was changed into a stopped process's name
   ends in UNAVAILABLE. */
static int open_scene(hf **ret, hf_error *err)
{
    hf_open_options o = HF_OPEN_OPTIONS_INIT;
    o.io_timeout_ms = 100;
    return hf_open(scene.url, &o, ret, err);
}

static int stop_all(int signal)
{
    return kill(scene.a->pid, signal) | kill(scene.b->pid, signal) |
           kill(scene.waiter->pid, signal);
}

static int see_scene(struct hurt_child *me, void *arg)
{
    hf *h;
    hf_error err;
    struct tally t = {0};
    (void)arg;
    int rc = open_scene(&h, &err);
    if (!rc) rc = hf_list(h, "", tally_one, &t, &err);
    if (rc) return hurt_say(me, "%s", err.text);
    hf_close(h);
    me->number[0] = t.keys;
    me->number[1] = t.waiters;
    return t.held != 3 || t.done != 1 ? hurt_say(me, "%zu held, %zu done", t.held, t.done) : 0;
}

static int make_scene(void **state)
{
    (void)state;
    hurt_seed();
    scene.path = hurt_path("scene");
    scene.url = hurt_url(scene.path);
    struct hurt_child *c = hurt_start(furnish, NULL);
    hurt_await(c, 10000);
    if (c->status) fail_msg("the scene: %s", c->text);
    scene.used_token = c->number[0];
    hurt_free(c);
    scene.a = hurt_start(hold_two, &scene);
    scene.b = hurt_start(hold_two, NULL);
    hurt_until(scene.a, 1);
    hurt_until(scene.b, 1);
    scene.waiter = hurt_start(wait_for_held, NULL);
    /* The processes may be stopped while one of them holds a lock word of the file: then it is done
       once more. */
    for (int64_t end = hurt_us() + 300000000;; usleep(1000)) {
        assert_int_equal(stop_all(SIGSTOP), 0);
        c = hurt_start(see_scene, NULL);
        hurt_await(c, 10000);
        int good = !c->status && c->number[1] == 1;
        scene.keys = c->number[0];
        if (!good && hurt_us() > end) fail_msg("the scene: %s", c->text);
        hurt_free(c);
        if (good) break;
        assert_int_equal(stop_all(SIGCONT), 0);
    }
    assert_int_equal(scene.keys, FILL + 6);
    hurt_load(&scene.whole, scene.path);
    int fd = open(scene.path, O_RDWR | O_CLOEXEC);
    scene.map = mmap(NULL, scene.whole.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(scene.map != MAP_FAILED);
    close(fd);
    return 0;
}

static int end_scene(void **state)
{
    (void)state;
    hurt_free(scene.waiter);
    hurt_free(scene.a);
    hurt_free(scene.b);
    munmap(scene.map, scene.whole.size);
    hurt_drop(&scene.whole);
    return 0;
}

/* Restores the file, without touching what hasn't changed. */
static void restore(void)
{
    size_t size = scene.whole.size;
    struct stat s;
    if (stat(scene.path, &s) || (size_t)s.st_size != size)
        if (truncate(scene.path, (off_t)size)) abort();
    for (size_t at = 0; at < size; at += PAGE)
        if (memcmp(scene.map + at, scene.whole.bytes + at, PAGE))
            memcpy(scene.map + at, scene.whole.bytes + at, PAGE);
}

/* ---- what the next process may see ---- */

/* Checks that an error is of this kind, and names in one line what is wrong. */
static int good_error(struct hurt_child *me, const char *what, int rc, const hf_error *err)
{
    if (rc != HF_CORRUPT && rc != HF_UNAVAILABLE && rc != HF_FULL && rc != HF_UNSUPPORTED)
        return hurt_say(me, "%s: %s: %s", what, hf_code_name(rc), err->text);
    if (strlen(err->text) < 20 || strchr(err->text, '\n') ||
        (!strstr(err->text, scene.path) && !strstr(err->text, "file:")))
        return hurt_say(me, "%s: an error that says nothing: '%s'", what, err->text);
    return 0;
}

static int must_be_held(struct hurt_child *me, hf *h, const char *key, const hf_options *try)
{
    hf_lock *lock;
    hf_error err;
    int rc = hf_acquire(h, key, try, &lock, &err);
    if (!rc) return hurt_say(me, "'%s' is held, but was granted again", key);
    return rc == HF_BUSY ? 0 : good_error(me, key, rc, &err);
}

static int must_be_done(struct hurt_child *me, hf *h, const hf_options *try)
{
    hf_once once = {0};
    hf_error err;
    int rc = hf_once_begin(h, DONE, HF_FOREVER, try, &once, &err);
    if (rc) return good_error(me, DONE, rc, &err);
    if (once.lock) return hurt_say(me, "the event is done, but runs again");
    return strcmp(once.result, RESULT) ? hurt_say(me, "another result: '%s'", once.result) : 0;
}

static int must_be_free(struct hurt_child *me, hf *h, const char *key, const hf_options *try,
                        uint64_t above)
{
    uint64_t token = 0;
    hf_error err;
    int rc = use(h, key, try, &token, &err);
    if (rc) return good_error(me, key, rc, &err);
    if (token <= above)
        return hurt_say(me, "'%s': token %llu after %llu", key, (unsigned long long)token,
                        (unsigned long long)above);
    return 0;
}

/* Every operation. `strict`: nothing may be missing from a list that says that it is whole. */
static int look_around(struct hurt_child *me, hf *h, int strict)
{
    hf_options try = HF_OPTIONS_INIT;
    struct tally t = {0};
    hf_once once = {0};
    hf_error err;
    uint64_t n = 0;
    try.wait_ms = 0;
    if (must_be_held(me, h, HELD, &try) || must_be_held(me, h, SHARED, &try) ||
        must_be_held(me, h, LEASED, &try) || must_be_done(me, h, &try))
        return 1;
    int rc = hf_list(h, NULL, tally_one, &t, &err);
    if (rc && good_error(me, "list", rc, &err)) return 1;
    if (!rc && strict && (t.keys != scene.keys || t.held != 3 || t.done != 1))
        return hurt_say(me, "listed %zu keys, %zu held, %zu done", t.keys, t.held, t.done);
    if (must_be_free(me, h, USED, &try, scene.used_token) ||
        must_be_free(me, h, "fill/7", &try, 0) || must_be_free(me, h, "new/1", &try, 0))
        return 1;
    rc = hf_peek(h, HELD, tally_one, &t, &err);
    if (rc && good_error(me, "peek", rc, &err)) return 1;
    try.wait_ms = 1; /* stands in the queue, and leaves it */
    rc = hf_acquire(h, HELD, &try, &once.lock, &err);
    if (!rc) return hurt_say(me, "granted to a newcomer that waited");
    if (rc != HF_TIMEOUT && good_error(me, "wait", rc, &err)) return 1;
    rc = hf_once_begin(h, "events/new", 60000, &try, &once, &err);
    if (!rc) rc = once.lock ? hf_once_finish(once.lock, "x", 60000, &err) : 0;
    if (rc && good_error(me, "once", rc, &err)) return 1;
    rc = hf_prune(h, 60000, &n, &err);
    return rc ? good_error(me, "prune", rc, &err) : 0;
}

static int come_next(struct hurt_child *me, int strict)
{
    hf *h;
    hf_error err;
    int rc = open_scene(&h, &err);
    if (rc) return good_error(me, "open", rc, &err);
    rc = look_around(me, h, strict);
    hf_close(h);
    return rc;
}

static void nothing_hurt(void **state)
{
    (void)state;
    hf *h;
    hf_options try = HF_OPTIONS_INIT;
    try.wait_ms = 0;
    OK(open_scene(&h, &hurt_error));
    OK(use(h, USED, &try, NULL, &hurt_error));
    hf_close(h);
    restore();
}

/* ---- flips ---- */

struct flip {
    uint32_t at;
    uint8_t mask;
};

static struct {
    struct flip *list;
    long n, cap;
} flips;

static void add_flip(size_t at, unsigned mask)
{
    if (flips.n == flips.cap) {
        flips.cap = flips.cap ? flips.cap * 2 : 4096;
        flips.list = realloc(flips.list, (size_t)flips.cap * sizeof *flips.list);
        assert_non_null(flips.list);
    }
    flips.list[flips.n++] = (struct flip){(uint32_t)at, (uint8_t)mask};
}

static int flip_one(struct hurt_child *me, long i, void *arg)
{
    const struct flip *f = &flips.list[i];
    char text[sizeof me->text];
    (void)arg;
    scene.map[f->at] ^= f->mask;
    int rc = come_next(me, 1);
    restore();
    if (!rc) return 0;
    memcpy(text, me->text, sizeof text);
    return hurt_say(me, "offset %u, mask %#x: %.500s", f->at, f->mask, text);
}

static void flip_all(void)
{
    assert_true(flips.n > 0);
    long failed = hurt_each(flips.n, flip_one, NULL);
    restore();
    if (failed) fail_msg("%ld of %ld flips", failed, flips.n);
    print_message("# %ld flips\n", flips.n);
    flips.n = 0;
}

/* Is there anything near? Sectors that are all zero mean nothing, but are tried too. */
static int in_use(size_t at, size_t near)
{
    at = at / near * near;
    for (size_t i = 0; i < near; i++)
        if (scene.whole.bytes[at + i]) return 1;
    return 0;
}

/* Flips every bit of the used part of the header, and one bit in each byte of the rest. */
static void header_flips(void **state)
{
    (void)state;
    for (size_t at = 0; at < HEADER; at++) {
        if (!in_use(at, 8)) add_flip(at, 1u << (at % 8));
        for (unsigned bit = 0; in_use(at, 8) && bit < 8; bit++) add_flip(at, 1u << bit);
        if (in_use(at, 8)) add_flip(at, 0xff);
    }
    flip_all();
}

/* All words of slots and buckets that aren't zero, and a sample of those that are. */
static void table_flips(void **state)
{
    (void)state;
    size_t end = TABLES + 65536 * 32;
    for (size_t at = HEADER; at < end; at++)
        if (in_use(at, 8)) {
            add_flip(at, 1u << hurt_below(8));
            add_flip(at, 0xff);
        }
    for (int i = 0; i < 500; i++) add_flip(HEADER + hurt_below(end - HEADER), 1u << hurt_below(8));
    flip_all();
}

/* A bit of every byte that is used for keys, rows and markers. */
static void heap_flips(void **state)
{
    (void)state;
    size_t heap = TABLES + 65536 * 32;
    for (size_t at = heap; at < scene.whole.size; at++)
        if (in_use(at, 8)) add_flip(at, 1u << hurt_below(8));
    flip_all();
}

/* A sector of the header that reads as zeros, or as ones. */
static int blank_one(struct hurt_child *me, long i, void *arg)
{
    (void)arg;
    memset(scene.map + i / 2 * SECTOR, i % 2 ? 0xff : 0, SECTOR);
    int rc = come_next(me, 1);
    restore();
    return rc;
}

static void blank_sectors(void **state)
{
    (void)state;
    assert_int_equal(hurt_each(HEADER / SECTOR * 2, blank_one, NULL), 0);
    restore();
}

/* A file that is longer than its header says, as after a crash while it grows. */
static int longer(struct hurt_child *me, void *arg)
{
    (void)arg;
    return come_next(me, 1);
}

static void longer_is_whole(void **state)
{
    (void)state;
    assert_int_equal(truncate(scene.path, (off_t)scene.whole.size + 70000), 0);
    hurt_run(longer, NULL, 10000);
    restore();
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_hurt),  cmocka_unit_test(header_flips),
        cmocka_unit_test(table_flips),   cmocka_unit_test(heap_flips),
        cmocka_unit_test(blank_sectors), cmocka_unit_test(longer_is_whole),
    };
    return HURT_MAIN(argc, argv, tests, make_scene, end_scene);
}
