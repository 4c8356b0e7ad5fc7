/*
 * renew_test.c - renewals and other requests that fail, or whose reply is lost: what may be
 * believed.
 */
#include "holdfast.h"
#include "os.h"
#include "test.h"

#include <poll.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* How much later it is for this thread than for the others. */
static __thread int64_t later_ms;

int __real_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    int rc = __real_clock_gettime(clock, ret);
    ret->tv_sec += later_ms / 1000;
    return rc;
}

/* This handle acquires by `acquire`, and renews by `replace`. */
static hf *open_sick(const char *plan)
{
    hf *store;
    hf_error err;
    hf_open_options o = HF_OPEN_OPTIONS_INIT;
    o.io_timeout_ms = 200;
    setenv("HOLDFAST_FAULT", plan, 1);
    int rc = hf_open("mem:renew", &o, &store, &err);
    unsetenv("HOLDFAST_FAULT");
    if (rc) fail_msg("%s", err.text);
    return store;
}

/* Each replace of this handle takes effect, but its reply is lost. */
static hf *open_mute(void) { return open_sick("replace:*:after"); }

static void a_shorter_lease_counts_from_when_it_is_asked_for(void **state)
{
    (void)state;
    hf *mute = open_mute(), *other;
    hf_lock *lock, *next;
    hf_error err;
    hf_options o = HF_OPTIONS_INIT;
    assert_int_equal(hf_open("mem:renew", NULL, &other, NULL), 0);
    o.lease_ms = 60000;
    o.flags = HF_NO_RENEW;
    if (hf_acquire(mute, "k", &o, &lock, &err)) fail_msg("%s", err.text);
    assert_true(hf_left_ms(lock) > 30000);
    int64_t asked = hf__local_us();
    int rc = hf_renew(lock, 1000, &err);
    if (rc != HF_LOST || hf__local_us() - asked < 1000000) assert_int_equal(rc, HF_UNKNOWN);
    /* The lease of one second that was asked for may be in force, and no more. */
    assert_true(hf_left_ms(lock) <= 1000);
    o.wait_ms = 600000;
    if (hf_acquire(other, "k", &o, &next, &err)) fail_msg("%s", err.text);
    assert_true(hf_left_ms(lock) <= 0);
    assert_true(hf_token(next) > hf_token(lock));
    assert_int_equal(hf_release(next, NULL), 0);
    hf_release(lock, NULL);
    hf_close(mute);
    hf_close(other);
}

static void a_lease_instead_of_a_session_counts_too(void **state)
{
    (void)state;
    hf *mute = open_mute();
    hf_lock *lock;
    hf_error err;
    hf_options o = HF_OPTIONS_INIT;
    o.flags = HF_NO_RENEW;
    if (hf_acquire(mute, "session", &o, &lock, &err)) fail_msg("%s", err.text);
    assert_true(hf_left_ms(lock) == INT64_MAX);
    assert_int_equal(hf_renew(lock, 60000, &err), HF_UNKNOWN);
    assert_true(hf_left_ms(lock) <= 60000);
    hf_release(lock, NULL);
    hf_close(mute);
}

static void a_longer_lease_counts_when_it_is_told(void **state)
{
    (void)state;
    hf *mute = open_mute();
    hf_lock *lock;
    hf_error err;
    hf_options o = HF_OPTIONS_INIT;
    o.lease_ms = 50000;
    o.flags = HF_NO_RENEW;
    if (hf_acquire(mute, "longer", &o, &lock, &err)) fail_msg("%s", err.text);
    assert_int_equal(hf_renew(lock, 600000, &err), HF_UNKNOWN);
    assert_true(hf_left_ms(lock) <= 50000);
    hf_release(lock, NULL);
    hf_close(mute);
}

/* For this thread the lease ends earlier than for the library's threads, and before a reply comes
   that would extend it. */
static void what_is_said_to_be_over_stays_over(void **state)
{
    (void)state;
    for (int capped = 0; capped < 2; capped++) {
        hf *store;
        hf_lock *lock;
        hf_error err;
        hf_options o = HF_OPTIONS_INIT;
        assert_int_equal(hf_open("mem:renew", NULL, &store, NULL), 0);
        o.lease_ms = 60000;
        if (capped) o.max_hold_ms = 30000;
        if (hf_acquire(store, "over", &o, &lock, &err)) fail_msg("%s", err.text);
        struct pollfd told = {hf_lost_fd(lock), POLLIN, 0};
        assert_true(hf_left_ms(lock) > 10000);
        later_ms = capped ? 31000 : 61000;
        assert_int_equal(hf_left_ms(lock), 0);
        later_ms = 0;
        assert_int_equal(hf_left_ms(lock), 0);
        assert_int_equal(poll(&told, 1, 0), 1);
        assert_int_equal(hf_renew(lock, 0, &err), HF_LOST);
        assert_int_equal(hf_release(lock, &err), HF_LOST);
        /* hf_release has released the key all the same. */
        o.wait_ms = 0;
        if (hf_acquire(store, "over", &o, &lock, &err)) fail_msg("%s", err.text);
        assert_int_equal(hf_release(lock, &err), 0);
        hf_close(store);
    }
}

static void one_that_fails_is_not_the_last(void **state)
{
    (void)state;
    hf *sick = open_sick("replace:1:unavailable,replace:2:corrupt");
    hf_stats now = {.size = sizeof now};
    hf_lock *lock;
    hf_error err;
    hf_options o = HF_OPTIONS_INIT;
    o.lease_ms = 10000;
    if (hf_acquire(sick, "sick", &o, &lock, &err)) fail_msg("%s", err.text);
    do {
        usleep(10000);
        assert_int_equal(hf_get_stats(sick, &now), 0);
        assert_int_equal(now.lost, 0);
    } while (!now.renewals);
    assert_int_equal(hf_release(lock, &err), 0);
    hf_close(sick);
}

/* Neither "held by another" nor "free" is known. */
static void what_is_not_answered_is_unknown(void **state)
{
    static const char *const plans[] = {"acquire:*:before", "acquire:*:after"};
    (void)state;
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        hf *sick = open_sick(plans[i]);
        hf_lock *lock;
        hf_error err;
        hf_options o = HF_OPTIONS_INIT;
        o.wait_ms = 0;
        assert_int_equal(hf_acquire(sick, "unheard", &o, &lock, &err), HF_UNKNOWN);
        hf_close(sick);
    }
}

/* A reply is lost, and then the store is away: the outcome is unknown, and the error says so,
   too. */
static void an_error_says_what_is_returned(void **state)
{
    (void)state;
    hf *away = open_sick("replace:1:before,replace:2+:unavailable");
    hf_lock *lock;
    hf_error err;
    hf_options o = HF_OPTIONS_INIT;
    o.lease_ms = 50000;
    o.flags = HF_NO_RENEW;
    if (hf_acquire(away, "away", &o, &lock, &err)) fail_msg("%s", err.text);
    int rc = hf_renew(lock, 50000, &err);
    assert_int_equal(rc, HF_UNKNOWN);
    assert_int_equal(err.code, HF_UNKNOWN);
    hf_release(lock, NULL);
    hf_close(away);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shorter_lease_counts_from_when_it_is_asked_for),
        cmocka_unit_test(a_lease_instead_of_a_session_counts_too),
        cmocka_unit_test(a_longer_lease_counts_when_it_is_told),
        cmocka_unit_test(what_is_said_to_be_over_stays_over),
        cmocka_unit_test(an_error_says_what_is_returned),
        cmocka_unit_test(one_that_fails_is_not_the_last),
        cmocka_unit_test(what_is_not_answered_is_unknown),
    };
    return TEST_MAIN(tests);
}
