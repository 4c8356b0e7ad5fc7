/*
 * backoff_test.c - how long one of a crowd lets pass: enumerated.
 */
#include "test.h"

#include "backoff.h"

static const uint32_t dice[] = {0, 1, UINT32_MAX / 3, UINT32_MAX / 2, UINT32_MAX - 1, UINT32_MAX};
enum { N_DICE = sizeof dice / sizeof *dice };

/* Grows with the refusals and with the trip, has bounds, and goes down to nothing by chance. */
static void a_conflict(void **state)
{
    (void)state;
    static const int64_t trips[] = {-5, 0, 1, 200, 500, 80000, 230000, 5000000, INT64_MAX / 4};
    for (size_t t = 0; t < sizeof trips / sizeof *trips; t++)
        for (unsigned nth = 1; nth < 300; nth++)
            for (size_t d = 0; d < N_DICE; d++) {
                int64_t us = hf__backoff_conflict_us(nth, trips[t], dice[d]);
                assert_in_range(us, 0, 32000000);
                assert_true(us <= hf__backoff_conflict_us(nth + 1, trips[t], dice[d]));
                if (t) assert_true(us >= hf__backoff_conflict_us(nth, trips[t - 1], dice[d]));
                if (d) assert_true(us >= hf__backoff_conflict_us(nth, trips[t], dice[d - 1]));
            }
    assert_int_equal(hf__backoff_conflict_us(1, 500, 0), 0);
    assert_int_equal(hf__backoff_conflict_us(1, 500, UINT32_MAX), 999);
    assert_int_equal(hf__backoff_conflict_us(4, 500, UINT32_MAX), 7999);
    assert_int_equal(hf__backoff_conflict_us(255, 500, UINT32_MAX), 2047999);
}

static void no_room(void **state)
{
    (void)state;
    for (unsigned nth = 1; nth < 300; nth++)
        for (size_t d = 0; d < N_DICE; d++) {
            int64_t us = hf__backoff_full_us(nth, 250000, dice[d]);
            assert_in_range(us, 125000, 12000000);
            assert_true(us <= hf__backoff_full_us(nth + 1, 250000, dice[d]));
        }
    assert_int_equal(hf__backoff_full_us(1, 250000, 0), 125000);
    assert_int_equal(hf__backoff_full_us(255, 250000, 0), 4000000);
}

/* A longer wait gets more of the room, in the end all of it; a short queue isn't split. */
static void the_room(void **state)
{
    (void)state;
    for (uint32_t cap = 0; cap < 5000; cap++)
        for (unsigned nth = 0; nth < 20; nth++) {
            uint32_t room = hf__backoff_room(cap, nth);
            assert_in_range(room, cap - cap / 4, cap);
            assert_true(room <= hf__backoff_room(cap, nth + 1));
            if (cap < 64 || nth >= 6) assert_int_equal(room, cap);
        }
    assert_int_equal(hf__backoff_room(256, 0), 192);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_conflict), cmocka_unit_test(no_room), cmocka_unit_test(the_room)};
    return TEST_MAIN(tests);
}
