/*
 * staged_ask.c - when the expiry monitor asks a local store whether a grant is still there, and
 * when it doesn't. See staged.h.
 */
#include "deadline_list.h"
#include "lost.h"
#include "staged_pair.h"
#include "start_threads.h"

#include <poll.h>

/* Takes the handle's mutex when the monitor has nothing to do. */
static void lock_while_monitor_sleeps(void)
{
    pthread_mutex_lock(&h->mu);
    while (!h->monitor_sleeps || h->monitor_todo) {
        pthread_mutex_unlock(&h->mu);
        hf__pause(1000);
        pthread_mutex_lock(&h->mu);
    }
}

/* The lease is over, and a rival has the key. That is a loss by time: the store isn't asked,
   although it would be time for that, too. */
static void what_is_over_is_not_asked_about(void **state)
{
    (void)state;
    begin(LOCAL);
    OK(stage_acquire(h, "k", 0, 60000, HF_NO_RENEW, &lock));
    struct pollfd fd = {hf_lost_fd(lock), POLLIN, 0};
    lock_while_monitor_sleeps(); /* the monitor sees all of it at once, or nothing */
    stage_suspend(61000000);
    stage_step_clock(61000000);
    OK(stage_acquire(rival, "k", 0, 60000, HF_NO_RENEW, &other));
    lock->ask_at_us = 0;
    hf__set_deadline(lock);
    uint64_t asked = stage_calls(S_GET);
    hf__kick_monitor(h, 0);
    pthread_mutex_unlock(&h->mu);
    assert_int_equal(poll(&fd, 1, 60000), 1);
    assert_int_equal(stage_calls(S_GET), asked);
    pthread_mutex_lock(&h->mu);
    assert_int_equal(lock->lost_by, HF_BY_TIME);
    pthread_mutex_unlock(&h->mu);
    IS(HF_LOST, hf_release(lock, &stage_error));
    OK(hf_release(other, &stage_error));
    done();
}

static uint64_t asked_beside; /* how often the monitor asked while the lock was in use */

static void the_monitor_has_a_round(void)
{
    uint64_t asked = stage_calls(S_GET);
    pthread_mutex_lock(&h->mu);
    lock->ask_at_us = 0;
    hf__set_deadline(lock);
    h->monitor_until_us = INT64_MAX;
    hf__kick_monitor(h, 0);
    pthread_mutex_unlock(&h->mu);
    lock_while_monitor_sleeps();
    pthread_mutex_unlock(&h->mu);
    asked_beside = stage_calls(S_GET) - asked;
}

/* While a thread renews it the lock is that thread's alone. */
static void what_is_being_used_is_not_asked_about(void **state)
{
    (void)state;
    begin(LOCAL);
    OK(stage_acquire(h, "k", 0, 60000, HF_NO_RENEW, &lock));
    assert_true(hf_lost_fd(lock) >= 0);
    stage_cue(S_SWAP, 1, 1, INSTEAD, 0, the_monitor_has_a_round);
    asked_beside = UINT64_MAX;
    OK(hf_renew(lock, 0, &stage_error));
    assert_true(asked_beside == 0);
    OK(hf_release(lock, &stage_error));
    done();
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_over_is_not_asked_about),
        cmocka_unit_test(what_is_being_used_is_not_asked_about),
    };
    return TEST_MAIN(tests);
}
