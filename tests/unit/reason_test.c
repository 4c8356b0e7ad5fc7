/*
 * reason_test.c - the error of a lock that is lost or may stay held: the first cause, in the
 * store's words, and the state of the key.
 */
#include "holdfast.h"
#include "test.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

/* A store with a plan of wrap_fault.c, NULL: none. It acquires by take, and renews by replace. */
static hf *open_with(const char *plan)
{
    hf *store;
    hf_error err;
    hf_open_options o = HF_OPEN_OPTIONS_INIT;
    o.io_timeout_ms = 200;
    if (plan) setenv("HOLDFAST_FAULT", plan, 1);
    int rc = hf_open("mem:reason", &o, &store, &err);
    unsetenv("HOLDFAST_FAULT");
    if (rc) fail_msg("%s", err.text);
    return store;
}

static hf_lock *acquire(hf *store, const char *key, int64_t lease_ms, unsigned flags)
{
    hf_lock *lock;
    hf_error err;
    hf_options o = HF_OPTIONS_INIT;
    o.lease_ms = lease_ms;
    o.flags = flags;
    if (hf_acquire(store, key, &o, &lock, &err)) fail_msg("%s", err.text);
    return lock;
}

static void says(const hf_error *err, const char *part)
{
    if (!strstr(err->text, part)) fail_msg("no '%s' in: %s", part, err->text);
}

static void says_not(const hf_error *err, const char *part)
{
    if (strstr(err->text, part)) fail_msg("'%s' in: %s", part, err->text);
}

static void await_loss(hf_lock *lock)
{
    struct pollfd fd = {hf_lost_fd(lock), POLLIN, 0};
    assert_int_equal(poll(&fd, 1, 600000), 1);
}

static void a_lost_lock_names_the_first_renewal_that_failed(void **state)
{
    (void)state;
    hf *store = open_with("replace:1:full,replace:*:unavailable");
    hf_error err;
    hf_lock *lock = acquire(store, "k", 600, 0);
    assert_int_equal(hf_lost_reason(lock, &err), 0);
    await_loss(lock);
    assert_int_equal(hf_lost_reason(lock, &err), HF_LOST);
    assert_int_equal(err.code, HF_LOST);
    says(&err, "hold 'k': the grant ");
    says(&err, "its lease (0.6 s) ran out");
    says(&err, hf_code_text(HF_FULL));
    says_not(&err, hf_code_text(HF_UNAVAILABLE));
    assert_int_equal(hf_renew(lock, 0, &err), HF_LOST);
    says(&err, hf_code_text(HF_FULL));
    assert_int_equal(hf_confirm(lock, &err), HF_LOST);
    says(&err, hf_code_text(HF_FULL));
    assert_int_equal(hf_release(lock, &err), HF_LOST);
    says(&err, "release 'k'");
    says(&err, hf_code_text(HF_FULL));
    hf_close(store);
}

static void a_failure_that_was_made_good_is_no_cause(void **state)
{
    (void)state;
    hf *store = open_with("replace:1:denied");
    hf_error err;
    hf_lock *lock = acquire(store, "k", 60000, HF_NO_RENEW);
    assert_int_equal(hf_renew(lock, 0, &err), HF_DENIED);
    assert_int_equal(hf_renew(lock, 300, &err), 0);
    await_loss(lock);
    assert_int_equal(hf_lost_reason(lock, &err), HF_LOST);
    says(&err, "its lease (");
    says_not(&err, hf_code_text(HF_DENIED));
    hf_release(lock, NULL);
    hf_close(store);
}

static void a_broken_lock_is_not_said_to_have_run_out(void **state)
{
    (void)state;
    hf *store = open_with(NULL);
    hf_error err;
    hf_lock *lock = acquire(store, "k", 0, 0);
    assert_int_equal(hf_break(store, "k", hf_token(lock), NULL), 0);
    await_loss(lock);
    assert_int_equal(hf_lost_reason(lock, &err), HF_LOST);
    says(&err, "released or broken");
    hf_release(lock, NULL);
    hf_close(store);
}

static void max_hold_is_told_from_a_loss(void **state)
{
    (void)state;
    hf *store = open_with(NULL);
    hf_lock *lock;
    hf_error err;
    hf_options o = HF_OPTIONS_INIT;
    o.max_hold_ms = 50;
    assert_int_equal(hf_acquire(store, "k", &o, &lock, NULL), 0);
    await_loss(lock);
    assert_int_equal(hf_lost_reason(lock, &err), HF_LOST);
    assert_int_equal(err.sys, ETIME);
    hf_release(lock, NULL);
    hf_close(store);
}

static void damage_is_told_from_a_loss(void **state)
{
    (void)state;
    hf *store = open_with("replace:*:corrupt");
    hf_error err;
    hf_lock *lock = acquire(store, "k", 300, 0);
    await_loss(lock);
    assert_int_equal(hf_lost_reason(lock, &err), HF_CORRUPT);
    assert_int_equal(err.code, HF_CORRUPT);
    hf_release(lock, NULL);
    hf_close(store);
}

static void a_failed_release_says_until_when_the_lock_may_stay_held(void **state)
{
    (void)state;
    hf *store = open_with("replace:*:full");
    hf_error err;
    hf_lock *lock = acquire(store, "leased", 60000, HF_NO_RENEW);
    assert_int_equal(hf_release(lock, &err), HF_FULL);
    says(&err, "release 'leased': ");
    says(&err, hf_code_text(HF_FULL));
    says(&err, "; the lock may stay held until its lease ends (60 s)");
    lock = acquire(store, "bound", 0, 0);
    assert_int_equal(hf_release(lock, &err), HF_FULL);
    says(&err, "; the lock may stay held until this process ends");
    hf_close(store);
}

/* A cause of any length leaves room for the state. */
static void the_state_is_not_cut_off(void **state)
{
    (void)state;
    char key[HF_KEY_CAP];
    memset(key, 'k', sizeof key);
    key[300] = 0;
    hf *store = open_with("replace:*:full");
    hf_error err;
    hf_lock *lock = acquire(store, key, 60000, HF_NO_RENEW);
    assert_int_equal(hf_release(lock, &err), HF_FULL);
    says(&err, "until its lease ends (60 s)");
    hf_close(store);
}

/* A wait that ended because the store didn't answer doesn't wait for it once more. */
static void what_ran_out_unanswered_is_given_back_without_asking(void **state)
{
    (void)state;
    hf *store = open_with("replace:*:unavailable");
    hf_stats before, after;
    before.size = after.size = sizeof before;
    hf_lock *lock = acquire(store, "k", 400, HF_NO_RENEW);
    assert_int_equal(hf_renew(lock, 0, NULL), HF_UNAVAILABLE);
    await_loss(lock);
    assert_int_equal(hf_get_stats(store, &before), 0);
    assert_int_equal(hf_release(lock, NULL), HF_LOST);
    assert_int_equal(hf_get_stats(store, &after), 0);
    assert_int_equal(after.store_ops, before.store_ops);
    hf_close(store);
}

static void a_renewal_that_hangs_is_the_cause(void **state)
{
    (void)state;
    hf *store = open_with("replace:*:delay=1500");
    hf_error err;
    hf_lock *lock = acquire(store, "k", 300, 0);
    await_loss(lock);
    assert_int_equal(hf_lost_reason(lock, &err), HF_LOST);
    says(&err, "the store didn't answer");
    hf_release(lock, NULL);
    hf_close(store);
}

static void an_event_that_is_not_marked_is_said_so(void **state)
{
    (void)state;
    hf *store = open_with("replace:1+:full,acquire:*:unsupported");
    hf *plain = open_with(NULL), *stores[] = {plain, store};
    hf_once once;
    hf_error err;
    hf_options o = HF_OPTIONS_INIT;
    o.flags = HF_DETACHED;
    o.lease_ms = 60000;
    assert_int_equal(hf_once_begin(plain, "event", 60000, &o, &once, NULL), 0);
    hf_lock *lock;
    assert_int_equal(hf_adopt(store, "event", hf_token(once.lock), &lock, &err), 0);
    assert_int_equal(hf_once_finish(lock, "done", 60000, &err), HF_FULL);
    says(&err, hf_code_text(HF_FULL));
    says(&err, "; the event isn't marked as done, and may run again");
    hf_release(once.lock, NULL);
    assert_int_equal(hf_once_begin(plain, "broken", 60000, NULL, &once, NULL), 0);
    assert_int_equal(hf_break(plain, "broken", hf_token(once.lock), NULL), 0);
    assert_int_equal(hf_once_finish(once.lock, "done", 60000, &err), HF_LOST);
    assert_true(!strncmp(err.text, "once 'broken': the grant ", 25));
    says(&err, "; this run hasn't marked the event as done; it may run again");
    for (size_t i = 0; i < 2; i++) hf_close(stores[i]);
}

static void a_wait_that_ends_while_the_store_refuses_says_so(void **state)
{
    (void)state;
    hf *store = open_with("acquire:1:unavailable,acquire:*:unavailable,replace:*:unavailable");
    hf_lock *lock;
    hf_error err;
    hf_options o = HF_OPTIONS_INIT;
    o.wait_ms = 300;
    assert_int_equal(hf_acquire(store, "refused", &o, &lock, &err), HF_UNAVAILABLE);
    says(&err, hf_code_text(HF_TIMEOUT));
    says(&err, hf_code_text(HF_UNAVAILABLE));
    hf_close(store);
    /* The text of a wait that was answered in the meantime doesn't say so. */
    hf *other = open_with(NULL);
    store = open_with("acquire:1:unavailable");
    lock = acquire(other, "held", 0, 0);
    hf_lock *none;
    o.wait_ms = 900;
    assert_int_equal(hf_acquire(store, "held", &o, &none, &err), HF_TIMEOUT);
    says_not(&err, hf_code_text(HF_UNAVAILABLE));
    hf_release(lock, NULL);
    hf_close(store);
    hf_close(other);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lost_lock_names_the_first_renewal_that_failed),
        cmocka_unit_test(a_failure_that_was_made_good_is_no_cause),
        cmocka_unit_test(a_broken_lock_is_not_said_to_have_run_out),
        cmocka_unit_test(max_hold_is_told_from_a_loss),
        cmocka_unit_test(damage_is_told_from_a_loss),
        cmocka_unit_test(a_failed_release_says_until_when_the_lock_may_stay_held),
        cmocka_unit_test(the_state_is_not_cut_off),
        cmocka_unit_test(what_ran_out_unanswered_is_given_back_without_asking),
        cmocka_unit_test(a_renewal_that_hangs_is_the_cause),
        cmocka_unit_test(an_event_that_is_not_marked_is_said_so),
        cmocka_unit_test(a_wait_that_ends_while_the_store_refuses_says_so),
    };
    return TEST_MAIN(tests);
}
