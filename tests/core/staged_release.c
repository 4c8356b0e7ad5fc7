/*
 * staged_release.c - a release that takes longer than its grant lasts: its holder worked in time,
 * and gets LOST only if the grant was over before, or was broken.
 */
#include "staged_waiter.h"

#include <string.h>

enum { LEASE_MS = 60000, LONGER_US = 70000000, HOUR_MS = 3600000 };

static void time_passes(void) { stage_suspend(LONGER_US); }

static void rival_takes_it(void) { OK(stage_acquire(rival, "k", 0, HOUR_MS, 0, &other)); }

static void it_ends_and_rival_takes_it(void)
{
    time_passes();
    rival_takes_it();
}

static void rival_breaks_it(void)
{
    break_it();
    rival_takes_it();
}

static void rival_breaks_it_and_it_ends(void)
{
    rival_breaks_it();
    time_passes();
}

static void hold(unsigned can)
{
    begin(can);
    OK(stage_acquire(h, "k", 0, LEASE_MS, 0, &lock));
}

static int is_text(const char *part) { return strstr(stage_error.text, part) != NULL; }

/* ---- over meanwhile ---- */

static void one_that_ends_meanwhile_is_released(void **state)
{
    (void)state;
    hold(SERVER);
    stage_cue(S_SWAP, 1, 1, INSTEAD, HF_UNKNOWN, time_passes);
    OK(hf_release(lock, &stage_error));
    assert_int_equal(stage_row("k")->n_holders, 0);
    done();
}

static void the_next_one_may_hold_by_then(void **state)
{
    (void)state;
    hold(SERVER);
    stage_cue(S_SWAP, 1, 1, INSTEAD, 0, it_ends_and_rival_takes_it);
    OK(hf_release(lock, &stage_error));
    assert_int_equal(stage_row("k")->n_holders, 1);
    assert_true(hf_left_ms(other) > 0);
    OK(hf_release(other, &stage_error));
    done();
}

static void max_hold_counts_until_the_release(void **state)
{
    hf_options o = HF_OPTIONS_INIT;
    (void)state;
    begin(SERVER);
    o.wait_ms = 0;
    o.lease_ms = HOUR_MS;
    o.max_hold_ms = LEASE_MS;
    OK(hf_acquire(h, "k", &o, &lock, &stage_error));
    stage_cue(S_SWAP, 1, 1, INSTEAD, HF_UNKNOWN, time_passes);
    OK(hf_release(lock, &stage_error));
    assert_int_equal(stage_row("k")->n_holders, 0);
    done();
}

static void a_session_ends_meanwhile(void **state)
{
    (void)state;
    hold(LEASES);
    stage_cue(S_SWAP, 1, 1, INSTEAD, 0, it_ends_and_rival_takes_it);
    OK(hf_release(lock, &stage_error));
    OK(hf_release(other, &stage_error));
    done();
}

static int is_releasing(void)
{
    pthread_mutex_lock(&h->mu);
    int is = lock->releasing;
    pthread_mutex_unlock(&h->mu);
    return is;
}

/* The renewer has a request for the lock under way, which is answered when it is over. */
static int renewal_hangs; /* atomic */

static void awaits_the_release(void)
{
    __atomic_store_n(&renewal_hangs, 1, __ATOMIC_SEQ_CST);
    while (!is_releasing()) hf__pause(1000);
}

static void hangs_until_the_release(void)
{
    awaits_the_release();
    time_passes();
}

static void *renews(void *arg)
{
    hf_renew(lock, 0, NULL);
    return arg;
}

static void released_behind_a_renewal(unsigned can, enum stage_op op, int code)
{
    pthread_t thread;
    hold(can);
    renewal_hangs = 0;
    stage_cue(op, 1, 1, INSTEAD, code, hangs_until_the_release);
    assert_int_equal(pthread_create(&thread, NULL, renews, NULL), 0);
    while (!__atomic_load_n(&renewal_hangs, __ATOMIC_SEQ_CST)) hf__pause(1000);
    OK(hf_release(lock, &stage_error));
    pthread_join(thread, NULL);
    done();
}

static void what_is_under_way_takes_its_time(void **state)
{
    (void)state;
    released_behind_a_renewal(SERVER, S_SWAP, HF_UNAVAILABLE);
    released_behind_a_renewal(SERVER, S_SWAP, 0); /* refused: it is over */
    released_behind_a_renewal(LEASES, S_KEEP, HF_UNAVAILABLE);
}

/* ---- one that was handed over, and isn't claimed yet ---- */

static void hand_over(void)
{
    struct waiter k;
    hf_options o = HF_OPTIONS_INIT;
    begin(WATCHED);
    OK(stage_acquire(rival, "k", 0, HOUR_MS, 0, &other));
    o.lease_ms = HOUR_MS;
    ask_and(h, &k, "k", &o, note);
    await_queue(1);
    stage_cue(S_SWAP, 1, 1 << 30, INSTEAD, HF_UNAVAILABLE, NULL); /* no claim is stored */
    OK(hf_release(other, &stage_error));
    ends(&k, HF_OK);
    lock = k.lock;
}

static void a_handover_ends_meanwhile(void **state)
{
    (void)state;
    hand_over();
    stage_uncue();
    stage_cue(S_SWAP, 1, 1, INSTEAD, 0, it_ends_and_rival_takes_it);
    OK(hf_release(lock, &stage_error));
    OK(hf_release(other, &stage_error));
    done();
}

static void a_handover_that_was_not_claimed_says_so(void **state)
{
    (void)state;
    hand_over();
    time_passes();
    assert_int_equal(hf_left_ms(lock), 0);
    IS(HF_LOST, hf_release(lock, &stage_error));
    assert_true(is_text("its claim timeout ran out before the claim was stored"));
    assert_false(is_text("its lease"));
    done();
}

/* ---- lost all the same ---- */

static void rival_breaks_it_and_leaves_when_it_ends(void)
{
    rival_breaks_it_and_it_ends();
    OK(hf_release(other, &stage_error));
}

static void rival_shares_it_and_it_ends(void)
{
    time_passes();
    OK(hf_renew(other, HOUR_MS, &stage_error)); /* this step removes what is over */
}

/* A holder that shares the key has a later token, too. */
static void who_shares_it_breaks_nothing(void **state)
{
    hf_options o = HF_OPTIONS_INIT;
    (void)state;
    begin(SERVER);
    o.wait_ms = 0;
    o.mode = HF_SHARED;
    o.lease_ms = LEASE_MS;
    OK(hf_acquire(h, "k", &o, &lock, &stage_error));
    o.lease_ms = HOUR_MS;
    OK(hf_acquire(rival, "k", &o, &other, &stage_error));
    stage_cue(S_SWAP, 1, 1, INSTEAD, 0, rival_shares_it_and_it_ends);
    OK(hf_release(lock, &stage_error));
    OK(hf_release(other, &stage_error));
    done();
}

static void what_was_over_before_is_lost(void **state)
{
    (void)state;
    hold(SERVER);
    time_passes();
    IS(HF_LOST, hf_release(lock, &stage_error));
    assert_true(is_text("its lease (60 s) ran out"));
    done();
}

static void what_was_said_to_be_over_is_lost(void **state)
{
    (void)state;
    hold(SERVER);
    stage_suspend(INT64_C(59999500)); /* in the last millisecond hf_left_ms says 0 */
    hf_left_ms(lock);
    stage_cue(S_SWAP, 1, 1, INSTEAD, HF_UNKNOWN, time_passes);
    IS(HF_LOST, hf_release(lock, &stage_error));
    done();
}

static void a_break_is_a_loss(void **state)
{
    (void)state;
    hold(SERVER);
    stage_cue(S_SWAP, 1, 1, INSTEAD, 0, rival_breaks_it);
    IS(HF_LOST, hf_release(lock, &stage_error));
    OK(hf_release(other, &stage_error));
    done();
}

static void a_break_is_a_loss_though_nobody_holds_since(void **state)
{
    (void)state;
    hold(SERVER);
    stage_cue(S_SWAP, 1, 1, INSTEAD, 0, break_it);
    IS(HF_LOST, hf_release(lock, &stage_error));
    assert_true(is_text("it was released or broken"));
    done();
}

/* The next grant was made before its end, which only a break allows. */
static void a_break_is_a_loss_however_long_the_release_takes(void **state)
{
    (void)state;
    hold(SERVER);
    stage_cue(S_SWAP, 1, 1, INSTEAD, 0, rival_breaks_it_and_it_ends);
    IS(HF_LOST, hf_release(lock, &stage_error));
    assert_true(is_text("it was released or broken"));
    OK(hf_release(other, &stage_error));
    done();
    hold(SERVER);
    stage_cue(S_SWAP, 1, 1, INSTEAD, 0, rival_breaks_it_and_leaves_when_it_ends);
    IS(HF_LOST, hf_release(lock, &stage_error));
    done();
}

static void rival_has_been_there(void)
{
    rival_breaks_it();
    OK(hf_release(other, &stage_error));
    other = NULL;
}

/* Changes that other clients made before the release was asked for show in the row, even if it has
   no holder. */
static void broken_before(enum hf_mode mode, void (*others)(void))
{
    hf_options o = HF_OPTIONS_INIT;
    begin(SERVER);
    o.wait_ms = 0;
    o.lease_ms = LEASE_MS;
    o.mode = mode;
    OK(hf_acquire(h, "k", &o, &lock, &stage_error));
    others();
    assert_true(hf_left_ms(lock) > 0);
    stage_cue(S_SWAP, 1, 1, INSTEAD, 0, time_passes);
    IS(HF_LOST, hf_release(lock, &stage_error));
    assert_true(is_text("it was released or broken"));
    if (other) OK(hf_release(other, &stage_error));
    done();
}

static void a_break_before_it_is_a_loss(void **state)
{
    (void)state;
    broken_before(HF_EXCLUSIVE, break_it);
    broken_before(HF_EXCLUSIVE, rival_has_been_there);
    broken_before(HF_EXCLUSIVE, rival_breaks_it);
    broken_before(HF_SHARED, break_it);
    broken_before(HF_SHARED, rival_breaks_it);
}

/* A session has no end in the row: a row that was written well before the release proves the
   break. */
static void a_break_before_it_is_a_loss_with_sessions(void **state)
{
    void (*const others[])(void) = {break_it, rival_breaks_it};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        hold(LEASES);
        others[i]();
        stage_suspend(10000000);
        assert_true(hf_left_ms(lock) > 0);
        stage_cue(S_SWAP, 1, 1, INSTEAD, 0, time_passes);
        IS(HF_LOST, hf_release(lock, &stage_error));
        assert_true(is_text("it was released or broken"));
        if (other) OK(hf_release(other, &stage_error));
        done();
    }
}

static void it_ends_and_rival_holds_it_for_long(void)
{
    it_ends_and_rival_takes_it();
    stage_suspend(10000000);
}

/* The answer is later than the next grant by far: the grant has ended in time all the same. */
static void a_late_answer_is_no_break_with_sessions(void **state)
{
    (void)state;
    hold(LEASES);
    stage_cue(S_SWAP, 1, 1, INSTEAD, 0, it_ends_and_rival_holds_it_for_long);
    OK(hf_release(lock, &stage_error));
    if (other) OK(hf_release(other, &stage_error));
    done();
}

/* The store has reported the loss before, whatever it answers to the release. */
static void what_the_store_called_lost_is_lost(void **state)
{
    pthread_t thread;
    (void)state;
    hold(SERVER);
    break_it();
    renewal_hangs = 0;
    stage_cue(S_SWAP, 1, 1, INSTEAD, 0, awaits_the_release);
    assert_int_equal(pthread_create(&thread, NULL, renews, NULL), 0);
    while (!__atomic_load_n(&renewal_hangs, __ATOMIC_SEQ_CST)) hf__pause(1000);
    stage_cue(S_SWAP, 1, 1 << 30, INSTEAD, HF_UNAVAILABLE, NULL);
    stage_cue(S_GET, 1, 1 << 30, INSTEAD, HF_UNAVAILABLE, NULL);
    IS(HF_LOST, hf_release(lock, &stage_error));
    pthread_join(thread, NULL);
    done();
}

/* ---- no answer ---- */

static void ends_without_an_answer(unsigned can, const char *told)
{
    hold(can);
    stage_cue(S_SWAP, 1, 1 << 30, INSTEAD, HF_UNAVAILABLE, time_passes);
    IS(HF_UNAVAILABLE, hf_release(lock, &stage_error));
    assert_true(is_text(told));
    done();
}

static void without_an_answer_the_end_is_told(void **state)
{
    (void)state;
    ends_without_an_answer(SERVER, "; its lease has ended");
    ends_without_an_answer(LEASES, "; ");
}

static void time_passes_while_releasing(void)
{
    if (is_releasing()) time_passes();
}

static void a_session_that_was_perhaps_kept_may_last(void **state)
{
    (void)state;
    hold(LEASES);
    stage_cue(S_KEEP, 1, 1 << 30, INSTEAD, HF_UNAVAILABLE, NULL);
    IS(HF_UNAVAILABLE, hf_renew(lock, 0, &stage_error));
    stage_cue(S_SWAP, 1, 1 << 30, INSTEAD, HF_UNAVAILABLE, time_passes);
    IS(HF_UNAVAILABLE, hf_release(lock, &stage_error));
    assert_true(is_text("; the lock may stay held until its lease ends"));
    done();
}

/* A renewal that wasn't answered may have been made. */
static void an_end_that_is_not_known_is_not_told(void **state)
{
    (void)state;
    begin(SERVER);
    OK(stage_acquire(h, "k", 0, 3000, 0, &lock));
    uint64_t sent = stage_calls(S_SWAP);
    stage_cue(S_SWAP, 1, 1 << 30, INSTEAD, HF_UNAVAILABLE, time_passes_while_releasing);
    stage_await(S_SWAP, sent + 2);
    int rc = hf_release(lock, &stage_error);
    /* the machine was slow: the lease was over before */
    assert_true(rc == HF_UNAVAILABLE || rc == HF_LOST);
    assert_true(rc == HF_LOST || is_text("; the lock may stay held until its lease ends"));
    done();
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_ends_meanwhile_is_released),
        cmocka_unit_test(the_next_one_may_hold_by_then),
        cmocka_unit_test(max_hold_counts_until_the_release),
        cmocka_unit_test(a_session_ends_meanwhile),
        cmocka_unit_test(what_is_under_way_takes_its_time),
        cmocka_unit_test(a_handover_ends_meanwhile),
        cmocka_unit_test(a_handover_that_was_not_claimed_says_so),
        cmocka_unit_test(who_shares_it_breaks_nothing),
        cmocka_unit_test(what_was_over_before_is_lost),
        cmocka_unit_test(what_was_said_to_be_over_is_lost),
        cmocka_unit_test(a_break_is_a_loss),
        cmocka_unit_test(a_break_is_a_loss_though_nobody_holds_since),
        cmocka_unit_test(a_break_is_a_loss_however_long_the_release_takes),
        cmocka_unit_test(a_break_before_it_is_a_loss),
        cmocka_unit_test(a_break_before_it_is_a_loss_with_sessions),
        cmocka_unit_test(a_late_answer_is_no_break_with_sessions),
        cmocka_unit_test(what_the_store_called_lost_is_lost),
        cmocka_unit_test(without_an_answer_the_end_is_told),
        cmocka_unit_test(a_session_that_was_perhaps_kept_may_last),
        cmocka_unit_test(an_end_that_is_not_known_is_not_told),
    };
    return TEST_MAIN(tests);
}
