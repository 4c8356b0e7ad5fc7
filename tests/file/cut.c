/*
 * cut.c - a store's file that is cut short, empty, another, or taken away while it is open.
 *
 * A short file is an error that says so, never a new store. Each handle that has it open learns of
 * it within a moment, with one exception: a process that touches memory that was cut off ends by
 * SIGBUS.
 */
#include "hurt.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SECTOR = 512 };

static int use(hf *h, const char *key, const hf_options *o, hf_error *err)
{
    hf_lock *lock;
    int rc = hf_acquire(h, key, o, &lock, err);
    return rc ? rc : hf_release(lock, err);
}

/* ---- lengths ---- */

struct lengths {
    const char *path;
    off_t *at;
};

static int shorter_one(struct hurt_child *me, long i, void *arg)
{
    hf *h;
    hf_error err;
    struct stat s;
    const struct lengths *l = arg;
    if (truncate(l->path, l->at[i])) return hurt_say(me, "truncate: %s", strerror(errno));
    int rc = hf_open(hurt_url(l->path), NULL, &h, &err);
    if (!rc) return hurt_say(me, "%lld bytes: opened", (long long)l->at[i]);
    if (rc != HF_CORRUPT)
        return hurt_say(me, "%lld bytes: %s: %s", (long long)l->at[i], hf_code_name(rc), err.text);
    if (!strstr(err.text, l->path)) return hurt_say(me, "which file? %s", err.text);
    if (stat(l->path, &s) || s.st_size != l->at[i])
        return hurt_say(me, "%lld bytes: changed by opening", (long long)l->at[i]);
    return 0;
}

/* Cuts from the whole file downwards, so that the part that is cut off never comes back. */
static void every_length(void **state)
{
    struct lengths l = {hurt_path("shorter"), NULL};
    struct hurt_image whole;
    size_t n = 0;
    (void)state;
    struct hurt_child *holder = hurt_holder(hurt_url(l.path), "held", NULL);
    assert_int_equal(kill(holder->pid, SIGSTOP), 0);
    hurt_load(&whole, l.path);
    l.at = malloc((whole.size / SECTOR + 1) * 3 * sizeof *l.at);
    assert_non_null(l.at);
    for (size_t at = (whole.size + SECTOR - 1) / SECTOR * SECTOR;; at -= SECTOR) {
        for (int d = 1; d >= -1; d--)
            if (at + (size_t)d < whole.size && (at || d >= 0)) l.at[n++] = (off_t)at + d;
        if (!at) break;
    }
    assert_int_equal(hurt_each((long)n, shorter_one, &l), 0);
    print_message("# %zu lengths\n", n);
    /* Restored to its full length the store is as before. */
    hurt_store(&whole, l.path);
    assert_false(hurt_is_free(hurt_url(l.path), "held"));
    hurt_free(holder);
    assert_true(hurt_is_free(hurt_url(l.path), "held"));
    hurt_drop(&whole);
    free(l.at);
}

/* Files with other contents than a store. */
static void not_a_store(void **state)
{
    (void)state;
    static const char *const content[] = {"", "\n", "x", "SQLite format 3", "#!/bin/sh\nexit 0\n"};
    const char *path = hurt_path("other");
    hf *h;
    for (size_t i = 0; i < 7; i++) {
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        if (i < 5) assert_int_equal(write(fd, content[i], strlen(content[i])), strlen(content[i]));
        if (i == 5) assert_int_equal(ftruncate(fd, 1 << 22), 0);
        for (int k = 0; i == 6 && k < 1 << 22; k += 4096) {
            unsigned char noise[4096];
            for (size_t b = 0; b < sizeof noise; b++) noise[b] = (unsigned char)hurt_random();
            assert_int_equal(write(fd, noise, sizeof noise), sizeof noise);
        }
        close(fd);
        IS(HF_CORRUPT, hf_open(hurt_url(path), NULL, &h, &hurt_error));
        assert_non_null(strstr(hurt_error.text, path));
    }
    assert_int_equal(unlink(path), 0);
}

/* ---- under a live handle ---- */

/* Opens the store, uses a key, reports that, and repeats it when told to, until it gets the
   error. */
static int live(struct hurt_child *me, void *arg)
{
    const char *url = arg;
    hf *h;
    hf_error err;
    hf_options try = HF_OPTIONS_INIT;
    try.wait_ms = 0;
    int rc = hf_open(url, NULL, &h, &err);
    if (!rc) rc = use(h, "mine", &try, &err);
    if (rc) return hurt_say(me, "%s", err.text);
    __atomic_store_n(&me->at, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&me->at, __ATOMIC_ACQUIRE) < 2) usleep(100);
    int64_t start = hurt_us();
    while (!rc && hurt_us() < start + 20000000) {
        rc = use(h, "mine", &try, &err);
        usleep(200);
    }
    if (rc != HF_CORRUPT || !strstr(err.text, "while it was open"))
        return hurt_say(me, "%s: %s", hf_code_name(rc), rc ? err.text : "nothing noticed");
    for (int i = 0; i < 3; i++) {
        rc = use(h, i ? "mine" : "new", &try, &err);
        if (rc != HF_CORRUPT) return hurt_say(me, "then it works again: %s", hf_code_name(rc));
    }
    hf_close(h);
    return 0;
}

static struct hurt_child *begin_live(const char *path)
{
    struct hurt_child *c = hurt_start(live, (void *)(uintptr_t)hurt_url(path));
    hurt_until(c, 1);
    return c;
}

static void end_live(struct hurt_child *c, int may_bus)
{
    __atomic_store_n(&c->at, 2, __ATOMIC_RELEASE);
    hurt_await(c, 10000);
    struct hurt_child end = *c;
    hurt_free(c);
    assert_false(end.late);
    if (may_bus && end.signal == SIGBUS) return;
    if (end.signal || end.status) fail_msg("signal %d: %s", end.signal, end.text);
}

/*
 * When a mapped file is cut short, its users lose the memory: an access to it is SIGBUS, before any
 * check can be made. The library leaves that signal to its program; the command handles it. If the
 * part that is used is still there, the result is CORRUPT.
 */
static void cut_short_while_open(void **state)
{
    (void)state;
    static const off_t left[] = {0, 100, 512, 4096, 4096 + 4096 * 128, -4096, -512, -1};
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) {
        const char *path = hurt_path("cut-%zu", i);
        struct stat s;
        struct hurt_child *c = begin_live(path);
        assert_int_equal(stat(path, &s), 0);
        assert_int_equal(truncate(path, left[i] < 0 ? s.st_size + left[i] : left[i]), 0);
        end_live(c, left[i] >= 0 || left[i] == -4096);
        hf *h;
        IS(HF_CORRUPT, hf_open(hurt_url(path), NULL, &h, &hurt_error));
    }
}

static void removed_while_open(void **state)
{
    (void)state;
    const char *path = hurt_path("removed");
    struct hurt_child *c = begin_live(path);
    assert_int_equal(unlink(path), 0);
    end_live(c, 0);
    /* A second world begins, in which tokens go on growing. */
    c = hurt_holder(hurt_url(path), "mine", NULL);
    uint64_t token = c->number[0];
    struct hurt_child *old = hurt_holder(hurt_url(path), "theirs", NULL);
    assert_int_equal(unlink(path), 0);
    struct hurt_child *next = hurt_holder(hurt_url(path), "mine", NULL);
    assert_true(next->number[0] > token);
    hurt_free(next);
    hurt_free(old);
    hurt_free(c);
}

/* A holder of a key in a store that is gone gets LOST, because other clients may hold the key in
   another file. */
static void its_holders_are_told(void **state)
{
    (void)state;
    const char *path = hurt_path("gone");
    hf *h;
    hf_lock *lock;
    OK(hf_open(hurt_url(path), NULL, &h, &hurt_error));
    OK(hf_acquire(h, "mine", NULL, &lock, &hurt_error));
    struct pollfd told = {hf_lost_fd(lock), POLLIN, 0};
    assert_int_equal(poll(&told, 1, 300), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(poll(&told, 1, 20000), 1);
    IS(HF_CORRUPT, hf_confirm(lock, &hurt_error));
    assert_non_null(strstr(hurt_error.text, "was removed"));
    IS(HF_CORRUPT, hf_release(lock, &hurt_error));
    hf_close(h);
}

static void replaced_while_open(void **state)
{
    (void)state;
    const char *path = hurt_path("replaced"), *other = hurt_path("replacing");
    struct hurt_image image;
    struct hurt_child *c = begin_live(path);
    hurt_load(&image, path);
    hurt_store(&image, other); /* byte for byte the same, but another file */
    hurt_drop(&image);
    assert_int_equal(rename(other, path), 0);
    end_live(c, 0);
}

static void moved_away_while_open(void **state)
{
    (void)state;
    const char *path = hurt_path("moved");
    struct hurt_child *c = begin_live(path);
    assert_int_equal(rename(path, hurt_path("moved-away")), 0);
    end_live(c, 0);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length),          cmocka_unit_test(not_a_store),
        cmocka_unit_test(cut_short_while_open),  cmocka_unit_test(removed_while_open),
        cmocka_unit_test(its_holders_are_told),  cmocka_unit_test(replaced_while_open),
        cmocka_unit_test(moved_away_while_open),
    };
    return HURT_MAIN(argc, argv, tests, NULL, NULL);
}
