/*
 * validity_test.c - is a grant in force? Every end against every reading of the clock.
 */
#include "validity.h"

#include "test.h"

#include <string.h>

enum { MOST = 12 };

/* Checks that the validity for an interval [lo, hi] is true at every moment in it. */
static void is_what_every_moment_says(void **state)
{
    (void)state;
    for (int64_t end = 1; end < MOST; end++)
        for (int64_t lo = 0; lo < MOST; lo++)
            for (int64_t hi = lo; hi < MOST; hi++) {
                int before = 0, after = 0;
                for (int64_t now = lo; now <= hi; now++) {
                    before += now < end;
                    after += now >= end;
                }
                enum hf_validity is = hf__validity_at(end, (struct hf_time){lo, hi});
                assert_int_equal(is == HF_GRANT_HELD, !after);
                assert_int_equal(is == HF_GRANT_OVER, !before);
                assert_int_equal(is == HF_GRANT_UNKNOWN, before && after);
            }
}

/* A holder and a contender may each read the clock as badly as they like: they never agree on more
   than one. */
static void a_holder_stops_before_another_may_begin(void **state)
{
    (void)state;
    for (int64_t end = 1; end < MOST; end++)
        for (int64_t now = 0; now < MOST; now++)
            for (int64_t lo = 0; lo <= now; lo++)
                for (int64_t hi = now; hi < MOST; hi++) {
                    int holds = hf__validity_at(end, (struct hf_time){0, hi}) == HF_GRANT_HELD;
                    int taken = hf__validity_at(end, (struct hf_time){lo, MOST}) == HF_GRANT_OVER;
                    assert_false(holds && taken);
                }
}

static enum hf_validity of(int64_t end, unsigned flags, int dead)
{
    hf_party p;
    memset(&p, 0, sizeof p);
    p.expires_us = end;
    p.flags = (uint8_t)flags;
    return hf__validity(&p, (struct hf_time){10, 20}, dead);
}

static void of_a_holder_in_a_row(void **state)
{
    (void)state;
    assert_int_equal(of(0, 0, 0), HF_GRANT_HELD); /* the grant doesn't end by time */
    assert_int_equal(of(21, 0, 0), HF_GRANT_HELD);
    assert_int_equal(of(20, 0, 0), HF_GRANT_UNKNOWN);
    assert_int_equal(of(11, 0, 0), HF_GRANT_UNKNOWN);
    assert_int_equal(of(10, 0, 0), HF_GRANT_OVER);
    assert_int_equal(of(21, 0, 1), HF_GRANT_OVER);
    assert_int_equal(of(0, 0, 1), HF_GRANT_OVER);
    /* Released, and still in the way until its time is certainly over. */
    assert_int_equal(of(21, HF_PARTY_ENDING, 0), HF_GRANT_ENDING);
    assert_int_equal(of(20, HF_PARTY_ENDING, 0), HF_GRANT_ENDING);
    assert_int_equal(of(0, HF_PARTY_ENDING, 0), HF_GRANT_ENDING);
    assert_int_equal(of(10, HF_PARTY_ENDING, 0), HF_GRANT_OVER);
    assert_int_equal(of(21, HF_PARTY_ENDING, 1), HF_GRANT_OVER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_what_every_moment_says),
        cmocka_unit_test(a_holder_stops_before_another_may_begin),
        cmocka_unit_test(of_a_holder_in_a_row),
    };
    return TEST_MAIN(tests);
}
