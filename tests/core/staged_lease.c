/*
 * staged_lease.c - a store without a clock for leases (hf_session_ops): sessions that end too
 * early, can't be made, can't be kept, or whose reply is lost.
 */
#include "staged_pair.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How often a thread was woken: the expiry monitor by a descriptor, the renewer by a signal. */
static uint32_t wakings;
ssize_t __real_write(int fd, const void *bytes, size_t n);
ssize_t __wrap_write(int fd, const void *bytes, size_t n);
int __real_pthread_cond_signal(pthread_cond_t *cond);
int __wrap_pthread_cond_signal(pthread_cond_t *cond);

ssize_t __wrap_write(int fd, const void *bytes, size_t n)
{
    __atomic_fetch_add(&wakings, n == sizeof(uint64_t), __ATOMIC_SEQ_CST);
    return __real_write(fd, bytes, n);
}

int __wrap_pthread_cond_signal(pthread_cond_t *cond)
{
    __atomic_fetch_add(&wakings, 1, __ATOMIC_SEQ_CST);
    return __real_pthread_cond_signal(cond);
}

static void await_lost(hf_lock *l)
{
    while (hf_left_ms(l) > 0) hf__pause(1000);
}

/* ---- making ---- */

static void a_session_that_cannot_be_made_is_away(void **state)
{
    (void)state;
    begin(LEASES);
    stage_no_threads(1); /* none keeps it */
    IS(HF_NOMEM, stage_acquire(h, "k", 0, 60000, 0, &lock));
    stage_no_threads(0);
    stage_cue(S_MAKE, 1, 1, INSTEAD, HF_UNKNOWN, NULL);
    IS(HF_UNAVAILABLE, stage_acquire(h, "k", 0, 60000, 0, &lock));
    stage_cue(S_MAKE, 1, 1, INSTEAD, HF_DENIED, NULL);
    IS(HF_DENIED, stage_acquire(h, "k", 0, 60000, 0, &lock));
    /* Nor can a session to wait with be made. */
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    stage_cue(S_MAKE, 1, 1, INSTEAD, HF_DENIED, NULL);
    IS(HF_DENIED, stage_acquire(h, "k", 5000, 60000, 0, &lock));
    assert_int_equal(stage_row("k")->n_queue, 0);
    OK(hf_release(other, &stage_error));
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    OK(hf_release(lock, &stage_error));
    done();
}

static void *hold_one(void *arg)
{
    hf_lock *l;
    if (!stage_acquire(h, arg, 5000, 60000, 0, &l)) hf_release(l, NULL);
    return NULL;
}

static void takes_long(void) { hf__pause(20000); }

static void many_holds_share_what_is_made_once(void **state)
{
    (void)state;
    static char names[6][8] = {"a", "b", "c", "d", "e", "f"};
    pthread_t thread[6];
    begin(LEASES);
    stage_cue(S_MAKE, 1, 1, INSTEAD, 0, takes_long);
    for (int i = 0; i < 6; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, hold_one, names[i]), 0);
    for (int i = 0; i < 6; i++) pthread_join(thread[i], NULL);
    assert_int_equal(stage_calls(S_MAKE), 1);
    done();
}

/* ---- sessions that die ---- */

static void a_session_that_died_unnoticed_is_replaced(void **state)
{
    (void)state;
    begin(LEASES);
    OK(stage_acquire(h, "x", 0, 60000, 0, &other));
    stage_kill_sessions();
    OK(stage_acquire(h, "k", 1000, 60000, 0,
                     &lock)); /* the store says LOST, then it is looked at */
    assert_int_equal(hf_left_ms(other), 0);
    IS(HF_LOST, hf_release(other, &stage_error));
    OK(hf_release(lock, &stage_error));
    done();
}

static int kills;

static void kill_again(void)
{
    if (kills-- > 0) stage_kill_sessions();
}

static void sessions_that_die_again_and_again(void **state)
{
    (void)state;
    begin(LEASES);
    OK(stage_acquire(h, "x", 0, 60000, 0, &other));
    kills = 1 << 30;
    stage_cue(S_SWAP, 1, 1 << 30, INSTEAD, 0, kill_again);
    IS(HF_LOST, stage_acquire(h, "k", 0, 60000, 0, &lock));
    kills = 3;
    OK(stage_acquire(h, "k", 10000, 60000, 0, &lock));
    OK(hf_release(lock, &stage_error));
    hf_release(other, NULL);
    /* Kept in vain three times: then the store is as good as away. */
    OK(stage_acquire(h, "x", 0, 60000, 0, &other));
    done();
}

static void a_waiter_whose_session_dies_asks_anew(void **state)
{
    (void)state;
    pthread_t thread;
    static char key[] = "k";
    begin(LEASES);
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    pthread_create(&thread, NULL, hold_one, key);
    await_queue(1);
    stage_kill_sessions();
    pthread_join(thread, NULL); /* the holder's has died as well */
    IS(HF_LOST, hf_release(other, &stage_error));
    done();
}

static void what_is_over_here_stays_over(void **state)
{
    (void)state;
    begin(LEASES);
    OK(stage_acquire(h, "k", 0, 200, HF_NO_RENEW, &lock));
    await_lost(lock);
    IS(HF_LOST, hf_renew(lock, 0, &stage_error));
    IS(HF_LOST, hf_release(lock, &stage_error));
    /* The machine slept beyond all leases. */
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    stage_suspend(70000000);
    assert_int_equal(hf_left_ms(lock), 0);
    IS(HF_LOST, hf_release(lock, &stage_error));
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    OK(hf_release(lock, &stage_error));
    done();
}

static void half_of_it_has_to_be_left(void **state)
{
    (void)state;
    begin(LEASES);
    OK(stage_acquire(h, "x", 0, 60000, 0, &other));
    stage_cue(S_KEEP, 1, 1 << 30, INSTEAD, HF_UNAVAILABLE, NULL);
    stage_suspend(40000000);
    /* Otherwise it would hold with a session that is nearly over. */
    IS(HF_UNAVAILABLE, stage_acquire(h, "k", 0, 60000, 0, &lock));
    stage_uncue();
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    OK(hf_release(lock, &stage_error));
    OK(hf_release(other, &stage_error));
    done();
}

static void the_answer_comes_too_late(void) { stage_suspend(70000000); }

static void one_that_was_kept_too_late_is_over(void **state)
{
    (void)state;
    begin(LEASES);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    stage_cue(S_KEEP, 1, 1, INSTEAD, 0, the_answer_comes_too_late);
    IS(HF_LOST, hf_renew(lock, 0, &stage_error));
    assert_int_equal(hf_left_ms(lock), 0);
    IS(HF_LOST, hf_release(lock, &stage_error));
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    stage_cue(S_KEEP, 1, 1, INSTEAD, HF_LOST, NULL);
    IS(HF_LOST, hf_renew(lock, 0, &stage_error));
    IS(HF_LOST, hf_release(lock, &stage_error));
    done();
}

static void the_answer_comes_late(void) { stage_suspend(30000000); }

/* A session counts from the request that kept it, not from the answer. */
static void a_session_counts_from_the_request(void **state)
{
    (void)state;
    begin(LEASES);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    stage_cue(S_KEEP, 1, 1, INSTEAD, 0, the_answer_comes_late);
    stage_cue(S_KEEP, 2, 1 << 20, INSTEAD, HF_UNAVAILABLE, NULL); /* the renewer, for it is late */
    OK(hf_renew(lock, 0, &stage_error));
    assert_true(hf_left_ms(lock) <= 30000);
    OK(hf_release(lock, &stage_error));
    done();
}

/* ---- renewals ---- */

static void a_renewal_looks_whether_it_is_there(void **state)
{
    (void)state;
    begin(LEASES);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    OK(hf_renew(lock, 0, &stage_error));
    stage_cue(S_GET, 1, 1, INSTEAD, HF_UNAVAILABLE, NULL);
    IS(HF_UNAVAILABLE, hf_renew(lock, 0, &stage_error));
    assert_true(hf_left_ms(lock) > 0);
    stage_cue(S_KEEP, 1, 1, INSTEAD, HF_UNAVAILABLE, NULL);
    IS(HF_UNAVAILABLE, hf_renew(lock, 0, &stage_error));
    OK(hf_confirm(lock, &stage_error));
    break_it();
    IS(HF_LOST, hf_renew(lock, 0, &stage_error));
    IS(HF_LOST, hf_release(lock, &stage_error));
    done();
}

static void another_length_is_another_session(void **state)
{
    (void)state;
    begin(LEASES);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    OK(hf_renew(lock, 30000, &stage_error));
    assert_true(hf_left_ms(lock) <= 30000);
    OK(hf_renew(lock, 40000, &stage_error));
    /* It isn't known with which of the two sessions it holds: it believes in the one that ends
       first. */
    stage_cue(S_SWAP, 1, 1 << 30, ALTHOUGH, HF_UNKNOWN, NULL);
    IS(HF_UNKNOWN, hf_renew(lock, 20000, &stage_error));
    IS(HF_UNKNOWN, hf_renew(lock, 25000, &stage_error));
    stage_uncue();
    assert_true(hf_left_ms(lock) <= 25000);
    OK(hf_renew(lock, 0, &stage_error));
    assert_true(hf_left_ms(lock) > 0);
    stage_cue(S_SWAP, 1, 1, INSTEAD, 0, break_it);
    IS(HF_LOST, hf_renew(lock, 35000, &stage_error));
    IS(HF_LOST, hf_release(lock, &stage_error));
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    stage_cue(S_SWAP, 1, 1, INSTEAD, HF_DENIED, NULL);
    IS(HF_DENIED, hf_renew(lock, 35000, &stage_error));
    stage_cue(S_MAKE, 1, 1, INSTEAD, HF_DENIED, NULL);
    IS(HF_DENIED, hf_renew(lock, 45000, &stage_error));
    stage_cue(S_SWAP, 1, 1, INSTEAD, 0, the_answer_comes_too_late);
    IS(HF_LOST, hf_renew(lock, 35000, &stage_error));
    IS(HF_LOST, hf_release(lock, &stage_error));
    done();
}

static void a_hold_in_doubt_ends_with_either(void **state)
{
    (void)state;
    begin(LEASES);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    stage_cue(S_SWAP, 1, 1 << 30, ALTHOUGH, HF_UNKNOWN, NULL);
    IS(HF_UNKNOWN, hf_renew(lock, 20000, &stage_error));
    stage_uncue();
    stage_kill_sessions();
    stage_suspend(21000000);
    assert_int_equal(hf_left_ms(lock), 0);
    IS(HF_LOST, hf_release(lock, &stage_error));
    /* A session is given up while the outcome of its keepalive is unknown. */
    hf_options o = HF_OPTIONS_INIT;
    o.lease_ms = 60000;
    o.flags = HF_DETACHED;
    OK(hf_acquire(h, "d", &o, &lock, &stage_error));
    stage_cue(S_SWAP, 1, 1 << 30, ALTHOUGH, HF_UNKNOWN, NULL);
    IS(HF_UNKNOWN, hf_renew(lock, 20000, &stage_error));
    done();
}

/* Waits until expiry monitor and renewer sleep, each until something is due. */
static void await_planned(void)
{
    pthread_mutex_lock(&h->mu);
    while (!h->monitor_sleeps || h->monitor_until_us == INT64_MAX || !h->renewer_until_us ||
           h->renewer_until_us == INT64_MAX) {
        pthread_mutex_unlock(&h->mu);
        hf__pause(1000);
        pthread_mutex_lock(&h->mu);
    }
    pthread_mutex_unlock(&h->mu);
}

/* A handle acquires and releases in a hurry, by a session that is kept anyway. */
static void a_pair_wakes_nobody(void **state)
{
    (void)state;
    begin(LEASES);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    await_planned();
    OK(hf_release(lock, &stage_error));
    uint32_t before = __atomic_load_n(&wakings, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 100; i++) {
        OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
        OK(hf_release(lock, &stage_error));
    }
    assert_int_equal(__atomic_load_n(&wakings, __ATOMIC_SEQ_CST) - before, 0);
    done();
}

static int lost_fd, heard;
static void hangs(void)
{
    struct pollfd p = {lost_fd, POLLIN, 0};
    heard |= poll(&p, 1, 40000) > 0;
}

/* Although the thread that keeps it waits for a store that doesn't answer. */
static void who_listens_hears_of_the_end_of_what_is_in_doubt(void **state)
{
    (void)state;
    begin(LEASES);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    lost_fd = hf_lost_fd(lock);
    assert_true(lost_fd >= 0);
    await_planned();
    stage_cue(S_SWAP, 1, 1 << 30, ALTHOUGH, HF_UNKNOWN, NULL);
    stage_cue(S_KEEP, 1, 1 << 30, INSTEAD, HF_UNAVAILABLE, hangs);
    IS(HF_UNKNOWN, hf_renew(lock, 300, &stage_error));
    struct pollfd p = {lost_fd, POLLIN, 0};
    assert_int_equal(poll(&p, 1, 20000), 1);
    IS(HF_LOST, hf_release(lock, &stage_error));
    done();
    assert_true(heard);
}

/* Whatever length hf_renew has given it, it is renewed in time. */
static void a_shorter_lease_is_renewed_in_time(void **state)
{
    (void)state;
    for (int leases = 0; leases < 2; leases++) {
        stage(leases ? STAGE_SESSIONS : 0);
        h = stage_open("a");
        rival = stage_open("rival");
        OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
        OK(hf_renew(lock, 1500, &stage_error));
        assert_true(hf_left_ms(lock) <= 1500);
        int64_t left;
        do {
            hf__pause(10000);
            left = hf_left_ms(lock);
        } while (left > 0 && left <= 1500);
        assert_true(left > 1500);
        OK(hf_release(lock, &stage_error));
        done();
    }
}

/* ---- holds of their own ---- */

static void adopted_holds(void **state)
{
    (void)state;
    hf_lock *mine;
    begin(LEASES);
    OK(stage_acquire(rival, "k", 0, 60000, HF_DETACHED, &other));
    uint64_t token = hf_token(other);
    stage_cue(S_LEFT, 1, 1, INSTEAD, HF_UNAVAILABLE, NULL);
    IS(HF_UNAVAILABLE, hf_adopt(h, "k", token, &mine, &stage_error));
    stage_cue(S_LEFT, 1, 1, INSTEAD, HF_LOST, NULL);
    IS(HF_LOST, hf_adopt(h, "k", token, &mine, &stage_error));
    OK(hf_adopt(h, "k", token, &mine, &stage_error));
    assert_true(hf_left_ms(mine) > 50000);
    OK(hf_renew(mine, 0, &stage_error));
    OK(hf_confirm(mine, &stage_error));
    OK(hf_release(mine, &stage_error));
    IS(HF_LOST, hf_release(other, &stage_error));
    /* A lock of another handle that isn't detached: that handle keeps it, and ends it. */
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    OK(hf_adopt(h, "k", hf_token(other), &mine, &stage_error));
    OK(hf_renew(mine, 0, &stage_error));
    OK(hf_release(mine, &stage_error));
    IS(HF_LOST, hf_release(other, &stage_error));
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    OK(hf_adopt(h, "k", hf_token(other), &mine, &stage_error));
    stage_kill_sessions();
    IS(HF_LOST, hf_confirm(mine, &stage_error));
    IS(HF_LOST, hf_release(mine, &stage_error));
    IS(HF_LOST, hf_adopt(h, "k", hf_token(other), &mine, &stage_error));
    hf_release(other, NULL);
    done();
}

static void what_is_kept_for_a_while(void **state)
{
    (void)state;
    begin(LEASES);
    hf_options o = HF_OPTIONS_INIT;
    o.wait_ms = 0;
    o.lease_ms = 60000;
    o.at_least_ms = 5000;
    OK(hf_acquire(h, "k", &o, &lock, &stage_error));
    stage_cue(S_MAKE, 1, 1, INSTEAD, HF_DENIED, NULL);
    IS(HF_DENIED, hf_release(lock, &stage_error)); /* it ends by itself */
    stage_kill_sessions();
    OK(hf_acquire(h, "k", &o, &lock, &stage_error));
    OK(hf_release(lock, &stage_error));
    IS(HF_BUSY, stage_acquire(rival, "k", 0, 60000, 0, &other));
    stage_kill_sessions();
    OK(hf_acquire(h, "k", &o, &lock, &stage_error));
    stage_cue(S_SWAP, 1, 1 << 30, ALTHOUGH, HF_UNKNOWN, NULL);
    IS(HF_UNKNOWN, hf_release(lock, &stage_error));
    stage_uncue();
    stage_kill_sessions();
    OK(hf_acquire(h, "k", &o, &lock, &stage_error));
    stage_suspend(6000000); /* none of it is left */
    OK(hf_release(lock, &stage_error));
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    OK(hf_release(other, &stage_error));
    OK(hf_acquire(h, "k", &o, &lock, &stage_error));
    stage_cue(S_SWAP, 1, 1, INSTEAD, 0, break_it);
    IS(HF_LOST, hf_release(lock, &stage_error));
    done();
}

static void the_dead_in_front_are_passed(void **state)
{
    (void)state;
    pthread_t thread[2];
    static char key[] = "k";
    begin(LEASES);
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    hf *third = stage_open("b");
    /* A waiter dies at the head of the queue, with another one behind it. */
    hf *was = h;
    h = third;
    pthread_create(&thread[0], NULL, hold_one, key);
    await_queue(1);
    h = was;
    pthread_create(&thread[1], NULL, hold_one, key);
    await_queue(2);
    stage_row("k")->party[1].session = 1; /* nobody's any more */
    stage_row("k")->rev++;
    OK(hf_release(other, &stage_error));
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    hf_close(third);
    done();
}

/* ---- what was given up ---- */

static void who_gave_up_unheard_is_withdrawn_later(void **state)
{
    (void)state;
    begin(LEASES);
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    /* The request is queued, but the reply is lost. */
    stage_cue(S_SWAP, 1, 1, ALTHOUGH, HF_UNKNOWN, NULL);
    stage_cue(S_SWAP, 2, 1 << 30, INSTEAD, HF_UNKNOWN, NULL);
    for (int i = 0; i < 2; i++) {
        IS(HF_UNKNOWN, stage_acquire(h, "k", 200, 60000, 0, &lock));
        assert_int_equal(stage_row("k")->n_queue, 1);
    }
    stage_uncue();
    await_queue(0);
    OK(hf_release(other, &stage_error));
    /* Closed before it could: the session ends. */
    stage_cue(S_SWAP, 1, 1 << 30, ALTHOUGH, HF_UNKNOWN, NULL);
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    IS(HF_UNKNOWN, stage_acquire(h, "k", 100, 60000, 0, &lock));
    hf_close(h);
    stage_uncue();
    h = NULL;
    OK(hf_release(other, &stage_error));
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    OK(hf_release(other, &stage_error));
    done();
}

static void a_damaged_row_is_not_withdrawn_from_for_ever(void **state)
{
    (void)state;
    begin(LEASES);
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    stage_cue(S_SWAP, 1, 1 << 30, ALTHOUGH, HF_UNKNOWN, NULL);
    IS(HF_UNKNOWN, stage_acquire(h, "k", 100, 60000, 0, &lock));
    uint64_t gets = stage_calls(S_GET);
    stage_cue(S_GET, 1, 1 << 30, INSTEAD, HF_CORRUPT, NULL);
    stage_await(S_GET, gets + 1);
    done();
    hf_release(NULL, NULL);
}

/* ---- ending ---- */

static void a_store_that_is_away_ends_sessions_itself(void **state)
{
    (void)state;
    hf_lock *l[3];
    static const int64_t lease[] = {60000, 50000, 40000};
    begin(LEASES);
    for (int i = 0; i < 3; i++) {
        static const char *const key[] = {"a", "b", "c"};
        OK(stage_acquire(h, key[i], 0, lease[i], 0, &l[i]));
        OK(hf_release(l[i], &stage_error));
    }
    stage_cue(S_END, 1, 1, INSTEAD, HF_UNAVAILABLE, NULL);
    hf_close(h);
    /* one attempt was enough: the others aren't worth a timeout each */
    assert_int_equal(stage_calls(S_END), 1);
    h = NULL;
    done();
}

static void what_nobody_needs_any_more_may_run_out(void **state)
{
    (void)state;
    begin(LEASES);
    /* Set before any session is kept: it is the renewer's second attempt, and no other thread's. */
    uint64_t keeps = stage_calls(S_KEEP);
    stage_cue(S_KEEP, 2, 1, INSTEAD, HF_UNAVAILABLE, NULL);
    OK(stage_acquire(h, "k", 0, 300, 0, &lock));
    OK(hf_release(lock, &stage_error));
    stage_await(S_KEEP, keeps + 2);
    uint64_t makes = stage_calls(S_MAKE);
    while (stage_calls(S_MAKE) == makes) { /* until it has been forgotten */
        hf__pause(310000);
        OK(stage_acquire(h, "k", 0, 300, 0, &lock));
        OK(hf_release(lock, &stage_error));
        stage_suspend(310000);
    }
    done();
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_session_that_cannot_be_made_is_away),
        cmocka_unit_test(many_holds_share_what_is_made_once),
        cmocka_unit_test(a_session_that_died_unnoticed_is_replaced),
        cmocka_unit_test(sessions_that_die_again_and_again),
        cmocka_unit_test(a_waiter_whose_session_dies_asks_anew),
        cmocka_unit_test(what_is_over_here_stays_over),
        cmocka_unit_test(half_of_it_has_to_be_left),
        cmocka_unit_test(one_that_was_kept_too_late_is_over),
        cmocka_unit_test(a_session_counts_from_the_request),
        cmocka_unit_test(a_renewal_looks_whether_it_is_there),
        cmocka_unit_test(another_length_is_another_session),
        cmocka_unit_test(a_hold_in_doubt_ends_with_either),
        cmocka_unit_test(a_pair_wakes_nobody),
        cmocka_unit_test(who_listens_hears_of_the_end_of_what_is_in_doubt),
        cmocka_unit_test(a_shorter_lease_is_renewed_in_time),
        cmocka_unit_test(adopted_holds),
        cmocka_unit_test(what_is_kept_for_a_while),
        cmocka_unit_test(the_dead_in_front_are_passed),
        cmocka_unit_test(who_gave_up_unheard_is_withdrawn_later),
        cmocka_unit_test(a_damaged_row_is_not_withdrawn_from_for_ever),
        cmocka_unit_test(a_store_that_is_away_ends_sessions_itself),
        cmocka_unit_test(what_nobody_needs_any_more_may_run_out),
    };
    return TEST_MAIN(tests);
}
