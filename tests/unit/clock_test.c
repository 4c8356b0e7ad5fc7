/*
 * clock_test.c - the interval clock: its bounds on the store's clock are true, whatever the round
 * trips, the rates and the jumps.
 */
#include "clock.h"
#include "test.h"

#include <string.h>

enum { SECOND = 1000000 };

static struct hf_clock none(void)
{
    struct hf_clock k;
    memset(&k, 0, sizeof k);
    return k;
}

static void nothing_known_is_said_so(void **state)
{
    (void)state;
    struct hf_clock k = none();
    hf__clock_add(&k, 10, 20, 0, 1);
    struct hf_time t = hf__clock_at(&k, 1000);
    assert_int_equal(t.lo_us, 0);
    assert_true(t.hi_us == HF_CLOCK_UNKNOWN);
    assert_false(k.known);
}

static void a_sample_bounds_the_moment_of_its_reply(void **state)
{
    (void)state;
    struct hf_clock k = none();
    hf__clock_add(&k, 1000, 5000, 700000, 10);
    struct hf_time t = hf__clock_at(&k, 5000);
    /* The store's clock read 700000 at some moment between 1000 and 5000. */
    assert_int_equal(t.lo_us, 700000);
    assert_in_range(t.hi_us, 704010, 704010 + 20);
    t = hf__clock_at(&k, 5000 + SECOND);
    assert_in_range(t.lo_us, 700000 + SECOND - SECOND / 500 - 2, 700000 + SECOND - SECOND / 500);
    assert_in_range(t.hi_us, 704010 + SECOND + SECOND / 500, 704010 + SECOND + SECOND / 500 + 20);
}

static void samples_are_intersected(void **state)
{
    (void)state;
    struct hf_clock k = none();
    hf__clock_add(&k, 0, 100000, 1000000, 1);      /* slow request: wide */
    hf__clock_add(&k, 100000, 100100, 1050000, 1); /* fast: narrow */
    struct hf_time t = hf__clock_at(&k, 100100);
    assert_int_equal(t.lo_us, 1050000);
    assert_in_range(t.hi_us, 1050100, 1050110);
    /* A wide one afterwards takes nothing away. */
    hf__clock_add(&k, 100100, 200100, 1100000, 1);
    struct hf_time later = hf__clock_at(&k, 200100);
    assert_true(later.hi_us - later.lo_us < 1000);
    assert_int_equal(k.jumps, 0);
}

static void a_step_drops_what_was_known(void **state)
{
    (void)state;
    for (int sign = -1; sign <= 1; sign += 2) {
        struct hf_clock k = none();
        int64_t c = INT64_C(1) << 40;
        hf__clock_add(&k, 1000, 1100, c, 1);
        hf__clock_add(&k, 2000, 2100, c + 1000 + sign * 60 * SECOND, 1);
        assert_int_equal(k.jumps, 1);
        struct hf_time t = hf__clock_at(&k, 2100);
        assert_true(t.lo_us == c + 1000 + sign * 60 * SECOND);
        assert_true(t.hi_us - t.lo_us < 200);
    }
}

static void an_early_question_gets_the_sample(void **state)
{
    (void)state;
    struct hf_clock k = none();
    hf__clock_add(&k, 1000, 2000, 50000, 1);
    /* Threads read the local clock before they take the lock: it may lie before the reply. */
    struct hf_time t = hf__clock_at(&k, 1500);
    assert_true(t.lo_us <= 50500 && t.hi_us >= 50000);
    assert_true(hf__clock_at(&k, 500).lo_us <= 50000);
}

static uint64_t seed = 20261;
static int64_t draw(int64_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (int64_t)((seed >> 33) % (uint64_t)below);
}

/* A store whose clock runs up to 2,000 ppm faster or slower than ours: the interval always holds
 * it. */
static void the_truth_lies_within(void **state)
{
    (void)state;
    for (int round = 0; round < 200; round++) {
        struct hf_clock k = none();
        int64_t ppm = draw(4001) - 2000, local = 1000, origin = INT64_C(1700000000000000);
        for (int i = 0; i < 500; i++) {
            int64_t sent = local + draw(SECOND), answered = sent + draw(50000);
            int64_t received = answered + draw(50000);
            hf__clock_add(&k, sent, received, origin + answered + answered * ppm / 1000000, 1);
            local = received;
            for (int j = 0; j < 5; j++) {
                int64_t x = received + draw(30 * (int64_t)SECOND);
                int64_t truth = origin + x + x * ppm / 1000000;
                struct hf_time t = hf__clock_at(&k, x);
                assert_true(t.lo_us <= truth + 1 && t.hi_us >= truth - 1);
            }
        }
        assert_int_equal(k.jumps, 0);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_known_is_said_so),
        cmocka_unit_test(a_sample_bounds_the_moment_of_its_reply),
        cmocka_unit_test(samples_are_intersected),
        cmocka_unit_test(a_step_drops_what_was_known),
        cmocka_unit_test(an_early_question_gets_the_sample),
        cmocka_unit_test(the_truth_lies_within),
    };
    return TEST_MAIN(tests);
}
