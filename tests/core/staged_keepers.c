/*
 * staged_keepers.c - sessions that end unless they are kept: a request that hangs delays no other
 * session, and is given up in time for others. See staged.h.
 */
#include "staged_pair.h"

enum { LONG_US = 40000000, LEASE_MS = 3000 };

static int alone; /* atomic */

/* The first attempt hangs until there is another one. */
static void waits_for_another(void)
{
    int64_t until = hf__local_us() + LONG_US;
    while (stage_calls(S_KEEP) < 2 && hf__local_us() < until) hf__pause(1000);
    __atomic_store_n(&alone, stage_calls(S_KEEP) < 2, __ATOMIC_SEQ_CST);
}

static void one_that_hangs_delays_no_other(void **state)
{
    (void)state;
    begin(LEASES);
    stage_cue(S_KEEP, 1, 1, INSTEAD, 0, waits_for_another);
    OK(stage_acquire(h, "a", 0, LEASE_MS, 0, &lock));
    OK(stage_acquire(h, "b", 0, LEASE_MS + 1000, 0, &other));
    stage_await(S_KEEP, 2);
    assert_false(__atomic_load_n(&alone, __ATOMIC_SEQ_CST));
    hf_release(lock, NULL); /* perhaps it is over: the machine may be busy */
    hf_release(other, NULL);
    done();
}

/* ---- how long an attempt may take ---- */

enum { ATTEMPTS = 3 };
static int attempts; /* atomic */
static struct {
    int64_t at_us, until_us, back_us; /* local: when it came, how long it may take; when it ended */
} attempt[ATTEMPTS];
static int (*keep)(hf_store *st, uint64_t session, int64_t until_us, int64_t *ret_ms,
                   hf_error *err);

static int keeps_in_vain_at_first(hf_store *st, uint64_t session, int64_t until_us, int64_t *ret_ms,
                                  hf_error *err)
{
    int n = __atomic_load_n(&attempts, __ATOMIC_SEQ_CST);
    if (n == ATTEMPTS) return keep(st, session, until_us, ret_ms, err);
    attempt[n].at_us = hf__local_us();
    attempt[n].until_us = until_us;
    attempt[n].back_us = hf__local_us();
    __atomic_fetch_add(&attempts, 1, __ATOMIC_SEQ_CST);
    if (n < ATTEMPTS - 1) return hf_fail(err, HF_UNAVAILABLE, 0, "staged: no answer");
    return keep(st, session, until_us, ret_ms, err);
}

/* Begins with a limit of that length for the requests of `h`. */
static void begin_to_keep(void)
{
    begin(LEASES);
    h->port.io_timeout_ms = LEASE_MS;
    keep = stage_sessions.keep;
    stage_sessions.keep = keeps_in_vain_at_first;
    memset(attempt, 0, sizeof attempt);
    __atomic_store_n(&attempts, 0, __ATOMIC_SEQ_CST);
}

/* The first attempt takes a sixth of the lease at most, each later one a sixth of what is left. */
static void an_attempt_takes_a_sixth_of_it(void **state)
{
    (void)state;
    begin_to_keep();
    OK(stage_acquire(h, "a", 0, LEASE_MS, 0, &lock));
    pthread_mutex_lock(&h->mu);
    int64_t ends_us = lock->session->until_us;
    pthread_mutex_unlock(&h->mu);
    while (__atomic_load_n(&attempts, __ATOMIC_SEQ_CST) < ATTEMPTS) hf__pause(1000);
    assert_true(attempt[0].until_us - attempt[0].at_us <= LEASE_MS * 1000 / 6);
    for (int i = 1; i < ATTEMPTS; i++) {
        int64_t most_us = (ends_us - attempt[i - 1].back_us) / 6;
        assert_in_range(attempt[i].until_us - attempt[i].at_us, 0, most_us);
        assert_true(attempt[i].until_us > attempt[i - 1].back_us);
    }
    hf_release(lock, NULL);
    done();
}

/* A keepalive that a caller asks for takes a third. */
static void a_callers_attempt_takes_a_third_of_it(void **state)
{
    (void)state;
    begin_to_keep();
    OK(stage_acquire(h, "a", 0, LEASE_MS, HF_NO_RENEW, &lock));
    int64_t begun_us = hf__local_us();
    __atomic_store_n(&attempts, ATTEMPTS - 1, __ATOMIC_SEQ_CST);
    OK(hf_renew(lock, 0, &stage_error));
    assert_true(attempt[ATTEMPTS - 1].until_us - begun_us >= LEASE_MS * 1000 / 3);
    hf_release(lock, NULL);
    done();
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_hangs_delays_no_other),
        cmocka_unit_test(an_attempt_takes_a_sixth_of_it),
        cmocka_unit_test(a_callers_attempt_takes_a_third_of_it),
    };
    return TEST_MAIN(tests);
}
