/*
 * staged_corrupt.c - a held lock whose row, or store, is found damaged or replaced (HF_CORRUPT) is
 * lost, not at the end of its lease: what stands there now may grant the key to others. It is found
 * by a renewal that is answered so twice, alone or with others, and by hf_confirm at once.
 */
#include "renewal_queue.h"
#include "staged_pair.h"

#include <poll.h>

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

static void renew_now(void)
{
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
    return 0;
}

static void by_a_renewal(void **state)
{
    (void)state;
    static const unsigned kinds[] = {SERVER, LEASES};
    for (size_t i = 0; i < 2; i++) {
        begin(kinds[i]);
        OK(stage_acquire(h, "k", 0, 600000, 0, &lock));
        stage_cue(S_GET, 1, 1 << 30, INSTEAD, HF_CORRUPT, NULL);
        stage_cue(S_SWAP, 1, 1 << 30, INSTEAD, HF_CORRUPT, NULL);
        renew_now();
        is_lost_as_damaged(lock);
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
        stage_cue(S_GET, 1, 1 << 30, INSTEAD, HF_CORRUPT, NULL);
        stage_cue(S_SWAP, 1, 1 << 30, INSTEAD, HF_CORRUPT, NULL);
        IS(HF_CORRUPT, hf_renew(lock, 0, &stage_error));
        assert_true(hf_left_ms(lock) > 0);
        stage_uncue();
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
    done();
}

static void by_its_holder(void **state)
{
    (void)state;
    for (int confirms = 0; confirms < 4; confirms++) {
        hf_error *err = confirms & 2 ? NULL : &stage_error;
        begin(SERVER);
        OK(stage_acquire(h, "k", 0, 600000, HF_NO_RENEW, &lock));
        stage_cue(S_GET, 1, 1 << 30, INSTEAD, HF_CORRUPT, NULL);
        stage_cue(S_SWAP, 1, 1 << 30, INSTEAD, HF_CORRUPT, NULL);
        for (int i = 0; i < (confirms & 1 ? 1 : 2); i++)
            IS(HF_CORRUPT, confirms & 1 ? hf_confirm(lock, err) : hf_renew(lock, 0, err));
        is_lost_as_damaged(lock);
        done();
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_a_renewal),
        cmocka_unit_test(by_a_renewal_after_one_that_failed),
        cmocka_unit_test(one_answer_is_no_loss_of_the_next_lock),
        cmocka_unit_test(by_a_renewal_with_others),
        cmocka_unit_test(by_its_holder),
    };
    return TEST_MAIN(tests);
}
