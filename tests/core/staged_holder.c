/*
 * staged_holder.c - calls of a holder at rare moments: while its handle is closed, when no thread
 * can be started, with an argument that is refused.
 */
#include "staged_waiter.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

enum { SHOWS_US = 300000 }; /* a call that doesn't wait shows within this time */

static int asking, closed, closed_beside; /* atomic */

static int is(const int *flag) { return __atomic_load_n(flag, __ATOMIC_SEQ_CST); }
static void set(int *flag) { __atomic_store_n(flag, 1, __ATOMIC_SEQ_CST); }

static void *closes(void *arg)
{
    hf_close(h);
    set(&closed);
    return arg;
}

/* The store is being asked: does hf_close go on meanwhile? */
static void is_asked(void)
{
    set(&asking);
    for (int64_t until = hf__local_us() + SHOWS_US; !is(&closed) && hf__local_us() < until;)
        hf__pause(1000);
    if (is(&closed)) set(&closed_beside);
}

static int answer;

static void *confirms(void *arg)
{
    answer = hf_confirm(lock, NULL);
    return arg;
}

static void *enters(void *arg)
{
    answer = hf_enter(lock, NULL, NULL);
    return arg;
}

static void closing_awaits(void *(*call)(void *), enum stage_op op)
{
    pthread_t asks, ends;
    asking = closed = closed_beside = 0;
    begin(SERVER);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    stage_cue(op, 1, 1, INSTEAD, 0, is_asked);
    assert_int_equal(pthread_create(&asks, NULL, call, NULL), 0);
    while (!is(&asking)) hf__pause(1000);
    assert_int_equal(pthread_create(&ends, NULL, closes, NULL), 0);
    pthread_join(asks, NULL);
    pthread_join(ends, NULL);
    assert_false(is(&closed_beside));
    IS(HF_OK, answer);
    h = NULL;
    done();
}

static void closing_awaits_a_confirmation(void **state)
{
    (void)state;
    closing_awaits(confirms, S_GET);
}

static void closing_awaits_an_entry(void **state)
{
    (void)state;
    closing_awaits(enters, S_ENTER);
}

static void is_told(void *arg, hf_lock *l)
{
    (void)l;
    set(arg);
}

static void a_callback_without_a_thread_is_refused(void **state)
{
    int told = 0;
    (void)state;
    begin(LOCAL);
    OK(stage_acquire(h, "k", 0, 0, 0, &lock));
    stage_no_threads(1);
    IS(HF_NOMEM, hf_on_lost(lock, is_told, &told));
    stage_no_threads(0);
    OK(hf_on_lost(lock, is_told, &told));
    OK(hf_break(rival, "k", hf_token(lock), &stage_error));
    while (!is(&told)) hf__pause(1000);
    IS(HF_LOST, hf_release(lock, &stage_error));
    done();
}

/* A descriptor that nothing makes readable would be believed for ever. */
static void a_descriptor_without_a_thread_is_refused(void **state)
{
    (void)state;
    begin(LOCAL);
    OK(stage_acquire(h, "k", 0, 0, 0, &lock));
    stage_no_threads(1);
    assert_int_equal(hf_lost_fd(lock), -1);
    stage_no_threads(0);
    struct pollfd fd = {hf_lost_fd(lock), POLLIN, 0};
    assert_true(fd.fd > 2);
    OK(hf_break(rival, "k", hf_token(lock), &stage_error));
    assert_int_equal(poll(&fd, 1, 60000), 1);
    IS(HF_LOST, hf_release(lock, &stage_error));
    done();
}

static void never_told(void *arg, int code, hf_lock *l, const hf_error *err)
{
    (void)arg, (void)code, (void)l, (void)err;
    fail_msg("a wait that was not started ended");
}

/* A lease that no thread renews would end without notice. */
static void no_grant_without_its_renewer(void **state)
{
    hf_options o = HF_OPTIONS_INIT;
    hf_once once;
    hf_wait *wait;
    (void)state;
    begin(SERVER);
    o.wait_ms = 0;
    stage_no_threads(1);
    IS(HF_NOMEM, hf_acquire(h, "k", &o, &lock, &stage_error));
    IS(HF_NOMEM, hf_once_begin(h, "k", 1000, &o, &once, &stage_error));
    IS(HF_NOMEM, hf_acquire_start(h, "k", &o, never_told, NULL, &wait, &stage_error));
    assert_null(stage_row("k"));
    o.flags = HF_NO_RENEW;
    OK(hf_acquire(h, "k", &o, &lock, &stage_error));
    OK(hf_release(lock, &stage_error));
    stage_no_threads(0);
    o.flags = 0;
    OK(hf_acquire(h, "k", &o, &lock, &stage_error));
    OK(hf_release(lock, &stage_error));
    done();
}

/* No thread can drive the wait, and the store doesn't say whether it is withdrawn. */
static void a_wait_that_may_stand_is_unknown(void **state)
{
    hf_lock *held;
    (void)state;
    begin(SERVER);
    OK(stage_acquire(rival, "k", 0, 60000, 0, &held));
    OK(stage_acquire(h, "other", 0, 60000, 0, &lock)); /* the renewer runs */
    stage_no_threads(1);
    stage_cue(S_SWAP, 2, 1 << 20, INSTEAD, HF_UNAVAILABLE, NULL);
    IS(HF_UNKNOWN, stage_acquire(h, "k", -1, 60000, 0, &lock));
    stage_uncue();
    stage_no_threads(0);
    hf_close(h);
    h = NULL;
    OK(hf_release(held, &stage_error));
    done();
}

static void a_refused_finish_frees_the_lock(void **state)
{
    hf_options o = HF_OPTIONS_INIT;
    hf_once once, again;
    (void)state;
    begin(SERVER);
    o.wait_ms = 0;
    OK(hf_once_begin(h, "event", 60000, &o, &once, &stage_error));
    IS(HF_INVALID, hf_once_finish(once.lock, "done", 0, &stage_error));
    assert_non_null(strstr(stage_error.text, "not marked as done, and its lock is released"));
    assert_int_equal(stage_row("event")->n_holders, 0);
    OK(hf_once_begin(rival, "event", 60000, &o, &again, &stage_error));
    assert_non_null(again.lock);
    OK(hf_once_finish(again.lock, "done", 60000, &stage_error));
    done();
}

static void what_is_not_released_is_not_called_so(void **state)
{
    (void)state;
    begin(SERVER);
    OK(stage_acquire(h, "event", 0, 60000, 0, &lock));
    stage_cue(S_SWAP, 1, 1 << 30, INSTEAD, HF_UNAVAILABLE, NULL);
    IS(HF_INVALID, hf_once_finish(lock, "done", 0, &stage_error));
    assert_non_null(strstr(stage_error.text, "its lock may stay held until its lease ends"));
    stage_uncue();
    OK(stage_acquire(h, "other event", 0, 60000, 0, &lock));
    OK(hf_break(rival, "other event", hf_token(lock), &stage_error));
    IS(HF_INVALID, hf_once_finish(lock, "done", 0, &stage_error));
    assert_non_null(strstr(stage_error.text, "its lock was over before"));
    done();
}

/* Other holders may run the event at the same time. */
static void a_shared_hold_marks_nothing(void **state)
{
    hf_options o = HF_OPTIONS_INIT;
    (void)state;
    begin(SERVER);
    o.wait_ms = 0;
    o.mode = HF_SHARED;
    OK(hf_acquire(h, "event", &o, &lock, &stage_error));
    IS(HF_INVALID, hf_once_finish(lock, "done", HF_FOREVER, &stage_error));
    assert_non_null(strstr(stage_error.text, "the hold isn't exclusive"));
    assert_int_equal(stage_row("event")->n_holders, 0);
    assert_int_equal(stage_row("event")->done_us, 0);
    done();
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(closing_awaits_a_confirmation),
        cmocka_unit_test(closing_awaits_an_entry),
        cmocka_unit_test(a_callback_without_a_thread_is_refused),
        cmocka_unit_test(a_descriptor_without_a_thread_is_refused),
        cmocka_unit_test(no_grant_without_its_renewer),
        cmocka_unit_test(a_wait_that_may_stand_is_unknown),
        cmocka_unit_test(a_refused_finish_frees_the_lock),
        cmocka_unit_test(what_is_not_released_is_not_called_so),
        cmocka_unit_test(a_shared_hold_marks_nothing),
    };
    return TEST_MAIN(tests);
}
