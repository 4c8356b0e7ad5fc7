/*
 * staged_clock.c - a store whose clock moves in steps of a second: no holder believes for longer
 * than others take it for one; and one that answers when the lease is over.
 */
#include "os.h"
#include "staged_pair.h"

enum { TICK_US = 1000000, LEASE_MS = 10000, PHASES = 10 };

/* Begins with a store whose clock has ticked phase_us ago. *ret_ahead_us: how far it is ahead of
   ours. */
static void begin_in_phase(int64_t phase_us, int64_t *ret_ahead_us)
{
    begin(SERVER);
    stage_driver.caps.clock_resolution_us = TICK_US;
    hf_close(h);
    hf_close(rival);
    h = stage_open("a");
    rival = stage_open("rival");
    *ret_ahead_us = TICK_US + phase_us - hf__day_us() % TICK_US;
    stage_step_clock(*ret_ahead_us);
    stage_tick_clock(TICK_US);
}

static void nobody_believes_too_long(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++)
        for (int phase = 0; phase < PHASES; phase++) {
            int64_t ahead_us;
            begin_in_phase(phase * TICK_US / PHASES, &ahead_us);
            if (way) stage_driver.acquire = NULL; /* by get and replace */
            OK(stage_acquire(h, "k", 0, LEASE_MS, HF_NO_RENEW, &lock));
            int64_t end_us = stage_row("k")->party[0].expires_us;
            int64_t left_us = end_us - (hf__day_us() + ahead_us);
            int64_t believed_us = hf_left_ms(lock) * 1000;
            if (believed_us > left_us)
                fail_msg("phase %d: believed for %lld us of %lld", phase, (long long)believed_us,
                         (long long)left_us);
            OK(hf_release(lock, &stage_error));
            done();
        }
}

/* No other client takes the grant for over while its holder believes. A reply within the same tick
   doesn't look like a clock that was set. */
static void no_tick_is_a_step(void **state)
{
    (void)state;
    int64_t ahead_us;
    begin_in_phase(TICK_US / 2, &ahead_us);
    OK(stage_acquire(h, "k", 0, LEASE_MS, HF_NO_RENEW, &lock));
    for (int i = 0; i < 20; i++) {
        int64_t began = hf__local_us();
        IS(HF_BUSY, stage_acquire(rival, "k", 0, LEASE_MS, 0, &other));
        OK(hf_confirm(lock, &stage_error));
        while (hf__local_us() < began + 2000) hf__pause(500);
    }
    assert_int_equal(hf__port_clock_jumps(&h->port), 0);
    assert_int_equal(hf__port_clock_jumps(&rival->port), 0);
    OK(hf_release(lock, &stage_error));
    done();
}

/* A grant that is handed over can be claimed: it lasts for longer than the clock stands. */
static void a_claim_outlasts_a_tick(void **state)
{
    (void)state;
    int64_t ahead_us;
    begin_in_phase(0, &ahead_us);
    assert_true(h->party.claim_ms >= HF_CLAIM_MS + TICK_US / 1000);
    IS(HF_INVALID, stage_acquire(h, "k", 0, 2 * TICK_US / 1000, 0, &lock));
    assert_non_null(strstr(stage_error.text, "lease_ms: too short for this store's clock"));
    assert_non_null(strstr(stage_error.text, "at least 3000"));
    done();
}

/* A renewal by a lease that the clock can't carry would lose the lock at once. */
static void a_renewal_that_is_too_short(void **state)
{
    (void)state;
    int64_t ahead_us;
    begin_in_phase(0, &ahead_us);
    OK(stage_acquire(h, "k", 0, LEASE_MS, 0, &lock));
    IS(HF_INVALID, hf_renew(lock, 2 * TICK_US / 1000, &stage_error));
    assert_non_null(strstr(stage_error.text, "at least 3000"));
    OK(hf_renew(lock, 3 * TICK_US / 1000, &stage_error));
    assert_true(hf_left_ms(lock) > 0);
    OK(hf_release(lock, &stage_error));
    done();
}

/* A key is kept for at_least_ms, however long before the grant the clock moved last. */
static void at_least_outlasts_a_tick(void **state)
{
    (void)state;
    for (int phase = 0; phase < PHASES; phase++) {
        int64_t ahead_us;
        begin_in_phase(phase * TICK_US / PHASES, &ahead_us);
        hf_options o = HF_OPTIONS_INIT;
        o.at_least_ms = LEASE_MS;
        int64_t start_us = hf__day_us() + ahead_us;
        OK(hf_acquire(h, "k", &o, &lock, &stage_error));
        OK(hf_release(lock, &stage_error));
        int64_t kept_us = stage_row("k")->party[0].expires_us - start_us;
        if (kept_us < LEASE_MS * 1000)
            fail_msg("phase %d: kept for %lld us", phase, (long long)kept_us);
        done();
    }
}

/* ---- a store that is slower than the lease is long ---- */

static hf_driver in_time;
static int late; /* how many of the next writes are answered after the lease has run out */

static int answered(int rc)
{
    if (late-- > 0) stage_suspend(2 * LEASE_MS * 1000);
    return rc;
}

static int acquire_late(hf_store *st, const hf_rowkey *key, const hf_party *party,
                        uint32_t may_queue, hf_row *cur, int64_t *ret_clock_us, hf_error *err)
{
    return answered(in_time.acquire(st, key, party, may_queue, cur, ret_clock_us, err));
}

static int replace_late(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                        hf_row *cur, int64_t *ret_clock_us, hf_error *err)
{
    return answered(in_time.replace(st, key, seen, row, cur, ret_clock_us, err));
}

/* A try whose grant comes when it is over has not found the key held, nor lost it: the store is too
   slow for it. A wait asks again. */
static void a_grant_that_comes_too_late(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++) {
        begin(SERVER);
        in_time = stage_driver;
        stage_driver.acquire = way ? NULL : acquire_late;
        stage_driver.replace = replace_late;
        late = 2; /* a try may ask once more */
        IS(HF_UNAVAILABLE, stage_acquire(h, "k", 0, LEASE_MS, 0, &lock));
        assert_non_null(strstr(stage_error.text, "after the lease of 10000 ms was over"));
        late = 0;
        OK(stage_acquire(rival, "k", 0, LEASE_MS, 0, &other));
        OK(hf_release(other, &stage_error));
        late = 3;
        OK(stage_acquire(h, "k", 60 * LEASE_MS, LEASE_MS, 0, &lock));
        assert_true(late < 0);
        OK(hf_confirm(lock, &stage_error));
        late = 0;
        OK(hf_release(lock, &stage_error));
        done();
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_believes_too_long),
        cmocka_unit_test(no_tick_is_a_step),
        cmocka_unit_test(a_claim_outlasts_a_tick),
        cmocka_unit_test(at_least_outlasts_a_tick),
        cmocka_unit_test(a_renewal_that_is_too_short),
        cmocka_unit_test(a_grant_that_comes_too_late),
    };
    return TEST_MAIN(tests);
}
