/*
 * staged_sessions.c - sessions that leases hang on (core/session/session.c), in the moments that
 * hardly ever come: lost while they are asked for, stale, too short, without memory or a thread to
 * keep them.
 */
#include "renewal_queue.h"
#include "staged_waiter.h"
#include "withdraw.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A rival has the key, and this request is queued with a session that is kept. */
static struct waiter first;

static void begin_in_line(unsigned can, int64_t lease_ms)
{
    hf_options o = HF_OPTIONS_INIT;
    begin(can);
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    o.lease_ms = lease_ms;
    ask_and(h, &first, "k", &o, note);
    await_queue(1);
}

static void the_first_ends_with_the_key(void)
{
    await_end(&first);
    assert_true(hf_left_ms(first.lock) > 0);
    ends_with_the_key(&first);
    assert_int_equal(stage_row("k")->n_holders + stage_row("k")->n_queue, 0);
    done();
}

/* Called with the mutex, which is released during the request: the store says that the session is
   dead. */
static void dies(struct hf_session *t)
{
    stage_cue(S_KEEP, 1, 1, INSTEAD, HF_LOST, NULL);
    IS(HF_LOST, hf__session_keep(&h->sessions, t, &stage_error));
    assert_true(t->gone);
}

static struct hf_session *have(int own)
{
    struct hf_session *t = NULL;
    OK(hf__session_have(&h->sessions, 60000, own, &t, &stage_error));
    return t;
}

/* ---- sessions that are over ---- */

static void one_that_is_gone_is_replaced(void **state)
{
    (void)state;
    begin(LEASES);
    pthread_mutex_lock(&h->mu);
    struct hf_session *t = have(0);
    uint64_t session = t->id;
    dies(t);
    OK(hf__session_have(&h->sessions, 60000, 0, &t, &stage_error));
    assert_true(t->id != session && !t->gone);
    hf__session_put(&h->sessions, t);
    pthread_mutex_unlock(&h->mu);
    done();
}

/* Three sessions at hand are found dead, one after the other: that counts as a store that is
   away. */
static void three_that_are_dead_are_enough(void **state)
{
    (void)state;
    struct hf_session *t[3], *none = NULL;
    begin(LEASES);
    pthread_mutex_lock(&h->mu);
    for (int i = 0; i < 3; i++) {
        t[i] = have(0);
        for (int k = 0; k < i; k++) assert_true(t[i] != t[k]);
        stage_make_sessions_stale();
    }
    stage_sessions.stale = NULL; /* nothing is stale any more */
    for (int i = 0; i < 3; i++) t[i]->until_us = hf__local_us() + 1000000; /* less than a half */
    stage_cue(S_KEEP, 1, 3, INSTEAD, HF_LOST, NULL);
    IS(HF_UNAVAILABLE, hf__session_have(&h->sessions, 60000, 0, &none, &stage_error));
    assert_null(none);
    for (int i = 0; i < 3; i++) {
        assert_true(t[i]->gone);
        hf__session_put(&h->sessions, t[i]);
    }
    pthread_mutex_unlock(&h->mu);
    done();
}

static void nobody_answers_for_long(void) { stage_suspend(70000000); }

static void one_that_could_not_be_kept_in_time_is_over(void **state)
{
    (void)state;
    begin(LEASES);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    stage_cue(S_KEEP, 1, 1, INSTEAD, HF_UNAVAILABLE, nobody_answers_for_long);
    IS(HF_LOST, hf_renew(lock, 0, &stage_error));
    IS(HF_LOST, hf_release(lock, &stage_error));
    done();
}

/* A session that is renewed only by hand: if that fails, no thread tries again. */
static void what_nobody_keeps_is_not_kept_for_a_failure(void **state)
{
    (void)state;
    begin(LEASES);
    OK(stage_acquire(h, "k", 0, 60000, HF_NO_RENEW, &lock));
    stage_cue(S_KEEP, 1, 1, INSTEAD, HF_UNAVAILABLE, NULL);
    IS(HF_UNAVAILABLE, hf_renew(lock, 0, &stage_error));
    assert_true(lock->session->keep_at_us == INT64_MAX);
    OK(hf_release(lock, &stage_error));
    done();
}

/* A session was made for a request that then had to wait: it is kept once more at the grant. */
static void what_was_made_early_begins_late(void **state)
{
    (void)state;
    begin(LEASES);
    for (int dead = 0; dead < 2; dead++) {
        pthread_mutex_lock(&h->mu);
        struct hf_session *t = have(1);
        if (dead) stage_cue(S_KEEP, 1, 1, INSTEAD, HF_LOST, NULL);
        uint64_t kept = stage_calls(S_KEEP);
        hf__session_begins(&h->sessions, t, hf__local_us() + 10000000);
        assert_int_equal(stage_calls(S_KEEP), kept + 1);
        assert_int_equal(t->gone, dead);
        hf__session_put(&h->sessions, t);
        pthread_mutex_unlock(&h->mu);
    }
    done();
}

/* ---- while somebody is at it ---- */

static struct hf_session *at_hand;

static void another_asks(void)
{
    pthread_mutex_lock(&h->mu);
    assert_int_equal(h->sessions.making, 1);
    OK(hf__session_have(&h->sessions, 60000, 0, &at_hand, &stage_error));
    pthread_mutex_unlock(&h->mu);
}

/* A request that has a session doesn't wait for another that is being made. */
static void who_has_one_does_not_wait(void **state)
{
    (void)state;
    struct hf_session *t = NULL;
    begin(LEASES);
    pthread_mutex_lock(&h->mu);
    at_hand = have(0);
    stage_cue(S_MAKE, 1, 1, INSTEAD, 0, another_asks);
    OK(hf__session_have(&h->sessions, 30000, 0, &t, &stage_error));
    assert_true(at_hand && t != at_hand);
    hf__session_put(&h->sessions, t);
    hf__session_put(&h->sessions, at_hand);
    pthread_mutex_unlock(&h->mu);
    done();
}

static void it_is_given_up(void)
{
    pthread_mutex_lock(&h->mu);
    hf__session_put(&h->sessions, at_hand);
    pthread_mutex_unlock(&h->mu);
}

/* The session's last user gives it up while the renewer keeps it. */
static void one_given_up_while_it_is_kept_is_ended(void **state)
{
    (void)state;
    begin(LEASES);
    uint64_t ended = stage_calls(S_END);
    stage_cue(S_KEEP, 1, 1, INSTEAD, 0, it_is_given_up);
    pthread_mutex_lock(&h->mu);
    at_hand = have(1);
    at_hand->keep_at_us = 0;
    pthread_cond_signal(&h->renewer_cond);
    pthread_mutex_unlock(&h->mu);
    stage_await(S_END, ended + 1);
    pthread_mutex_lock(&h->mu);
    assert_null(h->sessions.all);
    pthread_mutex_unlock(&h->mu);
    done();
}

static void until_the_handle_closes(void)
{
    for (int closing = 0; closing < 3; hf__pause(1000)) closing = hf__closing(h);
}

/* The handle is closed while the renewer keeps something. */
static void closing_while_a_session_is_kept(void **state)
{
    (void)state;
    begin(LEASES);
    uint64_t kept = stage_calls(S_KEEP);
    stage_cue(S_KEEP, 1, 1, INSTEAD, 0, until_the_handle_closes);
    pthread_mutex_lock(&h->mu);
    struct hf_session *t = have(0);
    t->keep_at_us = 0;
    hf__session_put(&h->sessions, t);
    pthread_cond_signal(&h->renewer_cond);
    pthread_mutex_unlock(&h->mu);
    stage_await(S_KEEP, kept + 1);
    hf_close(h);
    h = NULL;
    done();
}

/* ---- renewals ---- */

/* It may hold with the same session that it waited with: its claim still has to be written. */
static void a_claim_with_the_same_session_is_written(void **state)
{
    (void)state;
    begin_in_line(CALM_LEASES, 60000);
    OK(hf_release(other, &stage_error));
    ends(&first, HF_OK);
    assert_true(stage_row("k")->party[0].flags & HF_PARTY_UNCLAIMED);
    stage_cue(S_SWAP, 1, 1 << 20, INSTEAD, HF_UNKNOWN, NULL);
    IS(HF_UNKNOWN, hf_renew(first.lock, 0, &stage_error));
    assert_null(first.lock->pending_session); /* it holds with the same session as before */
    stage_uncue();
    uint64_t session = stage_row("k")->party[0].session;
    OK(hf_renew(first.lock, 0, &stage_error));
    assert_int_equal(stage_row("k")->party[0].flags & HF_PARTY_UNCLAIMED, 0);
    assert_true(stage_row("k")->party[0].session == session);
    OK(hf_release(first.lock, &stage_error));
    done();
}

static void as_ending(hf_row *row) { row->party[0].flags |= HF_PARTY_ENDING; }

static void a_grant_that_is_ending_is_not_renewed(void **state)
{
    (void)state;
    begin(LEASES);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    stage_forge(as_ending);
    IS(HF_LOST, hf_renew(lock, 0, &stage_error));
    stage_forge(NULL);
    IS(HF_LOST, hf_release(lock, &stage_error));
    done();
}

static void what_it_holds_with_dies(void)
{
    pthread_mutex_lock(&h->mu);
    dies(lock->session);
    pthread_mutex_unlock(&h->mu);
}

/* The row still names it, but its session is gone by the time the answer is here. */
static void a_renewal_whose_session_dies_meanwhile(void **state)
{
    (void)state;
    begin(LEASES);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    stage_cue(S_GET, 1, 1, INSTEAD, 0, what_it_holds_with_dies);
    IS(HF_LOST, hf_renew(lock, 0, &stage_error));
    assert_non_null(strstr(stage_error.text, "too late"));
    IS(HF_LOST, hf_release(lock, &stage_error));
    done();
}

/* The reply to a renewal with another session was lost. The renewal has landed, and that session
   dies just when it is to count. */
static void a_doubt_whose_session_dies_as_it_is_settled(void **state)
{
    (void)state;
    begin(LEASES);
    OK(stage_acquire(h, "k", 0, 60000, HF_NO_RENEW, &lock));
    stage_cue(S_SWAP, 1, 1 << 20, ALTHOUGH, HF_UNKNOWN, NULL);
    IS(HF_UNKNOWN, hf_renew(lock, 30000, &stage_error));
    stage_uncue();
    stage_suspend(5000000);
    stage_cue(S_KEEP, 1, 1, INSTEAD, HF_LOST, NULL);
    IS(HF_LOST, hf_renew(lock, 30000, &stage_error));
    assert_non_null(strstr(stage_error.text, "too late"));
    IS(HF_LOST, hf_release(lock, &stage_error));
    done();
}

/* The renewer moves the hold to a session that others share, and the reply is lost. */
static void a_doubt_about_a_session_that_is_shared(void **state)
{
    (void)state;
    begin(LEASES);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    uint64_t was = lock->session->id;
    stage_make_sessions_stale();
    stage_cue(S_SWAP, 1, 1 << 20, ALTHOUGH, HF_UNKNOWN, NULL);
    pthread_mutex_lock(&h->mu);
    hf__renew_at(lock, 0);
    pthread_cond_signal(&h->renewer_cond);
    for (; !lock->pending_session; pthread_mutex_lock(&h->mu)) {
        pthread_mutex_unlock(&h->mu);
        hf__pause(1000);
    }
    assert_int_equal(lock->pending_session->own, 0);
    pthread_mutex_unlock(&h->mu);
    stage_uncue();
    OK(hf_renew(lock, 0, &stage_error));
    assert_true(stage_row("k")->party[0].session != was);
    assert_true(hf_left_ms(lock) > 0);
    OK(hf_release(lock, &stage_error));
    done();
}

/* ---- ending ---- */

static void one_that_has_ended_by_itself(void **state)
{
    (void)state;
    hf_lock *l[2];
    begin(LEASES);
    for (int i = 0; i < 2; i++) OK(stage_acquire(h, i ? "k" : "x", 0, 60000, HF_NO_RENEW, &l[i]));
    uint64_t before = stage_calls(S_END);
    stage_cue(S_END, 1, 2, INSTEAD, HF_LOST, NULL);
    hf_close(h);
    h = NULL;
    assert_int_equal(stage_calls(S_END), before + 2); /* the store answers, so it is asked again */
    done();
}

/* No thread can end an unused session: it is ended when the handle is closed. */
static void without_a_thread_it_ends_with_the_handle(void **state)
{
    (void)state;
    hf_lock *mine;
    uint8_t id[16] = {7};
    struct hf_entry *e;
    begin(LEASES);
    OK(stage_acquire(rival, "k", 0, 60000, HF_DETACHED, &other));
    stage_no_threads(1);
    OK(hf_adopt(h, "k", hf_token(other), &mine, &stage_error));
    uint64_t ended = stage_calls(S_END);
    OK(hf_release(mine, &stage_error));
    assert_int_equal(stage_calls(S_END), ended);
    pthread_mutex_lock(&h->mu);
    OK(hf__entry(h, hf__name("k"), &e, &stage_error));
    hf__defer_cancel(h, e, id);
    assert_non_null(h->cancels);
    hf__entry_unref(e);
    pthread_mutex_unlock(&h->mu);
    stage_no_threads(0);
    hf_close(h);
    h = NULL;
    assert_int_equal(stage_calls(S_END), ended + 1);
    IS(HF_LOST, hf_release(other, &stage_error));
    done();
}

/* ---- regrets ---- */

/* The last user of a session goes while the renewer looks after something else. */
static void one_given_up_beside_a_deferred_cancel_is_ended(void **state)
{
    (void)state;
    uint8_t id[16] = {7};
    struct hf_entry *e;
    begin(LEASES);
    uint64_t ended = stage_calls(S_END);
    stage_cue(S_GET, 1, 1, INSTEAD, 0, it_is_given_up);
    pthread_mutex_lock(&h->mu);
    at_hand = have(1);
    OK(hf__entry(h, hf__name("k"), &e, &stage_error));
    hf__defer_cancel(h, e, id);
    hf__entry_unref(e);
    pthread_mutex_unlock(&h->mu);
    stage_await(S_END, ended + 1);
    done();
}

static void what_cannot_be_withdrawn_yet_is_tried_again(void **state)
{
    (void)state;
    uint8_t id[16] = {7};
    struct hf_entry *e;
    begin(LEASES);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    pthread_mutex_lock(&h->mu);
    OK(hf__entry(h, hf__name("k"), &e, &stage_error));
    stage_no_memory(1);
    hf__defer_cancel(h, e, id);
    assert_int_equal(stage_no_memory(0), 1);
    assert_null(h->cancels);
    uint64_t asked = stage_calls(S_GET);
    stage_cue(S_GET, 1, 1, INSTEAD, HF_UNAVAILABLE, NULL);
    hf__defer_cancel(h, e, id);
    hf__entry_unref(e);
    for (; h->cancels; pthread_mutex_lock(&h->mu)) {
        pthread_mutex_unlock(&h->mu);
        hf__pause(1000);
    }
    pthread_mutex_unlock(&h->mu);
    assert_true(stage_calls(S_GET) >= asked + 2);
    OK(hf_release(lock, &stage_error));
    done();
}

/* A caller that names its request can ask it again: the library doesn't withdraw it. */
static void a_named_request_is_not_regretted(void **state)
{
    (void)state;
    uint8_t id[16] = {7};
    hf_options o = HF_OPTIONS_INIT;
    begin(LEASES);
    o.wait_ms = 0;
    o.lease_ms = 60000;
    o.request_id = id;
    stage_cue(S_SWAP, 1, 1 << 20, ALTHOUGH, HF_UNKNOWN, NULL);
    IS(HF_UNKNOWN, hf_acquire(h, "k", &o, &lock, &stage_error));
    stage_uncue();
    pthread_mutex_lock(&h->mu);
    assert_null(h->cancels);
    pthread_mutex_unlock(&h->mu);
    OK(hf_acquire(h, "k", &o, &lock, &stage_error));
    OK(hf_release(lock, &stage_error));
    done();
}

/* ---- waits ---- */

/* The session that it waits with dies: the wait asks again, with another one. */
static void who_waits_is_told_that_its_session_is_gone(void **state)
{
    (void)state;
    begin_in_line(CALM_LEASES, 90000);
    uint64_t made = stage_calls(S_MAKE);
    pthread_mutex_lock(&h->mu);
    assert_non_null(first.wait->queue_session);
    dies(first.wait->queue_session);
    pthread_mutex_unlock(&h->mu);
    stage_await(S_MAKE, made + 1);
    OK(hf_release(other, &stage_error));
    the_first_ends_with_the_key();
}

/* The waiter is handed the key, and the session that it waited with dies just then, or is gone. */
static int is_none, is_over;

static void what_it_waits_with_is_gone(void)
{
    struct hf_wait *w = first.wait;
    if (is_over || !(stage_row("k")->party[0].flags & HF_PARTY_UNCLAIMED)) return;
    is_over = 1;
    pthread_mutex_lock(&h->mu);
    if (is_none) {
        hf__session_put(&h->sessions, w->queue_session);
        w->queue_session = NULL;
    } else {
        dies(w->queue_session);
    }
    pthread_mutex_unlock(&h->mu);
}

static void handed_it_asks_with_another_session(void **state)
{
    (void)state;
    for (is_none = 0; is_none < 2; is_none++) {
        begin_in_line(CALM_LEASES, 90000);
        is_over = 0;
        stage_cue(S_GET, 1, 1 << 20, INSTEAD, 0, what_it_waits_with_is_gone);
        OK(hf_release(other, &stage_error));
        the_first_ends_with_the_key();
        assert_true(is_over);
    }
}

/* There is a session to hold with already, but little of it is left. */
static void what_is_too_short_to_hold_with_is_kept_first(void **state)
{
    (void)state;
    begin_in_line(CALM_LEASES, 90000);
    pthread_mutex_lock(&h->mu);
    OK(hf__session_have(&h->sessions, 90000, 0, &first.wait->session, &stage_error));
    first.wait->session->until_us = hf__local_us() + 10000000;
    /* Without a queue session the wait has to ask: it doesn't accept the handover as it is. */
    hf__session_put(&h->sessions, first.wait->queue_session);
    first.wait->queue_session = NULL;
    pthread_mutex_unlock(&h->mu);
    uint64_t kept = stage_calls(S_KEEP);
    OK(hf_release(other, &stage_error));
    ends(&first, HF_OK);
    assert_true(stage_calls(S_KEEP) > kept);
    assert_true(hf_left_ms(first.lock) > 45000);
    OK(hf_release(first.lock, &stage_error));
    done();
}

static void its_session_dies(void)
{
    pthread_mutex_lock(&h->mu);
    dies(h->sessions.all);
    pthread_mutex_unlock(&h->mu);
}

static void its_session_runs_out(void)
{
    pthread_mutex_lock(&h->mu);
    h->sessions.all->until_us = 0;
    pthread_mutex_unlock(&h->mu);
}

/* Granted, with a session that has ended meanwhile: it isn't believed, and a try has no answer. */
static void a_grant_with_what_is_over_is_no_hold(void **state)
{
    (void)state;
    void (*const ends_how[])(void) = {its_session_dies, its_session_runs_out};
    for (int i = 0; i < 2; i++) {
        begin(LEASES);
        stage_cue(S_SWAP, 1, 1, INSTEAD, 0, ends_how[i]);
        IS(HF_UNAVAILABLE, stage_acquire(h, "k", 0, 60000, 0, &lock));
        assert_int_equal(stage_row("k")->n_holders, 0);
        stage_cue(S_SWAP, 1, 1, INSTEAD, 0, ends_how[i]);
        OK(stage_acquire(h, "k", 5000, 60000, 0, &lock));
        assert_true(hf_left_ms(lock) > 0);
        OK(hf_release(lock, &stage_error));
        done();
    }
}

/* A session that the row names has died, but none of ours. */
static void what_died_was_not_ours(void **state)
{
    (void)state;
    begin(LEASES);
    OK(stage_acquire(h, "x", 0, 60000, 0, &other));
    uint64_t made = stage_calls(S_MAKE);
    stage_cue(S_SWAP, 1, 1, INSTEAD, HF_LOST, NULL);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    assert_int_equal(stage_calls(S_MAKE), made);
    OK(hf_release(lock, &stage_error));
    OK(hf_release(other, &stage_error));
    done();
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_is_gone_is_replaced),
        cmocka_unit_test(three_that_are_dead_are_enough),
        cmocka_unit_test(one_that_could_not_be_kept_in_time_is_over),
        cmocka_unit_test(what_nobody_keeps_is_not_kept_for_a_failure),
        cmocka_unit_test(what_was_made_early_begins_late),
        cmocka_unit_test(who_has_one_does_not_wait),
        cmocka_unit_test(one_given_up_while_it_is_kept_is_ended),
        cmocka_unit_test(closing_while_a_session_is_kept),
        cmocka_unit_test(a_claim_with_the_same_session_is_written),
        cmocka_unit_test(a_grant_that_is_ending_is_not_renewed),
        cmocka_unit_test(a_renewal_whose_session_dies_meanwhile),
        cmocka_unit_test(a_doubt_whose_session_dies_as_it_is_settled),
        cmocka_unit_test(a_doubt_about_a_session_that_is_shared),
        cmocka_unit_test(one_that_has_ended_by_itself),
        cmocka_unit_test(without_a_thread_it_ends_with_the_handle),
        cmocka_unit_test(one_given_up_beside_a_deferred_cancel_is_ended),
        cmocka_unit_test(what_cannot_be_withdrawn_yet_is_tried_again),
        cmocka_unit_test(a_named_request_is_not_regretted),
        cmocka_unit_test(who_waits_is_told_that_its_session_is_gone),
        cmocka_unit_test(handed_it_asks_with_another_session),
        cmocka_unit_test(what_is_too_short_to_hold_with_is_kept_first),
        cmocka_unit_test(a_grant_with_what_is_over_is_no_hold),
        cmocka_unit_test(what_died_was_not_ours),
    };
    return TEST_MAIN(tests);
}
