/*
 * staged_kept.c - sessions that other threads keep, and threads that watch over something: what
 * they do if it has ended meanwhile, by the store's answer or by the clock.
 */
#include "staged_waiter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void ask(hf *store, struct waiter *w, const char *key, int64_t lease_ms, unsigned flags)
{
    hf_options o = HF_OPTIONS_INIT;
    o.lease_ms = lease_ms;
    o.flags = flags;
    o.wait_ms = 60000;
    ask_and(store, w, key, &o, note);
}

static void long_after(void) { stage_suspend(61000000); }

/* ---- sessions ---- */

/* The request has waited so long that the session to hold with, which was made in advance, is
   over. */
static void what_was_made_for_it_is_over_before_its_turn(void **state)
{
    (void)state;
    struct waiter w;
    begin(LEASES);
    OK(stage_acquire(h, "x", 0, 60000, 0, &lock));
    OK(stage_acquire(rival, "k", 0, 600000, 0, &other));
    ask(h, &w, "k", 60000, 0);
    await_queue(1);
    stage_cue(S_KEEP, 1, 1 << 20, INSTEAD, HF_LOST, NULL);
    IS(HF_LOST, hf_renew(lock, 0, &stage_error));
    IS(HF_LOST, hf_release(lock, &stage_error));
    OK(hf_release(other, &stage_error));
    stage_uncue();
    ends(&w, HF_OK);
    assert_true(hf_left_ms(w.lock) > 0);
    OK(hf_release(w.lock, &stage_error));
    done();
}

/* Each session at hand is found dead when it is to be kept: that counts as a store that is away. */
static void sessions_that_cannot_be_kept_three_times(void **state)
{
    (void)state;
    begin(LEASES);
    OK(stage_acquire(h, "x", 0, 60000, 0, &other));
    stage_suspend(40000000); /* less than a half is left */
    stage_cue(S_KEEP, 1, 1, INSTEAD, HF_LOST, NULL);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock)); /* with a new one */
    OK(hf_release(lock, &stage_error));
    IS(HF_LOST, hf_release(other, &stage_error));
    done();
}

static void *renew_it(void *arg)
{
    hf_renew(arg, 0, NULL);
    return NULL;
}

static void takes_a_while(void) { hf__pause(30000); }

static void two_keep_one_at_a_time(void **state)
{
    (void)state;
    pthread_t thread[2];
    begin(LEASES);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    OK(stage_acquire(h, "x", 0, 60000, 0, &other));
    stage_cue(S_KEEP, 1, 2, INSTEAD, 0, takes_a_while);
    assert_int_equal(pthread_create(&thread[0], NULL, renew_it, lock), 0);
    assert_int_equal(pthread_create(&thread[1], NULL, renew_it, other), 0);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    assert_int_equal(stage_calls(S_KEEP), 2);
    OK(hf_release(lock, &stage_error));
    OK(hf_release(other, &stage_error));
    done();
}

static uint64_t session_of(const char *key) { return stage_first(key).session; }

/* A new grant gets a new session; a hold moves to it when it is renewed, but not by hf_renew,
   because then the lease counts from now on. */
static void a_stale_session_is_left(void **state)
{
    (void)state;
    hf_lock *late;
    begin(LEASES);
    OK(stage_acquire(h, "k", 0, 3000, 0, &lock));
    OK(stage_acquire(h, "x", 0, 60000, 0, &other));
    uint64_t was = session_of("k"), long_one = session_of("x");
    stage_make_sessions_stale();
    OK(stage_acquire(h, "y", 0, 3000, 0, &late));
    uint64_t now = session_of("y");
    assert_true(now != was);
    while (session_of("k") == was) hf__pause(1000);
    assert_true(session_of("k") == now && hf_left_ms(lock) > 0);
    OK(hf_renew(other, 0, &stage_error));
    assert_true(session_of("x") == long_one && hf_left_ms(other) > 50000);
    assert_int_equal(stage_calls(S_MAKE), 3);
    OK(hf_release(lock, &stage_error));
    OK(hf_release(other, &stage_error));
    OK(hf_release(late, &stage_error));
    done();
}

/* The reply to a renewal with another session was lost: the hold is over before that is settled. */
static void a_doubt_that_ends_with_its_session(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        begin(LEASES);
        OK(stage_acquire(h, "k", 0, 60000, HF_NO_RENEW, &lock));
        stage_cue(S_SWAP, 1, 1 << 20, INSTEAD, HF_UNKNOWN, NULL);
        IS(HF_UNKNOWN, hf_renew(lock, 30000, &stage_error));
        stage_uncue();
        if (how == 0) stage_suspend(31000000); /* the shorter of both counts */
        if (how == 1) break_it();
        if (how == 2) stage_cue(S_SWAP, 1, 1, INSTEAD, 0, long_after);
        IS(HF_LOST, hf_renew(lock, 30000, &stage_error));
        assert_int_equal(hf_left_ms(lock), 0);
        IS(HF_LOST, hf_release(lock, &stage_error));
        done();
    }
}

static void a_renewal_that_is_answered_too_late(void **state)
{
    (void)state;
    begin(LEASES);
    OK(stage_acquire(h, "k", 0, 60000, HF_NO_RENEW, &lock));
    stage_cue(S_SWAP, 1, 1, INSTEAD, 0, long_after);
    IS(HF_LOST, hf_renew(lock, 30000, &stage_error));
    IS(HF_LOST, hf_release(lock, &stage_error));
    done();
}

/* A request that is given up where no thread can withdraw it stays until the handle is closed;
   giving up doesn't fail. */
static void without_threads_nothing_is_tended(void **state)
{
    (void)state;
    begin(LEASES);
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    stage_no_threads(1);
    IS(HF_NOMEM, stage_acquire(h, "k", 100, 60000, 0, &lock));
    stage_no_threads(0);
    assert_int_equal(stage_row("k")->n_queue, 0);
    OK(hf_release(other, &stage_error));
    done();
}

/* The store can't be asked to end them: they end by themselves. */
static void many_sessions_that_cannot_be_ended(void **state)
{
    (void)state;
    hf_lock *l[3];
    begin(LEASES);
    for (int i = 0; i < 3; i++) {
        char key[8];
        snprintf(key, sizeof key, "k%d", i);
        OK(stage_acquire(h, key, 0, 60000, HF_NO_RENEW, &l[i]));
    }
    uint64_t before = stage_calls(S_END);
    stage_cue(S_END, 1, 1 << 20, INSTEAD, HF_UNAVAILABLE, NULL);
    hf_close(h);
    h = NULL;
    assert_in_range(stage_calls(S_END) - before, 1, 3);
    done();
}

/* ---- the liveness watch ---- */

static int no_fd(hf_store *st)
{
    (void)st;
    return -1;
}

/* No death is reported, by a descriptor or otherwise: two wait, and one after the other notices. */
static void deaths_are_noticed_by_looking(void **state)
{
    (void)state;
    for (int how = 0; how < 2; how++) {
        struct waiter first, second;
        hf *third;
        begin(LOCAL);
        if (how) stage_liveness.death_fd = no_fd;
        stage_tells_no_deaths();
        OK(stage_acquire(rival, "k", 0, 0, 0, &other));
        ask(h, &first, "k", 0, 0);
        await_queue(1);
        third = stage_open("b");
        ask(third, &second, "k", 0, 0);
        await_queue(2);
        stage_kill(stage_row("k")->party[0].session); /* the holder */
        ends(&first, HF_OK);
        OK(hf_release(first.lock, &stage_error));
        ends(&second, HF_OK);
        OK(hf_release(second.lock, &stage_error));
        hf_release(other, NULL);
        hf_close(third);
        done();
    }
}

static void dies_ahead(unsigned kind)
{
    struct waiter behind;
    begin(kind);
    stage_tells_no_deaths();
    hf *third = stage_open("b");
    OK(stage_acquire(third, "x", 0, 0, 0, &lock));
    uint64_t session = stage_row("x")->party[0].session;
    OK(stage_acquire(rival, "k", 0, 0, 0, &other));
    hf_row *row = stage_row("k");
    assert_int_equal(hf_row_room(row, 2), 0);
    hf_party *ahead = &row->party[1];
    hf_party_copy(ahead, &row->party[0]);
    memset(ahead->id, 7, sizeof ahead->id);
    ahead->token = 0;
    ahead->session = session;
    row->n_queue = 1;
    row->rev++;
    ask(h, &behind, "k", 0, 0);
    await_queue(2);
    stage_kill(session);
    await_queue(1);
    OK(hf_release(other, &stage_error));
    ends(&behind, HF_OK);
    OK(hf_release(behind.lock, &stage_error));
    hf_release(lock, NULL);
    hf_close(third);
    done();
}

/* The waiter ahead dies; a subscription to keys doesn't report that, so the wait looks. */
static void the_one_ahead_dies(void **state)
{
    (void)state;
    dies_ahead(LOCAL);
    dies_ahead(WAKEUPS);
}

/* A store that is gone for good ends waits, too; a store that is away doesn't. */
static void who_waits_is_told_that_the_store_is_gone(void **state)
{
    (void)state;
    struct waiter w;
    begin(LOCAL);
    OK(stage_acquire(rival, "k", 0, 0, 0, &other));
    ask(h, &w, "k", 0, 0);
    await_queue(1);
    stage_cue(S_GET, 1, 1, INSTEAD, HF_UNAVAILABLE, NULL);
    stage_cue(S_GET, 2, 1, INSTEAD, HF_UNKNOWN, NULL);
    stage_cue(S_GET, 3, 1 << 20, INSTEAD, HF_CORRUPT, NULL);
    stage_tell_deaths(1);
    ends(&w, HF_CORRUPT);
    stage_uncue();
    hf_release(other, NULL);
    done();
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_made_for_it_is_over_before_its_turn),
        cmocka_unit_test(sessions_that_cannot_be_kept_three_times),
        cmocka_unit_test(two_keep_one_at_a_time),
        cmocka_unit_test(a_stale_session_is_left),
        cmocka_unit_test(a_doubt_that_ends_with_its_session),
        cmocka_unit_test(a_renewal_that_is_answered_too_late),
        cmocka_unit_test(without_threads_nothing_is_tended),
        cmocka_unit_test(many_sessions_that_cannot_be_ended),
        cmocka_unit_test(deaths_are_noticed_by_looking),
        cmocka_unit_test(the_one_ahead_dies),
        cmocka_unit_test(who_waits_is_told_that_the_store_is_gone),
    };
    return TEST_MAIN(tests);
}
