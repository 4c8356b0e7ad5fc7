/*
 * lock_life.c - the lock suite, second part: how a hold lives and ends.
 */
#include "lock_suite.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static hf_options with_lease(int64_t lease_ms)
{
    hf_options o = HF_OPTIONS_INIT;
    o.lease_ms = lease_ms;
    o.wait_ms = 0;
    return o;
}

static int readable(int fd, int within_ms)
{
    struct pollfd p = {fd, POLLIN, 0};
    return poll(&p, 1, within_ms) == 1;
}

/* Held for some leases; 1: not for all of that. */
static int renewed(int64_t lease_ms)
{
    hf *a = suite_open(), *b = suite_open();
    const char *key = suite_key("renewed");
    hf_lock *lock, *x;
    hf_options o = with_lease(lease_ms), try = with_lease(0);
    OK(hf_acquire(a, key, &o, &lock, &suite_error));
    uint64_t token = hf_token(lock);
    int lost = 0;
    for (int64_t end = suite_ms() + lease_ms * 15 / 4; !lost && suite_ms() < end; usleep(20000)) {
        int rc = hf_acquire(b, key, &try, &x, &suite_error);
        lost = hf_left_ms(lock) <= 0;
        if (!lost) IS(HF_BUSY, rc);
    }
    assert_true(hf_token(lock) == token);
    hf_stats s = {.size = sizeof s};
    OK(hf_get_stats(a, &s));
    if (!lost && s.renewals >= 5) {
        int rc = hf_release(lock, &suite_error);
        lost = rc == HF_LOST;
        if (!lost) OK(rc);
        if (!lost) OK(hf_acquire(b, key, &try, &x, &suite_error));
    }
    hf_close(a);
    hf_close(b);
    return lost || s.renewals < 5;
}

static void leases_are_renewed(void **state)
{
    (void)state;
    /* A server that is away for a moment, on a busy machine, is no reason to lose the lock. */
    suite_longer(renewed, suite_has_sessions() ? 400 : suite_lease(2000));
}

static void count_loss(void *arg, hf_lock *lock)
{
    assert_int_equal(hf_left_ms(lock), 0);
    __atomic_add_fetch((int *)arg, 1, __ATOMIC_SEQ_CST);
}

static void a_lease_that_runs_out_is_lost(void **state)
{
    (void)state;
    hf *a = suite_open(), *b = suite_open();
    const char *key = suite_key("runs-out");
    hf_lock *lock, *next;
    hf_options o = with_lease(suite_lease(300));
    int losses = 0;
    o.flags = HF_NO_RENEW;
    OK(hf_acquire(a, key, &o, &lock, &suite_error));
    int fd = hf_lost_fd(lock);
    assert_true(fd >= 0);
    hf_on_lost(lock, count_loss, &losses);
    int told = readable(fd, 100);
    if (hf_left_ms(lock) > 0) assert_false(told);
    assert_true(readable(fd, SUITE_PATIENCE_MS));
    assert_int_equal(hf_left_ms(lock), 0);
    IS(HF_LOST, hf_confirm(lock, &suite_error));
    IS(HF_LOST, hf_renew(lock, 1000, &suite_error)); /* even if no other client took the key */
    o = with_lease(0);
    o.wait_ms = SUITE_PATIENCE_MS;
    OK(hf_acquire(b, key, &o, &next, &suite_error));
    IS(HF_LOST, hf_release(lock, &suite_error));
    assert_int_equal(losses, 1);
    OK(hf_confirm(next, &suite_error)); /* the late release did nothing to the successor */
    OK(hf_release(next, &suite_error));
    hf_close(a);
    hf_close(b);
}

/* The holder stops believing before another client may have the key: measured over many short
   leases. */
static void belief_ends_first(void **state)
{
    (void)state;
    hf *a = suite_open(), *b = suite_open();
    const char *key = suite_key("belief");
    hf_options o = with_lease(suite_lease(100)), wait = with_lease(0);
    o.wait_ms = wait.wait_ms = SUITE_PATIENCE_MS;
    o.flags = HF_NO_RENEW;
    for (int i = 0; i < (o.lease_ms > 1000 ? 3 : 15); i++) {
        hf_lock *lock, *next;
        OK(hf_acquire(a, key, &o, &lock, &suite_error));
        OK(hf_acquire(b, key, &wait, &next, &suite_error));
        assert_int_equal(hf_left_ms(lock), 0);
        IS(HF_LOST, hf_release(lock, &suite_error));
        OK(hf_release(next, &suite_error));
    }
    hf_close(a);
    hf_close(b);
}

static void renew_by_hand(void **state)
{
    (void)state;
    hf *a = suite_open();
    hf_lock *lock;
    hf_options o = with_lease(30000);
    o.flags = HF_NO_RENEW;
    OK(hf_acquire(a, suite_key("by-hand"), &o, &lock, &suite_error));
    OK(hf_renew(lock, 90000, &suite_error));
    assert_in_range(hf_left_ms(lock), 30001, 90000);
    IS(HF_INVALID, hf_renew(lock, 5, &suite_error));
    OK(hf_renew(lock, 0, &suite_error)); /* as asked at first */
    assert_in_range(hf_left_ms(lock), 1, 30000);
    OK(hf_release(lock, &suite_error));
    hf_close(a);
}

static void max_hold_ends_it(void **state)
{
    (void)state;
    hf *a = suite_open(), *b = suite_open();
    const char *key = suite_key("max-hold");
    hf_lock *lock, *x;
    hf_options o = HF_OPTIONS_INIT, try = with_lease(0);
    o.max_hold_ms = 200;
    int64_t start = suite_ms();
    OK(hf_acquire(a, key, &o, &lock, &suite_error));
    assert_in_range(hf_left_ms(lock), 0, 200);
    assert_true(readable(hf_lost_fd(lock), SUITE_PATIENCE_MS));
    assert_true(suite_ms() - start >= 150);
    IS(HF_LOST, hf_confirm(lock, &suite_error));
    assert_true(suite_error.sys == ETIME && strstr(suite_error.text, "max_hold_ms"));
    IS(HF_LOST, hf_release(lock, &suite_error));
    OK(hf_acquire(b, key, &try, &x, &suite_error));
    hf_close(a);
    hf_close(b);
}

/* Returns 1 if the machine was too slow to tell. */
static int kept(int64_t ms)
{
    hf *a = suite_open(), *b = suite_open();
    const char *key = suite_key("at-least");
    hf_lock *lock, *x;
    hf_options o = HF_OPTIONS_INIT, try = with_lease(0);
    o.at_least_ms = ms;
    int64_t start = suite_ms();
    OK(hf_acquire(a, key, &o, &lock, &suite_error));
    OK(hf_release(lock, &suite_error));
    int first = hf_acquire(b, key, &try, &x, &suite_error);
    hf_close(a); /* closing the handle doesn't end it either */
    int second = first ? hf_acquire(b, key, &try, &x, &suite_error) : HF_BUSY;
    int late = suite_ms() - start >= ms;
    if (!late) IS(HF_BUSY, first);
    if (!late) IS(HF_BUSY, second);
    if (!late) {
        try.wait_ms = SUITE_PATIENCE_MS;
        OK(hf_acquire(b, key, &try, &x, &suite_error));
        assert_true(suite_ms() - start >= ms - 1);
    }
    hf_close(b);
    return late;
}

SUITE_LONGER(at_least_keeps_it, kept, 400)

static void breaking_names_the_grant(void **state)
{
    (void)state;
    hf *a = suite_open(), *b = suite_open();
    const char *key = suite_key("break");
    hf_lock *lock, *next;
    /* Only a renewal notices it, because the holder listens for nothing. */
    hf_options o = with_lease(suite_has_sessions() ? 0 : suite_lease(5000));
    OK(hf_acquire(a, key, &o, &lock, &suite_error));
    int fd = hf_lost_fd(lock);
    IS(HF_LOST, hf_break(b, key, hf_token(lock) + 1, &suite_error));
    IS(HF_LOST, hf_break(b, key, 0, &suite_error));
    assert_false(readable(fd, 0));
    OK(hf_break(b, key, hf_token(lock), &suite_error));
    assert_true(readable(fd, SUITE_PATIENCE_MS));
    OK(hf_acquire(b, key, NULL, &next, &suite_error));
    IS(HF_LOST, hf_release(lock, &suite_error));
    OK(hf_release(next, &suite_error));
    hf_close(a);
    hf_close(b);
}

static void detached_grants_change_hands(void **state)
{
    (void)state;
    hf *keeper = suite_open(), *a = suite_open();
    const char *key = suite_key("detached");
    hf_lock *lock, *x;
    hf_options o = with_lease(60000), try = with_lease(0);
    o.flags = HF_DETACHED;
    OK(hf_acquire(a, key, &o, &lock, &suite_error));
    uint64_t token = hf_token(lock);
    OK(hf_release(lock, &suite_error));
    OK(hf_acquire(keeper, key, &o, &lock, &suite_error));
    assert_true(hf_token(lock) > token);
    token = hf_token(lock);
    IS(HF_BUSY, hf_acquire(a, key, &try, &x, &suite_error));
    IS(HF_LOST, hf_adopt(a, key, token + 1, &x, &suite_error));
    OK(hf_adopt(a, key, token, &x, &suite_error));
    assert_true(hf_token(x) == token);
    OK(hf_renew(x, 30000, &suite_error));
    OK(hf_release(x, &suite_error));
    IS(HF_LOST, hf_adopt(a, key, token, &x, &suite_error));
    OK(hf_acquire(a, key, &try, &x, &suite_error));
    hf_close(a);
    hf_close(keeper);
}

static void up_to_a_limit(void **state)
{
    (void)state;
    hf *h = suite_open();
    const char *key = suite_key("limit");
    hf_lock *l[3], *x;
    hf_options o = HF_OPTIONS_INIT;
    o.mode = HF_LIMITED;
    o.limit = 3;
    o.wait_ms = 0;
    for (int i = 0; i < 3; i++) OK(hf_acquire(h, key, &o, &l[i], &suite_error));
    IS(HF_BUSY, hf_acquire(h, key, &o, &x, &suite_error));
    OK(hf_release(l[1], &suite_error));
    o.limit = 2; /* a request of a smaller limit waits */
    IS(HF_BUSY, hf_acquire(h, key, &o, &x, &suite_error));
    o.limit = 3;
    OK(hf_acquire(h, key, &o, &l[1], &suite_error));
    for (int i = 0; i < 3; i++) OK(hf_release(l[i], &suite_error));
    hf_close(h);
}

/* ---- once ---- */

static void an_event_runs_once(void **state)
{
    (void)state;
    hf *a = suite_open(), *b = suite_open();
    const char *key = suite_key("once");
    hf_once x = {0}, y = {0};
    hf_options try = with_lease(0);
    OK(hf_once_begin(a, key, 60000, NULL, &x, &suite_error));
    assert_non_null(x.lock);
    IS(HF_BUSY, hf_once_begin(b, key, 60000, &try, &y, &suite_error));
    OK(hf_release(x.lock, &suite_error)); /* failed: undone */
    OK(hf_once_begin(b, key, 60000, &try, &y, &suite_error));
    assert_non_null(y.lock);
    OK(hf_once_finish(y.lock, "sent 3 mails", 60000, &suite_error));
    for (int i = 0; i < 2; i++) {
        OK(hf_once_begin(i ? a : b, key, 60000, &try, &x, &suite_error));
        assert_null(x.lock);
        assert_string_equal(x.result, "sent 3 mails");
        assert_true(x.done_us > 0);
        assert_int_equal(strlen(x.owner), 32);
    }
    /* An ordinary lock on that key is another matter. */
    hf_lock *lock;
    OK(hf_acquire(a, key, &try, &lock, &suite_error));
    OK(hf_release(lock, &suite_error));
    OK(hf_once_begin(a, key, 60000, &try, &x, &suite_error));
    assert_null(x.lock);
    hf_close(a);
    hf_close(b);
}

static void waiting_runners_hear_that_it_is_done(void **state)
{
    (void)state;
    hf *a = suite_open();
    const char *key = suite_key("once-wait");
    static hf_once first;
    OK(hf_once_begin(a, key, 60000, NULL, &first, &suite_error));
    pid_t child = suite_is_private() ? 0 : suite_fork();
    if (!child && !suite_is_private()) {
        hf *h;
        hf_once o;
        hf_options wait = HF_OPTIONS_INIT;
        wait.wait_ms = SUITE_PATIENCE_MS;
        if (hf_open(suite_url, NULL, &h, NULL)) _exit(1);
        if (hf_once_begin(h, key, 60000, &wait, &o, NULL)) _exit(2);
        _exit(o.lock || strcmp(o.result, "ok") ? 3 : 0);
    }
    if (child) suite_await_waiters(a, key, 1);
    OK(hf_once_finish(first.lock, "ok", 60000, &suite_error));
    int status = 0;
    if (child) assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(suite_holders(a, key) + suite_waiters(a, key), 0);
    hf_close(a);
}

static struct {
    pthread_mutex_t mu;
    pthread_cond_t changed;
    int told, code;
    hf_lock *lock;
} started = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, NULL};

static void note_started(void *arg, int code, hf_lock *lock, const hf_error *err)
{
    (void)arg;
    (void)err;
    pthread_mutex_lock(&started.mu);
    started.told++;
    started.code = code;
    started.lock = lock;
    pthread_cond_signal(&started.changed);
    pthread_mutex_unlock(&started.mu);
}

static void await_started(int n)
{
    pthread_mutex_lock(&started.mu);
    while (started.told < n) pthread_cond_wait(&started.changed, &started.mu);
    pthread_mutex_unlock(&started.mu);
}

static void an_event_begins_without_a_thread(void **state)
{
    (void)state;
    hf *a = suite_open(), *b = suite_open();
    const char *key = suite_key("once-start");
    hf_options o = HF_OPTIONS_INIT;
    hf_once x = {0}, y = {0}, z = {0};
    hf_wait *w[3];
    o.flags = HF_AT_MOST_ONCE;
    started.told = 0;
    OK(hf_once_start(a, key, 60000, NULL, &x, note_started, NULL, &w[0], &suite_error));
    await_started(1);
    assert_int_equal(started.code, HF_OK);
    assert_non_null(x.lock);
    assert_ptr_equal(x.lock, started.lock);
    /* The event's wait is queued, and begins when the first runner gives up. */
    OK(hf_once_start(b, key, 60000, &o, &y, note_started, NULL, &w[1], &suite_error));
    suite_await_waiters(a, key, 1);
    assert_int_equal(started.told, 1);
    OK(hf_release(x.lock, &suite_error));
    await_started(2);
    assert_int_equal(started.code, HF_OK);
    assert_non_null(y.lock);
    /* Marked as soon as it began: no other client runs it. */
    OK(hf_once_start(a, key, 60000, NULL, &z, note_started, NULL, &w[2], &suite_error));
    await_started(3);
    assert_int_equal(started.code, HF_OK);
    assert_null(started.lock);
    assert_null(z.lock);
    assert_true(z.done_us > 0);
    assert_string_equal(z.owner, hf_owner(y.lock));
    OK(hf_release(y.lock, &suite_error));
    IS(HF_INVALID, hf_once_start(a, key, 0, NULL, &z, note_started, NULL, &w[2], &suite_error));
    for (int i = 0; i < 3; i++) hf_wait_free(w[i]);
    hf_close(a);
    hf_close(b);
}

static void at_most_once(void **state)
{
    (void)state;
    hf *a = suite_open(), *b = suite_open();
    const char *key = suite_key("at-most");
    hf_once x = {0}, y = {0};
    hf_options o = with_lease(0);
    o.flags = HF_AT_MOST_ONCE;
    OK(hf_once_begin(a, key, 60000, &o, &x, &suite_error));
    assert_non_null(x.lock);
    OK(hf_once_begin(b, key, 60000, &o, &y, &suite_error));
    assert_null(y.lock);                  /* marked although it hasn't finished */
    OK(hf_release(x.lock, &suite_error)); /* nor will it */
    OK(hf_once_begin(b, key, 60000, &o, &y, &suite_error));
    assert_null(y.lock);
    hf_close(a);
    hf_close(b);
}

static int kept_marker(int64_t ms)
{
    hf *a = suite_open();
    const char *key = suite_key("keep");
    hf_once x = {0};
    OK(hf_once_begin(a, key, ms, NULL, &x, &suite_error));
    int64_t start = suite_ms();
    OK(hf_once_finish(x.lock, NULL, ms, &suite_error));
    OK(hf_once_begin(a, key, ms, NULL, &x, &suite_error));
    int late = suite_ms() - start >= ms;
    if (!late) assert_null(x.lock);
    for (int64_t end = start + ms + SUITE_PATIENCE_MS; !x.lock; usleep(20000)) {
        assert_true(suite_ms() < end);
        OK(hf_once_begin(a, key, ms, NULL, &x, &suite_error));
    }
    OK(hf_release(x.lock, &suite_error));
    hf_close(a);
    return late;
}

SUITE_LONGER(markers_are_kept_as_long_as_asked, kept_marker, 300)

/* ---- looking ---- */

static int see_held(void *arg, const hf_info *info)
{
    if (!info) return 0;
    if (info->n_holders) ++*(int *)arg;
    return 0;
}

static int events_seen;

static int stop_at_second(void *arg, const hf_info *info)
{
    (void)arg;
    return info ? __atomic_add_fetch(&events_seen, 1, __ATOMIC_SEQ_CST) >= 2 : 0;
}

static void *free_when_seen(void *arg)
{
    while (!__atomic_load_n(&events_seen, __ATOMIC_SEQ_CST)) usleep(1000);
    hf_release(arg, NULL);
    return NULL;
}

static void lists_and_watches(void **state)
{
    (void)state;
    hf *h = suite_open();
    char prefix[64], key[96];
    hf_lock *l[3];
    int held = 0;
    pthread_t t;
    events_seen = 0;
    snprintf(prefix, sizeof prefix, "list_%d%%/", (int)getpid());
    for (int i = 0; i < 3; i++) {
        snprintf(key, sizeof key, "%s%d", prefix, i);
        OK(hf_acquire(h, key, NULL, &l[i], &suite_error));
    }
    OK(hf_list(h, prefix, see_held, &held, &suite_error));
    assert_int_equal(held, 3);
    OK(hf_release(l[1], &suite_error));
    OK(hf_release(l[2], &suite_error));
    held = 0;
    OK(hf_list(h, prefix, see_held, &held, &suite_error));
    assert_int_equal(held, 1);
    pthread_create(&t, NULL, free_when_seen, l[0]);
    OK(hf_watch(h, prefix, stop_at_second, NULL, &suite_error));
    assert_int_equal(events_seen, 2); /* held, then free */
    pthread_join(t, NULL);
    uint64_t n = 0;
    IS(HF_INVALID, hf_prune(h, 1000, &n, &suite_error));
    OK(hf_prune(h, 86400000, &n, &suite_error));
    assert_int_equal(n, 0); /* nothing of this test is that old */
    hf_close(h);
}

static int keep_looking(void *arg, const hf_info *info)
{
    (void)info;
    __atomic_store_n((int *)arg, 1, __ATOMIC_SEQ_CST);
    return 0;
}

struct looker {
    hf *h;
    int looking, code;
};

static void *look(void *arg)
{
    struct looker *l = arg;
    l->code = hf_watch(l->h, "", keep_looking, &l->looking, NULL);
    return NULL;
}

static void close_ends_a_watch(void **state)
{
    (void)state;
    struct looker l = {suite_open(), 0, 0};
    pthread_t thread;
    pthread_create(&thread, NULL, look, &l);
    while (!__atomic_load_n(&l.looking, __ATOMIC_SEQ_CST)) usleep(1000);
    hf_close(l.h);
    pthread_join(thread, NULL);
    IS(HF_CANCELED, l.code);
}

static void an_event_is_one_runners(void **state)
{
    (void)state;
    hf *h = suite_open();
    hf_options o = with_lease(0);
    hf_once once;
    o.mode = HF_SHARED;
    IS(HF_INVALID, hf_once_begin(h, suite_key("event"), 60000, &o, &once, &suite_error));
    o.mode = HF_LIMITED;
    o.limit = 2;
    IS(HF_INVALID, hf_once_begin(h, suite_key("event"), 60000, &o, &once, &suite_error));
    hf_close(h);
}

/* Where the guard needs nothing but the store; guards in SQL are tried by guard_*.bats. */
static void who_enters_shuts_out(void **state)
{
    (void)state;
    hf *a = suite_open(), *b = suite_open();
    char document[300];
    const char *key = suite_key("enters"), *where = NULL;
    hf_lock *first, *second;
    hf_options o = with_lease(0);
    OK(hf_acquire(a, key, &o, &first, &suite_error));
    int rc = hf_enter(first, "", &suite_error);
    assert_true(rc == HF_INVALID || rc == HF_UNSUPPORTED);
    rc = hf_enter(first, NULL, &suite_error);
    if (rc == HF_INVALID) { /* the fence is in the data */
        snprintf(document, sizeof document, "suite_data/{\"a \\\"$gt\": \"%s\"}", key);
        rc = hf_enter(first, where = document, &suite_error);
    }
    assert_true(hf_left_ms(first) > 0);
    if (rc != HF_UNSUPPORTED) {
        IS(HF_OK, rc);
        OK(hf_enter(first, where, &suite_error)); /* it may enter any number of times */
        OK(hf_break(b, key, hf_token(first), &suite_error));
        OK(hf_acquire(b, key, &o, &second, &suite_error));
        OK(hf_enter(second, where, &suite_error));
        IS(HF_LOST, hf_enter(first, where, &suite_error));
        assert_int_equal(hf_left_ms(first), 0);
        IS(HF_LOST, hf_enter(first, where, &suite_error)); /* now it needn't ask */
        OK(hf_enter(second, where, &suite_error));
        OK(hf_release(second, &suite_error));
        IS(HF_LOST, hf_release(first, &suite_error));
    } else {
        assert_non_null(strstr(suite_error.text, key));
        OK(hf_release(first, &suite_error));
    }
    hf_close(a);
    hf_close(b);
}

static void names_and_numbers(void **state)
{
    (void)state;
    assert_string_equal(hf_version(), HF_VERSION);
    assert_string_equal(hf_code_name(HF_BUSY), "BUSY");
    assert_int_equal(hf_code_exit_status(HF_LOST), 76);
    hf *h = suite_open();
    assert_non_null(hf_store_url(h));
    hf_stats s = {.size = 1};
    IS(HF_INVALID, hf_get_stats(h, &s));
    hf_close(h);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leases_are_renewed),
        cmocka_unit_test(a_lease_that_runs_out_is_lost),
        cmocka_unit_test(belief_ends_first),
        cmocka_unit_test(renew_by_hand),
        cmocka_unit_test(max_hold_ends_it),
        cmocka_unit_test(at_least_keeps_it),
        cmocka_unit_test(breaking_names_the_grant),
        cmocka_unit_test(detached_grants_change_hands),
        cmocka_unit_test(up_to_a_limit),
        cmocka_unit_test(an_event_runs_once),
        cmocka_unit_test(an_event_begins_without_a_thread),
        cmocka_unit_test(waiting_runners_hear_that_it_is_done),
        cmocka_unit_test(at_most_once),
        cmocka_unit_test(markers_are_kept_as_long_as_asked),
        cmocka_unit_test(lists_and_watches),
        cmocka_unit_test(close_ends_a_watch),
        cmocka_unit_test(an_event_is_one_runners),
        cmocka_unit_test(who_enters_shuts_out),
        cmocka_unit_test(names_and_numbers),
    };
    return suite_main(argc, argv, tests, sizeof tests / sizeof *tests, "lock_life");
}
