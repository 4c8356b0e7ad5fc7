/*
 * lock_adopted.c - the lock suite: what an adopted hold knows of the one that was acquired, and
 * what it does not know, as holdfast.h says.
 */
#include "lock_suite.h"

#include "holdfast.h"

#include <poll.h>

enum { LEASE_MS = 600000, LESS_MS = 300000 };

static hf *a, *b; /* a acquires, b adopts */
static const char *key;
static hf_lock *held, *same;

static void begin(const hf_options *o)
{
    a = suite_open();
    b = suite_open();
    key = suite_key("adopted");
    OK(hf_acquire(a, key, o, &held, &suite_error));
    OK(hf_adopt(b, key, hf_token(held), &same, &suite_error));
}

static void end(void)
{
    hf_close(b);
    hf_close(a);
}

static void what_the_row_says_is_known(void **state)
{
    hf_options o = HF_OPTIONS_INIT;
    (void)state;
    o.lease_ms = LEASE_MS;
    o.owner = "somebody";
    begin(&o);
    assert_true(hf_token(same) == hf_token(held));
    assert_string_equal(hf_key(same), key);
    assert_string_equal(hf_owner(same), "somebody");
    assert_true(hf_left_ms(same) > 0 && hf_left_ms(same) <= LEASE_MS);
    /* The lease to which it is renewed if no other time is given. */
    OK(hf_renew(same, 0, &suite_error));
    assert_true(hf_left_ms(same) > LESS_MS);
    OK(hf_release(same, &suite_error));
    IS(HF_LOST, hf_release(held, &suite_error));
    end();
}

static void what_was_asked_for_beside_that_isnt(void **state)
{
    hf_options o = HF_OPTIONS_INIT, try = HF_OPTIONS_INIT;
    hf_lock *next;
    (void)state;
    try.wait_ms = 0;
    o.lease_ms = LEASE_MS;
    o.at_least_ms = LESS_MS;
    o.max_hold_ms = LESS_MS;
    begin(&o);
    assert_true(hf_left_ms(held) <= LESS_MS);
    assert_true(hf_left_ms(same) > LESS_MS);
    /* Nor does it know which thread has it. */
    IS(HF_BUSY, hf_acquire(a, key, &try, &next, &suite_error));
    IS(HF_BUSY, hf_acquire(b, key, &try, &next, &suite_error));
    OK(hf_release(same, &suite_error));
    OK(hf_acquire(b, key, &try, &next, &suite_error));
    OK(hf_release(next, &suite_error));
    IS(HF_LOST, hf_release(held, &suite_error));
    end();
}

static void renewals_by_others_arent(void **state)
{
    hf_options o = HF_OPTIONS_INIT;
    (void)state;
    o.lease_ms = LESS_MS;
    o.flags = HF_NO_RENEW;
    begin(&o);
    OK(hf_renew(held, LEASE_MS, &suite_error));
    assert_true(hf_left_ms(held) > LESS_MS);
    assert_true(hf_left_ms(same) <= LESS_MS);
    OK(hf_confirm(same, &suite_error));
    OK(hf_release(same, &suite_error));
    IS(HF_LOST, hf_release(held, &suite_error));
    end();
}

/* The holder may believe in the end that it had. */
static void it_is_never_renewed_for_less(void **state)
{
    hf_options o = HF_OPTIONS_INIT;
    (void)state;
    o.lease_ms = LEASE_MS;
    o.flags = HF_NO_RENEW;
    begin(&o);
    OK(hf_renew(same, LESS_MS, &suite_error));
    assert_true(hf_left_ms(same) > LESS_MS);
    OK(hf_release(same, &suite_error));
    IS(HF_LOST, hf_release(held, &suite_error));
    end();
}

/* A hold that lasts as long as its process doesn't get a lease either. */
static void it_lasts_as_long_as_its_process(void **state)
{
    (void)state;
    begin(NULL);
    int for_ever = hf_left_ms(held) == INT64_MAX;
    OK(hf_renew(same, 100, &suite_error));
    if (for_ever) assert_true(hf_left_ms(same) == INT64_MAX);
    OK(hf_confirm(held, &suite_error));
    OK(hf_release(held, &suite_error));
    IS(HF_LOST, hf_release(same, &suite_error));
    end();
}

/* After a release with at_least_ms the key stays taken for a while, without a holder. */
static void what_was_released_is_over(void **state)
{
    hf_options o = HF_OPTIONS_INIT, try = HF_OPTIONS_INIT;
    hf_lock *next, *watched;
    (void)state;
    try.wait_ms = 0;
    o.lease_ms = LEASE_MS;
    o.at_least_ms = LESS_MS;
    begin(&o);
    uint64_t token = hf_token(held);
    OK(hf_confirm(same, &suite_error));
    /* An adopted lock that asks the store now and then, and one that asks only when it is called.
     */
    OK(hf_adopt(b, key, token, &watched, &suite_error));
    int fd = suite_has_sessions() ? hf_lost_fd(watched) : -1;
    OK(hf_release(held, &suite_error));
    IS(HF_BUSY, hf_acquire(a, key, &try, &next, &suite_error));
    struct pollfd lost = {fd, POLLIN, 0};
    if (fd >= 0) assert_int_equal(poll(&lost, 1, SUITE_PATIENCE_MS), 1);
    IS(HF_LOST, hf_confirm(same, &suite_error));
    assert_int_equal(hf_left_ms(same), 0);
    IS(HF_LOST, hf_release(same, &suite_error));
    IS(HF_LOST, hf_release(watched, &suite_error));
    IS(HF_LOST, hf_adopt(b, key, token, &same, &suite_error));
    OK(hf_break(a, key, token, &suite_error));
    OK(hf_acquire(b, key, &try, &next, &suite_error));
    OK(hf_release(next, &suite_error));
    end();
}

static void closing_leaves_it(void **state)
{
    (void)state;
    begin(NULL);
    hf_close(b);
    OK(hf_confirm(held, &suite_error));
    OK(hf_release(held, &suite_error));
    hf_close(a);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_row_says_is_known),
        cmocka_unit_test(what_was_asked_for_beside_that_isnt),
        cmocka_unit_test(renewals_by_others_arent),
        cmocka_unit_test(it_is_never_renewed_for_less),
        cmocka_unit_test(it_lasts_as_long_as_its_process),
        cmocka_unit_test(what_was_released_is_over),
        cmocka_unit_test(closing_leaves_it),
    };
    return suite_main(argc, argv, tests, sizeof tests / sizeof *tests, "lock_adopted");
}
