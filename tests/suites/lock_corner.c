/*
 * lock_corner.c - the lock suite, fifth part: combinations that once made a wait sleep for ever, a
 * holder believe for too long, or an answer untrue.
 */
#include "lock_suite.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A waiter in a thread of its own. */
struct asker {
    hf *h;
    const char *key;
    hf_options options;
    hf_lock *lock;
    int code, told;
    int releases; /* it releases the key as soon as it has it */
    uint64_t token;
    int64_t at_ms;
    pthread_t thread;
};

static void *ask(void *arg)
{
    struct asker *a = arg;
    a->code = hf_acquire(a->h, a->key, &a->options, &a->lock, NULL);
    a->at_ms = suite_ms();
    if (!a->code) a->token = hf_token(a->lock);
    if (!a->code && a->releases) hf_release(a->lock, NULL);
    __atomic_store_n(&a->told, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static void start(struct asker *a, hf *h, const char *key, size_t place)
{
    a->h = h;
    a->key = key;
    if (!a->options.size) a->options = (hf_options)HF_OPTIONS_INIT;
    a->options.wait_ms = SUITE_PATIENCE_MS;
    pthread_create(&a->thread, NULL, ask, a);
    suite_await_waiters(h, key, place);
}

static void served(struct asker *a)
{
    pthread_join(a->thread, NULL);
    IS(HF_OK, a->code);
}

static hf_options trying(void)
{
    hf_options o = HF_OPTIONS_INIT;
    o.wait_ms = 0;
    return o;
}

static hf *sick_store(const char *plan)
{
    hf_open_options o = HF_OPEN_OPTIONS_INIT;
    hf *h = NULL;
    setenv("HOLDFAST_FAULT", plan, 1);
    OK(hf_open(suite_url, &o, &h, &suite_error));
    unsetenv("HOLDFAST_FAULT");
    return h;
}

/* ---- an end by time that appears while somebody waits ---- */

static int64_t kept(void)
{
    hf *a = suite_open(), *b = suite_open();
    const char *key = suite_key("kept");
    struct asker w = {0};
    hf_options o = HF_OPTIONS_INIT;
    hf_lock *lock;
    o.at_least_ms = 500;
    int64_t since = suite_ms();
    OK(hf_acquire(a, key, &o, &lock, &suite_error));
    start(&w, b, key, 1);
    OK(hf_release(lock, &suite_error));
    served(&w);
    assert_true(w.at_ms - since >= 499);
    hf_close(a);
    hf_close(b);
    return w.at_ms - since;
}

SUITE_QUICK(kept_for_a_while_then_served, kept, 3000)

/* A grant that was over when it arrived is asked for again, behind the other waiter. */
static int64_t ran_out(void)
{
    hf *h[3] = {suite_open(), suite_open(), suite_open()};
    const char *key = suite_key("later");
    struct asker b = {0}, c = {.releases = 1};
    hf_lock *lock;
    OK(hf_acquire(h[0], key, NULL, &lock, &suite_error));
    b.options = (hf_options)HF_OPTIONS_INIT;
    b.options.lease_ms = 400;
    b.options.flags = HF_NO_RENEW;
    start(&b, h[1], key, 1);
    start(&c, h[2], key, 2);
    int64_t since = suite_ms();
    OK(hf_release(lock, &suite_error));
    served(&b);
    served(&c);
    int again = hf_token(b.lock) > c.token;
    if (!again) assert_int_equal(hf_left_ms(b.lock), 0);
    for (int i = 0; i < 3; i++) hf_close(h[i]);
    return again ? -1 : c.at_ms - since;
}

SUITE_QUICK(a_later_lease_runs_out, ran_out, 4000)

static int64_t shortened(void)
{
    hf *a = suite_open(), *b = suite_open();
    const char *key = suite_key("shortened");
    struct asker w = {0};
    hf_lock *lock;
    OK(hf_acquire(a, key, NULL, &lock, &suite_error));
    start(&w, b, key, 1);
    int64_t since = suite_ms();
    int rc = hf_renew(lock, 300, &suite_error), late = suite_ms() - since >= 300;
    if (!late) OK(rc);
    served(&w);
    assert_int_equal(hf_left_ms(lock), 0);
    hf_stats s = {.size = sizeof s};
    OK(hf_get_stats(a, &s));
    assert_int_equal(s.lost, 1);
    hf_close(a);
    hf_close(b);
    return late ? -1 : w.at_ms - since;
}

SUITE_QUICK(a_hold_shortened_by_renewal, shortened, 3000)

static int64_t woken(void)
{
    hf *a = suite_open(), *b = suite_open();
    const char *key = suite_key("detached");
    struct asker w = {0};
    hf_lock *lock;
    w.options = (hf_options)HF_OPTIONS_INIT;
    w.options.flags = HF_DETACHED;
    w.options.lease_ms = 60000;
    OK(hf_acquire(a, key, NULL, &lock, &suite_error));
    start(&w, b, key, 1);
    int64_t since = suite_ms();
    OK(hf_release(lock, &suite_error));
    served(&w);
    uint64_t token = hf_token(w.lock);
    hf_close(b); /* the lock isn't bound to the handle */
    OK(hf_adopt(a, key, token, &lock, &suite_error));
    OK(hf_release(lock, &suite_error));
    hf_close(a);
    return w.at_ms - since;
}

SUITE_QUICK(a_detached_waiter_is_woken, woken, 900)

/* ---- renewal, loss, release, close at the same time ---- */

static int busy(int64_t lease_ms)
{
    hf *h = sick_store("get:*:delay=60");
    hf_options o = HF_OPTIONS_INIT;
    hf_lock *lock;
    int rc = 0;
    o.lease_ms = lease_ms;
    OK(hf_acquire(h, suite_key("busy"), &o, &lock, &suite_error));
    for (int64_t end = suite_ms() + 2 * lease_ms; !rc && suite_ms() < end;)
        rc = hf_confirm(lock, &suite_error);
    if (!rc) rc = hf_release(lock, &suite_error);
    if (rc != HF_LOST) OK(rc);
    hf_close(h);
    return rc;
}

SUITE_LONGER(busy_locks_are_renewed, busy, 900)

static struct {
    int begun, ended;
    char key[HF_KEY_CAP];
} callback;

static void slow_callback(void *arg, hf_lock *lock)
{
    (void)arg;
    __atomic_store_n(&callback.begun, 1, __ATOMIC_SEQ_CST);
    usleep(200000);
    memcpy(callback.key, hf_key(lock), strlen(hf_key(lock)) + 1);
    __atomic_store_n(&callback.ended, 1, __ATOMIC_SEQ_CST);
}

static void release_waits_for_the_callback(void **state)
{
    (void)state;
    hf *h = sick_store("get:*:delay=50");
    const char *key = suite_key("callback");
    hf_options o = HF_OPTIONS_INIT;
    hf_lock *lock, *next;
    memset(&callback, 0, sizeof callback);
    o.lease_ms = 20000;
    OK(hf_acquire(h, key, &o, &lock, &suite_error));
    hf_on_lost(lock, slow_callback, NULL);
    OK(hf_break(h, key, hf_token(lock), &suite_error));
    IS(HF_LOST, hf_renew(lock, 0, &suite_error));
    IS(HF_LOST, hf_release(lock, &suite_error));
    assert_int_equal(__atomic_load_n(&callback.begun, __ATOMIC_SEQ_CST),
                     __atomic_load_n(&callback.ended, __ATOMIC_SEQ_CST));
    OK(hf_acquire(h, suite_key("another"), NULL, &next, &suite_error));
    if (callback.ended) assert_string_equal(callback.key, key);
    hf_close(h);
}

static void releasing_callback(void *arg, hf_lock *lock)
{
    usleep(100000); /* so that hf_close most often begins meanwhile */
    *(int *)arg = hf_release(lock, NULL);
}

static void close_and_a_callback_that_releases(void **state)
{
    (void)state;
    hf *h = suite_open();
    hf_options o = HF_OPTIONS_INIT;
    hf_lock *lock;
    int released = 1;
    o.max_hold_ms = 100;
    OK(hf_acquire(h, suite_key("close"), &o, &lock, &suite_error));
    int fd = dup(hf_lost_fd(lock)); /* the callback's release closes the lock's own */
    assert_true(fd >= 0);
    hf_on_lost(lock, releasing_callback, &released);
    uint64_t n;
    while (read(fd, &n, sizeof n) < 0) usleep(1000);
    close(fd);
    hf_close(h);
    IS(HF_LOST, released);
}

/* ---- nothing is stranded by an error ---- */

static void an_error_does_not_keep_the_key(void **state)
{
    (void)state;
    hf *clean = suite_open(), *sick = sick_store("instant,update:1:full");
    const char *key = suite_key("stranded");
    hf_options o = HF_OPTIONS_INIT;
    hf_once once;
    hf_lock *lock;
    o.wait_ms = 30000;
    OK(hf_once_begin(sick, key, 60000, NULL, &once, &suite_error));
    IS(HF_FULL, hf_once_finish(once.lock, "r", 60000, &suite_error));
    OK(hf_once_begin(clean, key, 60000, &o, &once, &suite_error));
    assert_non_null(once.lock); /* it wasn't marked */
    OK(hf_release(once.lock, &suite_error));
    hf_close(sick);
    sick = sick_store("instant,replace:1:nomem,update:1:nomem");
    OK(hf_acquire(sick, key, NULL, &lock, &suite_error));
    IS(HF_NOMEM, hf_release(lock, &suite_error));
    /* the release is repeated in the background */
    OK(hf_acquire(clean, key, &o, &lock, &suite_error));
    hf_close(sick);
    hf_close(clean);
}

static hf *breaker;
static const char *broken_key;
static uint64_t broken_token;

static void *break_it(void *arg)
{
    (void)arg;
    usleep(8000);
    hf_break(breaker, broken_key, broken_token, NULL);
    return NULL;
}

/* The reply to a finish is lost before it took effect, the grant is broken meanwhile, and an old
   marker says the same: the event isn't done. */
static void an_old_marker_is_no_proof(void **state)
{
    (void)state;
    hf *b = suite_open(), *a;
    const char *key = suite_key("old-marker");
    hf_once once;
    pthread_t t;
    OK(hf_once_begin(b, key, 5, NULL, &once, &suite_error));
    OK(hf_once_finish(once.lock, "", 5, &suite_error));
    usleep(20000);
    a = sick_store("replace:2:before");
    OK(hf_once_begin(a, key, 60000, NULL, &once, &suite_error));
    assert_non_null(once.lock);
    breaker = b;
    broken_key = key;
    broken_token = hf_token(once.lock);
    pthread_create(&t, NULL, break_it, NULL);
    int rc = hf_once_finish(once.lock, "", 60000, &suite_error);
    pthread_join(t, NULL);
    OK(hf_once_begin(b, key, 60000, NULL, &once, &suite_error));
    /* In either case the store agrees with what hf_once_finish returned. */
    assert_int_equal(rc == HF_OK, once.lock == NULL);
    hf_close(a);
    hf_close(b);
}

/* ---- what is reported ---- */

static void nothing_done_nothing_kept(void **state)
{
    (void)state;
    hf *a = suite_open(), *b = suite_open();
    const char *k1 = suite_key("all"), *k2 = suite_key("all");
    const char *keys[] = {k1, k2};
    hf_options o = trying();
    hf_lock *l[2], *lock;
    OK(hf_acquire(b, k2, NULL, &lock, &suite_error));
    o.at_least_ms = 60000;
    IS(HF_BUSY, hf_acquire_all(a, keys, 2, &o, l, &suite_error));
    o = trying();
    OK(hf_acquire(b, k1, &o, &lock, &suite_error));
    hf_close(a);
    hf_close(b);
}

static void what_is_kept_is_nobodys(void **state)
{
    (void)state;
    static const uint8_t id[16] = "kept-request-01";
    hf *a = suite_open();
    const char *key = suite_key("nobodys");
    hf_options o = trying();
    hf_lock *lock;
    o.at_least_ms = 60000;
    o.owner = "cron";
    o.request_id = id;
    OK(hf_acquire(a, key, &o, &lock, &suite_error));
    OK(hf_release(lock, &suite_error));
    /* neither RECURSIVE nor OK once more */
    IS(HF_BUSY, hf_acquire(a, key, &o, &lock, &suite_error));
    hf_close(a);
}

static void note_code(void *arg, int code, hf_lock *lock, const hf_error *err)
{
    (void)lock;
    (void)err;
    __atomic_store_n((int *)arg, code, __ATOMIC_SEQ_CST);
}

static void who_was_in_the_way_is_forgotten(void **state)
{
    (void)state;
    hf *a = suite_open(), *b = suite_open();
    const char *key = suite_key("way"), *other = suite_key("other");
    hf_options o = HF_OPTIONS_INIT, try = trying();
    hf_lock *mine, *x;
    o.mode = HF_SHARED;
    o.lease_ms = 3600000;
    OK(hf_acquire(b, key, &o, &x, &suite_error));
    IS(HF_BUSY, hf_acquire(a, key, &try, &mine, &suite_error));
    OK(hf_acquire(a, other, NULL, &mine, &suite_error));
    assert_true(hf_left_ms(mine) <= 30000 || suite_has_sessions());
    assert_int_equal(suite_has_sessions(), hf_left_ms(mine) == INT64_MAX);
    try.mode = HF_SHARED;
    IS(HF_BUSY, hf_acquire(a, other, &try, &x, &suite_error));
    /* The handle remembers the mode of its own hold, without which no thread would wait here. */
    try.wait_ms = HF_FOREVER;
    try.owner = hf_owner(mine);
    hf_wait *w;
    int told = 0;
    IS(HF_RECURSIVE, hf_acquire_start(a, other, &try, note_code, &told, &w, &suite_error));
    hf_close(a);
    hf_close(b);
}

static void a_try_behind_a_wait_is_busy(void **state)
{
    (void)state;
    hf *a = suite_open(), *b = suite_open();
    const char *key = suite_key("behind");
    hf_options o = trying();
    hf_lock *lock;
    hf_wait *w[2];
    int first = 1, second = 1;
    OK(hf_acquire(a, key, NULL, &lock, &suite_error));
    OK(hf_acquire_start(b, key, NULL, note_code, &first, &w[0], &suite_error));
    suite_await_waiters(a, key, 1);
    OK(hf_acquire_start(b, key, &o, note_code, &second, &w[1], &suite_error));
    while (__atomic_load_n(&second, __ATOMIC_SEQ_CST) == 1) usleep(1000);
    IS(HF_BUSY, second);
    IS(HF_BUSY, hf_acquire(b, key, &o, &lock, &suite_error));
    hf_wait_free(w[0]);
    hf_wait_free(w[1]);
    hf_close(a);
    hf_close(b);
}

/* Returns 1 if the first one had given up before its wait was seen. */
static int two_askers(int64_t ms)
{
    static const uint8_t id[16] = "two-askers-0001";
    hf *a = suite_open(), *b = suite_open(), *c = suite_open();
    const char *key = suite_key("askers");
    struct asker first = {0};
    hf_options o = HF_OPTIONS_INIT, try = trying();
    hf_lock *held, *mine, *x;
    first.options = (hf_options)HF_OPTIONS_INIT;
    first.options.request_id = o.request_id = id;
    OK(hf_acquire(c, key, NULL, &held, &suite_error));
    first.h = a;
    first.key = key;
    first.options.wait_ms = ms;
    pthread_create(&first.thread, NULL, ask, &first);
    while (suite_waiters(c, key) != 1 && !__atomic_load_n(&first.told, __ATOMIC_SEQ_CST))
        usleep(500);
    int late = __atomic_load_n(&first.told, __ATOMIC_SEQ_CST);
    int rc = HF_TIMEOUT;
    if (!late) OK(hf_release(held, &suite_error));
    if (!late) rc = hf_acquire(b, key, &o, &mine, &suite_error);
    pthread_join(first.thread, NULL);
    if (!rc) IS(HF_BUSY, hf_acquire(c, key, &try, &x, &suite_error));
    hf_close(a);
    hf_close(b);
    hf_close(c);
    return late;
}

/* Two askers of one request: the first's giving up doesn't take the second's grant away. */
SUITE_LONGER(one_request_two_askers, two_askers, 400)

/* ---- what callers expected ---- */

static void a_request_asked_again_is_one_grant(void **state)
{
    (void)state;
    static const uint8_t id[16] = "asked-again-001";
    hf *h = suite_open();
    const char *key = suite_key("again");
    hf_options o = trying();
    hf_lock *first, *second, *x;
    o.request_id = id;
    OK(hf_acquire(h, key, &o, &first, &suite_error));
    OK(hf_acquire(h, key, &o, &second, &suite_error));
    assert_int_equal(hf_token(first), hf_token(second));
    o.request_id = NULL;
    o.wait_ms = HF_FOREVER;
    IS(HF_RECURSIVE, hf_acquire(h, key, &o, &x, &suite_error));
    OK(hf_release(first, &suite_error));
    IS(HF_LOST, hf_release(second, &suite_error));
    hf_close(h);
}

static void a_hold_gets_its_first_end_back(void **state)
{
    (void)state;
    hf *h = suite_open();
    hf_lock *lock;
    OK(hf_acquire(h, suite_key("back"), NULL, &lock, &suite_error));
    int64_t before = hf_left_ms(lock);
    assert_true(before > 20000);
    OK(hf_renew(lock, 15000, &suite_error));
    assert_true(hf_left_ms(lock) <= 15000);
    OK(hf_renew(lock, 0, &suite_error));
    assert_true(hf_left_ms(lock) > 15000);
    OK(hf_release(lock, &suite_error));
    hf_close(h);
}

static void texts_that_are_not_utf8(void **state)
{
    (void)state;
    hf *h = suite_open(), *x;
    hf_open_options odd = HF_OPEN_OPTIONS_INIT;
    hf_options o = trying();
    hf_once once;
    const char *key = suite_key("texts");
    odd.owner = o.owner = "a\xff";
    IS(HF_INVALID, hf_open(suite_url, &odd, &x, &suite_error));
    IS(HF_INVALID, hf_once_begin(h, key, 60000, &o, &once, &suite_error));
    o.owner = NULL;
    OK(hf_once_begin(h, key, 60000, &o, &once, &suite_error));
    OK(hf_once_finish(once.lock, "b\xfe\xc3\xa4", 60000, &suite_error));
    OK(hf_once_begin(h, key, 60000, &o, &once, &suite_error));
    assert_null(once.lock);
    assert_string_equal(once.result, "b?\xc3\xa4");
    hf_close(h);
}

/* A caller that doesn't look whether the event is to run passes NULL. */
static void what_is_done_is_not_finished_again(void **state)
{
    (void)state;
    hf *h = suite_open();
    hf_once once;
    const char *key = suite_key("done");
    OK(hf_once_begin(h, key, 60000, NULL, &once, &suite_error));
    OK(hf_once_finish(once.lock, "first", 60000, &suite_error));
    OK(hf_once_begin(h, key, 60000, NULL, &once, &suite_error));
    IS(HF_INVALID, hf_once_finish(once.lock, "second", 60000, &suite_error));
    OK(hf_once_begin(h, key, 60000, NULL, &once, &suite_error));
    assert_string_equal(once.result, "first");
    hf_wait_cancel(NULL);
    hf_close(h);
}

static void *ask_for_both(void *arg)
{
    struct asker *a = arg;
    const char *keys[] = {strchr(a->key, 0) + 1, a->key};
    hf_lock *got[2];
    a->code = hf_acquire_all(a->h, keys, 2, &a->options, got, NULL);
    for (int i = 0; !a->code && i < 2; i++) hf_release(got[i], NULL);
    return NULL;
}

/* A request that named them in another order waits for the first by name, holding no other. */
static void several_keys_are_taken_in_one_order(void **state)
{
    (void)state;
    hf *h = suite_open(), *other = suite_open();
    char keys[200] = ""; /* the two keys: the first one, and the other one behind its NUL */
    const char *name = suite_key("order");
    int n = snprintf(keys, sizeof keys, "%s/a", name);
    snprintf(keys + n + 1, sizeof keys - (size_t)n - 1, "%s/b", name);
    struct asker w = {.h = other, .key = keys, .options = HF_OPTIONS_INIT};
    hf_options try = trying();
    hf_lock *first, *last;
    OK(hf_acquire(h, keys, NULL, &first, &suite_error));
    pthread_create(&w.thread, NULL, ask_for_both, &w);
    suite_await_waiters(h, keys, 1);
    OK(hf_acquire(h, keys + n + 1, &try, &last, &suite_error));
    OK(hf_release(last, &suite_error));
    OK(hf_release(first, &suite_error));
    pthread_join(w.thread, NULL);
    IS(HF_OK, w.code);
    hf_close(h);
    hf_close(other);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kept_for_a_while_then_served),
        cmocka_unit_test(a_later_lease_runs_out),
        cmocka_unit_test(a_hold_shortened_by_renewal),
        cmocka_unit_test(a_detached_waiter_is_woken),
        cmocka_unit_test(busy_locks_are_renewed),
        cmocka_unit_test(release_waits_for_the_callback),
        cmocka_unit_test(close_and_a_callback_that_releases),
        cmocka_unit_test(an_error_does_not_keep_the_key),
        cmocka_unit_test(an_old_marker_is_no_proof),
        cmocka_unit_test(nothing_done_nothing_kept),
        cmocka_unit_test(what_is_kept_is_nobodys),
        cmocka_unit_test(who_was_in_the_way_is_forgotten),
        cmocka_unit_test(a_try_behind_a_wait_is_busy),
        cmocka_unit_test(one_request_two_askers),
        cmocka_unit_test(a_request_asked_again_is_one_grant),
        cmocka_unit_test(a_hold_gets_its_first_end_back),
        cmocka_unit_test(texts_that_are_not_utf8),
        cmocka_unit_test(what_is_done_is_not_finished_again),
        cmocka_unit_test(several_keys_are_taken_in_one_order),
    };
    return suite_main(argc, argv, tests, sizeof tests / sizeof *tests, "lock_corner");
}
