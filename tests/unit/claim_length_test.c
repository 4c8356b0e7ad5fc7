/*
 * claim_length_test.c - how long a grant waits for its claim: enumerated.
 */
#include "test.h"

#include "claim_length.h"

static void four_round_trips_within_bounds(void **state)
{
    (void)state;
    static const uint32_t leasts[] = {1, 1000, 3000, 60000};
    for (int l = 0; l < 4; l++)
        for (int64_t ms = 0; ms < 20000; ms++) {
            int64_t wanted = ms * 4 < 10000 ? ms * 4 : 10000;
            if (wanted < leasts[l]) wanted = leasts[l];
            assert_true(hf__claim_ms(leasts[l], ms * 1000) == wanted);
        }
    assert_int_equal(hf__claim_ms(1000, INT64_MAX), 10000);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(four_round_trips_within_bounds)};
    return TEST_MAIN(tests);
}
