/*
 * lock_again.c - the lock suite: a thread or an owner that acquires what it holds already, and a
 * request that waits already.
 */
#include "lock_suite.h"

#include "holdfast.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { ASKING = -1 };

/* An acquisition in a thread of its own; the code is ASKING until it has ended. */
struct asker {
    hf *h;
    const char *key;
    hf_options options;
    hf_lock *lock;
    atomic_int code;
    pthread_t thread;
};

static void *ask(void *arg)
{
    struct asker *a = arg;
    a->code = hf_acquire(a->h, a->key, &a->options, &a->lock, NULL);
    return NULL;
}

static void start_asking(struct asker *a)
{
    a->code = ASKING;
    assert_int_equal(pthread_create(&a->thread, NULL, ask, a), 0);
}

/* Waits until the request of this thread is queued. An acquisition that has ended never is: that
   fails the test. */
static void await_in_line(struct asker *a)
{
    int64_t end = suite_ms() + SUITE_PATIENCE_MS;
    while (a->code == ASKING && !suite_waiters(a->h, a->key) && suite_ms() < end) usleep(500);
    IS(ASKING, a->code);
    suite_await_waiters(a->h, a->key, 1);
}

static void never_told(void *arg, int code, hf_lock *lock, const hf_error *err)
{
    (void)arg, (void)code, (void)lock, (void)err;
    fail();
}

/* A thread that would wait for itself without end gets an error; a wait that ends by itself
   doesn't. */
static void a_wait_for_oneself_without_end_is_an_error(void **state)
{
    (void)state;
    hf *h = suite_open();
    const char *key = suite_key("again");
    hf_lock *lock, *x;
    hf_options o = HF_OPTIONS_INIT;
    OK(hf_acquire(h, key, NULL, &lock, &suite_error));
    IS(HF_RECURSIVE, hf_acquire(h, key, NULL, &x, &suite_error));
    o.mode = HF_SHARED;
    IS(HF_RECURSIVE, hf_acquire(h, key, &o, &x, &suite_error));
    o.mode = HF_EXCLUSIVE;
    o.wait_ms = 0;
    IS(HF_BUSY, hf_acquire(h, key, &o, &x, &suite_error));
    o.wait_ms = 20;
    IS(HF_TIMEOUT, hf_acquire(h, key, &o, &x, &suite_error));
    o.flags = HF_ALLOW_RECURSIVE;
    IS(HF_TIMEOUT, hf_acquire(h, key, &o, &x, &suite_error));
    OK(hf_release(lock, &suite_error));
    /* A hold that this handle doesn't renew ends by its lease. */
    o = (hf_options)HF_OPTIONS_INIT;
    o.lease_ms = suite_lease(1500);
    o.flags = HF_NO_RENEW;
    OK(hf_acquire(h, key, &o, &lock, &suite_error));
    OK(hf_acquire(h, key, NULL, &x, &suite_error));
    IS(HF_LOST, hf_release(lock, &suite_error));
    OK(hf_release(x, &suite_error));
    hf_close(h);
}

/* The owner in the options would wait for itself, through one handle. Another handle may belong to
   a later run of the same execution: it waits until the dead run's lease ends. */
static void an_owner_that_waits_for_itself_is_refused(void **state)
{
    (void)state;
    hf *h = suite_open(), *other = suite_open();
    const char *key = suite_key("owner");
    hf_lock *lock, *x;
    hf_wait *w;
    hf_once once;
    hf_options o = HF_OPTIONS_INIT, try = HF_OPTIONS_INIT;
    o.owner = try.owner = "execution-7";
    try.wait_ms = 0;
    OK(hf_acquire(h, key, &o, &lock, &suite_error));
    assert_string_equal(hf_owner(lock), "execution-7");
    IS(HF_RECURSIVE, hf_acquire_start(h, key, &o, never_told, NULL, &w, &suite_error));
    IS(HF_RECURSIVE, hf_once_start(h, key, 1000, &o, &once, never_told, NULL, &w, &suite_error));
    IS(HF_BUSY, hf_acquire(h, key, &try, &x, &suite_error));
    IS(HF_BUSY, hf_acquire(other, key, &try, &x, &suite_error));
    o.wait_ms = 20;
    IS(HF_TIMEOUT, hf_acquire(other, key, &o, &x, &suite_error));
    IS(HF_TIMEOUT, hf_once_begin(other, key, 1000, &o, &once, &suite_error));
    OK(hf_release(lock, &suite_error));
    hf_close(other);
    hf_close(h);
}

static void only_the_same_thread_is_recursive(void **state)
{
    (void)state;
    hf *h = suite_open();
    const char *key = suite_key("threads");
    hf_options shared = HF_OPTIONS_INIT;
    hf_once once;
    hf_lock *lock;
    struct asker a = {.h = h, .key = key, .options = HF_OPTIONS_INIT};
    start_asking(&a);
    pthread_join(a.thread, NULL);
    IS(HF_OK, a.code);
    struct asker b = {.h = h, .key = key, .options = HF_OPTIONS_INIT};
    start_asking(&b); /* maybe with the memory of the first */
    await_in_line(&b);
    OK(hf_release(a.lock, &suite_error));
    pthread_join(b.thread, NULL);
    IS(HF_OK, b.code);
    OK(hf_release(b.lock, &suite_error));
    OK(hf_acquire(h, key, NULL, &lock, &suite_error));
    shared.mode = HF_SHARED;
    IS(HF_RECURSIVE, hf_acquire(h, key, &shared, &a.lock, &suite_error));
    IS(HF_RECURSIVE, hf_once_begin(h, key, 1000, NULL, &once, &suite_error));
    OK(hf_release(lock, &suite_error));
    hf_close(h);
}

/* The try is made by this handle and by another one. The request's place in the queue stays with
   its wait. */
static void a_try_of_a_request_that_waits_is_busy(void **state)
{
    (void)state;
    static const uint8_t id[16] = "try-of-a-wait-1";
    hf *holder = suite_open(), *other = suite_open();
    struct asker waits = {.h = suite_open(), .key = suite_key("waits")};
    hf_options try = HF_OPTIONS_INIT;
    hf_lock *held, *lock;
    try.wait_ms = 0;
    waits.options = (hf_options)HF_OPTIONS_INIT;
    waits.options.request_id = try.request_id = id;
    OK(hf_acquire(holder, waits.key, NULL, &held, &suite_error));
    start_asking(&waits);
    await_in_line(&waits);
    IS(HF_BUSY, hf_acquire(waits.h, waits.key, &try, &lock, &suite_error));
    IS(HF_BUSY, hf_acquire(other, waits.key, &try, &lock, &suite_error));
    assert_int_equal(suite_waiters(holder, waits.key), 1);
    OK(hf_release(held, &suite_error));
    pthread_join(waits.thread, NULL);
    IS(HF_OK, waits.code);
    hf_close(waits.h);
    hf_close(other);
    hf_close(holder);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_for_oneself_without_end_is_an_error),
        cmocka_unit_test(an_owner_that_waits_for_itself_is_refused),
        cmocka_unit_test(only_the_same_thread_is_recursive),
        cmocka_unit_test(a_try_of_a_request_that_waits_is_busy),
    };
    return suite_main(argc, argv, tests, sizeof tests / sizeof *tests, "lock_again");
}
