/*
 * staged_corrupt.c - a held lock whose row, or store, is found damaged or replaced (HF_CORRUPT) is
 * lost, not at the end of its lease: what stands there now may grant the key to others. It is found
 * by a renewal that is answered so twice with a pause in between, alone or with others, and by
 * hf_confirm at once.
 */
#include "os.h"
#include "renewal_queue.h"
#include "staged_pair.h"

#include <poll.h>

/* The pause between the two answers: a twelfth of these tests' leases would be longer. */
enum { PAUSE_US = 500000 };

/* When the renewer was answered so first, and last. */
static int64_t first_us, last_us;

static void note_time(void)
{
    last_us = hf__local_us();
    if (!first_us) first_us = last_us;
}

/* Asserts that the holder is told, and why; then gives the lock back. */
static void is_lost_as_damaged(hf_lock *l)
{
    struct pollfd fd = {hf_lost_fd(l), POLLIN, 0};
    assert_int_equal(poll(&fd, 1, 60000), 1);
    IS(HF_CORRUPT, hf_lost_reason(l, &stage_error));
    if (strstr(stage_error.text, "ran out") || strstr(stage_error.text, "permission"))
        fail_msg("%s", stage_error.text);
    assert_true(hf_left_ms(l) <= 0);
    stage_uncue();
    IS(HF_LOST, hf_renew(l, 0, &stage_error));
    hf_release(l, NULL);
}

/* Asserts that between two answers there was time in which a damage may end. */
static void paused(void) { assert_true(last_us - first_us >= PAUSE_US); }

/* Makes the first answer as old as if the pause had passed since. */
static void pause_passes(void)
{
    pthread_mutex_lock(&h->mu);
    if (lock->corrupt_us) lock->corrupt_us -= PAUSE_US;
    pthread_mutex_unlock(&h->mu);
}

static void answer_all(int code, void (*first)(void))
{
    stage_uncue();
    stage_cue(S_GET, 1, 1 << 30, INSTEAD, code, first);
    stage_cue(S_SWAP, 1, 1 << 30, INSTEAD, code, first);
}

/* Renews by hand; the store answers with `code`. */
static void is_answered(int code)
{
    if (code == HF_UNKNOWN) /* of a write; a read has no such result */
        stage_cue(S_SWAP, 1, 1 << 30, INSTEAD, code, NULL);
    else if (code)
        answer_all(code, NULL);
    IS(code, hf_renew(lock, 0, &stage_error));
    stage_uncue();
}

static void renew_now(void)
{
    first_us = 0;
    pthread_mutex_lock(&h->mu);
    hf__renew_at(lock, 0);
    pthread_cond_signal(&h->renewer_cond);
    pthread_mutex_unlock(&h->mu);
}

static int replace_many_is_corrupt(hf_store *st, hf_replace *item, size_t n, int64_t until_us)
{
    (void)st, (void)until_us;
    for (size_t i = 0; i < n; i++)
        item[i].result = hf_fail(item[i].err, HF_CORRUPT, 0, "staged: the store is damaged");
    if (n) note_time();
    return 0;
}

static void by_a_renewal(void **state)
{
    (void)state;
    static const unsigned kinds[] = {SERVER, LEASES};
    for (size_t i = 0; i < 2; i++) {
        begin(kinds[i]);
        OK(stage_acquire(h, "k", 0, 600000, 0, &lock));
        answer_all(HF_CORRUPT, note_time);
        renew_now();
        is_lost_as_damaged(lock);
        paused();
        done();
    }
}

/* An earlier failure of the store isn't told as the reason. */
static void by_a_renewal_after_one_that_failed(void **state)
{
    (void)state;
    begin(SERVER);
    OK(stage_acquire(h, "k", 0, 600000, 0, &lock));
    stage_cue(S_SWAP, 1, 1, INSTEAD, HF_DENIED, NULL);
    stage_cue(S_SWAP, 2, 1 << 30, INSTEAD, HF_CORRUPT, NULL);
    renew_now();
    is_lost_as_damaged(lock);
    done();
}

/* The memory of a lock is used again; what its renewals were answered is not the next lock's. */
static void one_answer_is_no_loss_of_the_next_lock(void **state)
{
    (void)state;
    begin(SERVER);
    for (int i = 0; i < 2; i++) {
        OK(stage_acquire(h, "k", 0, 600000, 0, &lock));
        is_answered(HF_CORRUPT);
        assert_true(hf_left_ms(lock) > 0);
        pause_passes();
        OK(hf_release(lock, &stage_error));
    }
    done();
}

static void by_a_renewal_with_others(void **state)
{
    (void)state;
    stage(SERVER);
    stage_driver.replace_many = replace_many_is_corrupt;
    h = stage_open("a");
    rival = stage_open("rival");
    OK(stage_acquire(h, "k", 0, 600000, 0, &lock));
    renew_now();
    is_lost_as_damaged(lock);
    paused();
    done();
}

static void by_its_holder(void **state)
{
    (void)state;
    for (int confirms = 0; confirms < 4; confirms++) {
        hf_error *err = confirms & 2 ? NULL : &stage_error;
        begin(SERVER);
        OK(stage_acquire(h, "k", 0, 600000, HF_NO_RENEW, &lock));
        answer_all(HF_CORRUPT, NULL);
        for (int i = 0; i < (confirms & 1 ? 1 : 3); i++) {
            if (i == 2) pause_passes();
            assert_true(hf_left_ms(lock) > 0);
            IS(HF_CORRUPT, confirms & 1 ? hf_confirm(lock, err) : hf_renew(lock, 0, err));
        }
        is_lost_as_damaged(lock);
        done();
    }
}

/* Such an answer doesn't count as the first one, and doesn't take it back. */
static void an_answer_without_the_row_changes_nothing(void **state)
{
    (void)state;
    static const int codes[] = {HF_UNAVAILABLE, HF_UNKNOWN, HF_DENIED};
    for (size_t i = 0; i < 3; i++) {
        begin(SERVER);
        h->port.io_timeout_ms = 20; /* how long an UNKNOWN is asked about */
        OK(stage_acquire(h, "k", 0, 600000, HF_NO_RENEW, &lock));
        is_answered(codes[i]);
        pause_passes();
        is_answered(HF_CORRUPT);
        pause_passes();
        is_answered(codes[i]);
        assert_true(hf_left_ms(lock) > 0);
        is_answered(HF_CORRUPT);
        is_lost_as_damaged(lock);
        done();
    }
}

static void an_answer_with_the_row_takes_the_first_one_back(void **state)
{
    (void)state;
    begin(SERVER);
    OK(stage_acquire(h, "k", 0, 600000, HF_NO_RENEW, &lock));
    for (int i = 0; i < 3; i++) {
        is_answered(HF_CORRUPT);
        assert_true(hf_left_ms(lock) > 0);
        pause_passes();
        if (i)
            is_answered(0);
        else
            OK(hf_confirm(lock, &stage_error));
    }
    OK(hf_release(lock, &stage_error));
    done();
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_a_renewal),
        cmocka_unit_test(by_a_renewal_after_one_that_failed),
        cmocka_unit_test(one_answer_is_no_loss_of_the_next_lock),
        cmocka_unit_test(by_a_renewal_with_others),
        cmocka_unit_test(by_its_holder),
        cmocka_unit_test(an_answer_without_the_row_changes_nothing),
        cmocka_unit_test(an_answer_with_the_row_takes_the_first_one_back),
    };
    return TEST_MAIN(tests);
}
