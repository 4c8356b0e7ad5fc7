/*
 * staged_adopted.c - renewing a grant that was made elsewhere, on a store that tells how long a
 * session lives in whole seconds, rounded down, as etcd does.
 *
 * What such a store says is the least that is left: only its answer to a renewal says whether the
 * grant is over.
 */
#include "deadline_list.h"
#include "staged_pair.h"
#include "start_threads.h"

#include <poll.h>

enum { LEASE_MS = 60000, OTHER_MS = 30000 };

static int (*real_left)(hf_store *st, uint64_t session, int64_t *ret_ms, hf_error *err);
static int (*real_keep)(hf_store *st, uint64_t session, int64_t until_us, int64_t *ret_ms,
                        hf_error *err);

static int left_in_seconds(hf_store *st, uint64_t session, int64_t *ret_ms, hf_error *err)
{
    int rc = real_left(st, session, ret_ms, err);
    if (!rc) *ret_ms -= *ret_ms % 1000;
    return rc;
}

/* Adopts a grant of which left_ms is left. The store says whole seconds. */
static hf_lock *adopt_with(int64_t left_ms, unsigned flags)
{
    hf_lock *mine;
    begin(LEASES);
    real_left = stage_sessions.left;
    real_keep = stage_sessions.keep;
    stage_sessions.left = left_in_seconds;
    OK(stage_acquire(rival, "k", 0, LEASE_MS, flags, &other));
    stage_suspend((LEASE_MS - left_ms) * 1000);
    OK(hf_adopt(h, "k", hf_token(other), &mine, &stage_error));
    return mine;
}

static void renewed_in_its_last_second(void **state)
{
    (void)state;
    const unsigned flags[] = {HF_DETACHED, HF_NO_RENEW};
    const int64_t lease_ms[] = {0, LEASE_MS, OTHER_MS};
    for (size_t i = 0; i < 6; i++) {
        hf_lock *mine = adopt_with(800, flags[i % 2]);
        /* the certain part; nearly a second more may be left */
        assert_int_equal(hf_left_ms(mine), 0);
        OK(hf_confirm(mine, &stage_error));
        OK(hf_renew(mine, lease_ms[i / 2], &stage_error));
        assert_true(hf_left_ms(mine) > OTHER_MS / 2);
        OK(hf_confirm(mine, &stage_error));
        OK(hf_release(mine, &stage_error));
        done();
    }
}

static void released_in_its_last_second(void **state)
{
    (void)state;
    hf_lock *mine = adopt_with(800, HF_DETACHED);
    OK(hf_release(mine, &stage_error));
    assert_int_equal(stage_row("k")->n_holders, 0);
    done();
}

static void over_at_the_store(void **state)
{
    (void)state;
    hf_lock *mine = adopt_with(800, HF_DETACHED);
    stage_suspend(900000);
    IS(HF_LOST, hf_renew(mine, 0, &stage_error));
    IS(HF_LOST, hf_release(mine, &stage_error));
    done();
}

/* Done at once, answered three seconds later; meanwhile the expiry monitor looks. */
static int keep_slowly(hf_store *st, uint64_t session, int64_t until_us, int64_t *ret_ms,
                       hf_error *err)
{
    int looks = 0, rc = real_keep(st, session, until_us, ret_ms, err);
    stage_suspend(3000000);
    pthread_mutex_lock(&h->mu);
    h->monitor_until_us = INT64_MAX;
    hf__kick_monitor(h, 0);
    while (!looks) {
        pthread_mutex_unlock(&h->mu);
        hf__pause(1000);
        pthread_mutex_lock(&h->mu);
        looks = h->monitor_sleeps && !h->monitor_todo;
    }
    pthread_mutex_unlock(&h->mu);
    return rc;
}

static void a_renewal_under_way_decides(void **state)
{
    (void)state;
    hf_lock *mine = adopt_with(2900, HF_DETACHED);
    assert_true(hf_lost_fd(mine) >= 0); /* this call starts the expiry monitor */
    stage_suspend(800000);
    stage_sessions.keep = keep_slowly;
    OK(hf_renew(mine, 0, &stage_error));
    assert_true(hf_left_ms(mine) > OTHER_MS);
    OK(hf_release(mine, &stage_error));
    done();
}

/* The answer is older than the lease that it reports. */
static int answer_late(hf_store *st, uint64_t session, int64_t until_us, int64_t *ret_ms,
                       hf_error *err)
{
    int rc = real_keep(st, session, until_us, ret_ms, err);
    stage_suspend((LEASE_MS + 1000) * INT64_C(1000));
    return rc;
}

static void an_answer_that_is_too_old(void **state)
{
    (void)state;
    hf_lock *mine = adopt_with(800, HF_DETACHED);
    stage_sessions.keep = answer_late;
    IS(HF_UNAVAILABLE, hf_renew(mine, 0, &stage_error));
    assert_int_equal(hf_left_ms(mine), 0);
    IS(HF_LOST, hf_release(mine, &stage_error));
    done();
}

/* What the store says of its session may be less than what is left, by up to a second. Only after
   that it is lost. */
static void lost_a_second_later(void **state)
{
    (void)state;
    hf_lock *mine = adopt_with(20900, HF_DETACHED);
    int fd = hf_lost_fd(mine);
    assert_true(fd >= 0);
    pthread_mutex_lock(&h->mu);
    int64_t until_us = mine->session->until_us;
    assert_true(hf__watch_at(mine, hf__local_us()) == until_us + 1000000);
    mine->busy = 1; /* as if it were being renewed: then the answer decides */
    assert_true(hf__watch_at(mine, hf__local_us()) == INT64_MAX);
    mine->busy = 0;
    pthread_mutex_unlock(&h->mu);
    stage_suspend(until_us + 1000000 - hf__local_us());
    pthread_mutex_lock(&h->mu);
    h->monitor_until_us = INT64_MAX;
    hf__kick_monitor(h, 0);
    pthread_mutex_unlock(&h->mu);
    struct pollfd is = {fd, POLLIN, 0};
    assert_int_equal(poll(&is, 1, 60000), 1);
    IS(HF_LOST, hf_release(mine, &stage_error));
    done();
}

/* Its holder has renewed it for longer than its lease: it is kept for that long, and says so. */
static void kept_for_longer_than_its_lease(void **state)
{
    (void)state;
    hf_lock *mine;
    begin(LEASES);
    OK(stage_acquire(rival, "k", 0, LEASE_MS, HF_DETACHED, &other));
    OK(hf_renew(other, 10 * LEASE_MS, &stage_error));
    OK(hf_adopt(h, "k", hf_token(other), &mine, &stage_error));
    OK(hf_renew(mine, LEASE_MS, &stage_error));
    assert_true(hf_left_ms(mine) > 9 * LEASE_MS);
    OK(hf_release(mine, &stage_error));
    done();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(renewed_in_its_last_second),
        cmocka_unit_test(released_in_its_last_second),
        cmocka_unit_test(over_at_the_store),
        cmocka_unit_test(a_renewal_under_way_decides),
        cmocka_unit_test(an_answer_that_is_too_old),
        cmocka_unit_test(lost_a_second_later),
        cmocka_unit_test(kept_for_longer_than_its_lease),
    };
    return TEST_MAIN(tests);
}
