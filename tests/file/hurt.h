/*
 * hurt.h - what the tests of damage share: a world of their own to do it in, children that may
 * crash or hang, and images of a store's file.
 */
#ifndef HURT_H
#define HURT_H

#include "holdfast.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>

extern hf_error hurt_error; /* pass &hurt_error as err */

#define OK(call)                                                                        \
    do {                                                                                \
        int rc_ = (call);                                                               \
        if (rc_)                                                                        \
            fail_msg("%s:%d: %s: %s: %s", __FILE__, __LINE__, #call, hf_code_name(rc_), \
                     hurt_error.text);                                                  \
    } while (0)
#define IS(code, call) assert_string_equal(hf_code_name(code), hf_code_name(call))

/* ---- a world of one's own ---- */

extern char hurt_dir[]; /* a tmpfs that only this program sees, and that ends with it */

/* A path in hurt_dir (or any, if it starts with a slash), and the URL of a store there. Borrowed.
 */
const char *hurt_path(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *hurt_url(const char *path);

/* The body of main: makes the world, runs the tests. A second argument filters them. */
int hurt_main(int argc, char **argv, const struct CMUnitTest *tests, size_t n,
              CMFixtureFunction setup, CMFixtureFunction teardown);
#define HURT_MAIN(argc, argv, tests, setup, teardown) \
    hurt_main(argc, argv, tests, sizeof(tests) / sizeof(tests)[0], setup, teardown)

/* The seed of this run: the environment's SEED, or 1; 0: a random one. It is printed. */
uint64_t hurt_seed(void);
uint64_t hurt_random(void);                    /* from the seed */
uint64_t hurt_below(uint64_t n);               /* 0 to n - 1 */
long hurt_count(const char *name, long usual); /* a number from the environment */
int64_t hurt_us(void);                         /* CLOCK_BOOTTIME */

/* ---- children ---- */

/* The results of a child, and how it ended. Shared with the running child. */
struct hurt_child {
    pid_t pid;
    int status; /* what its body returned; -1: it didn't return */
    int signal; /* that ended it, or 0 */
    int late;   /* it was killed because its time was over */
    long at;    /* how far it got */
    uint64_t number[4];
    char text[600];
};

/* Starts a child that runs body(me, arg); its result is the status. */
struct hurt_child *hurt_start(int (*body)(struct hurt_child *me, void *arg), void *arg);
/* Waits for it, many times `ms` at most; then it hangs, and is killed. */
void hurt_await(struct hurt_child *c, int ms);
/* Waits until the child has got to `at`; fails if it has ended, or hangs. */
void hurt_until(const struct hurt_child *c, long at);
void hurt_kill(struct hurt_child *c); /* SIGKILL, and waits */
void hurt_free(struct hurt_child *c);
/* Runs a child to its end. Fails, and says how it ended, unless it ended by itself with 0. */
void hurt_run(int (*body)(struct hurt_child *me, void *arg), void *arg, int ms);

/* Calls one(me, i, arg) for i = 0 to n - 1, in children: one that fails, crashes or hangs is noted
   and the next i has a new child. How many failed; the first few are shown. */
long hurt_each(long n, int (*one)(struct hurt_child *me, long i, void *arg), void *arg);

/* Called in a child: notes what is wrong, and returns 1. */
int hurt_say(struct hurt_child *me, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A child that opens the store, takes the key, sets `at` to 1 and holds it; number[0] is the
   token. It ends when `at` becomes 2. */
struct hurt_child *hurt_holder(const char *url, const char *key, const hf_options *options);
/* Tries once. Returns 1 if the key looks free. */
int hurt_is_free(const char *url, const char *key);

/* ---- files ---- */

/* A file's content in memory. */
struct hurt_image {
    unsigned char *bytes;
    size_t size;
};
void hurt_load(struct hurt_image *image, const char *path);
void hurt_store(const struct hurt_image *image, const char *path);
void hurt_drop(struct hurt_image *image);

#endif
