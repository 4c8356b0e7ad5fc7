/*
 * renewal_test.c - how long an attempt to renew waits: enumerated.
 */
#include "test.h"

#include "renewal.h"

static const int64_t leases_us[] = {100000, 900000, 5000000, 15000000, 60000000, 86400000000};
static const int64_t trips_us[] = {0, 1, 200, 30000, 500000, 2000000, 600000000, INT64_MAX / 4};
enum {
    LEASES = sizeof leases_us / sizeof *leases_us,
    TRIPS = sizeof trips_us / sizeof *trips_us,
    PARTS = 240
};
static const enum hf_renewal_try tries[] = {HF_RENEWAL_FIRST, HF_RENEWAL_AGAIN, HF_RENEWAL_CALLED};

/* How long where a request takes no time: its part. */
static int64_t part(enum hf_renewal_try nth, int64_t lease_us, int64_t left_us)
{
    return hf__renewal_patience_us(nth, lease_us, left_us, 0);
}

static void a_part_of_the_lease(void **state)
{
    (void)state;
    for (int l = 0; l < LEASES; l++)
        for (int64_t i = -PARTS; i <= PARTS; i++) {
            int64_t lease = leases_us[l], left = lease / PARTS * i;
            assert_true(part(HF_RENEWAL_FIRST, lease, left) == lease / 6);
            assert_true(part(HF_RENEWAL_CALLED, lease, left) == lease / 3);
            assert_true(part(HF_RENEWAL_AGAIN, lease, left) == (left < 0 ? 0 : left / 6));
        }
}

/* Three round trips are waited for, and no more than a third of the lease. */
static void a_slow_store(void **state)
{
    (void)state;
    for (int l = 0; l < LEASES; l++)
        for (int64_t i = -PARTS; i <= PARTS; i++)
            for (int n = 0; n < 3; n++)
                for (int t = 0; t < TRIPS; t++) {
                    int64_t lease = leases_us[l], left = lease / PARTS * i, trip = trips_us[t];
                    int64_t least = trip * 3 < lease / 3 ? trip * 3 : lease / 3;
                    int64_t us = hf__renewal_patience_us(tries[n], lease, left, trip);
                    int64_t alone = part(tries[n], lease, left);
                    assert_true(us == (alone > least ? alone : least));
                }
}

/* Each attempt hangs until it is given up. A twentieth of a lease that is renewed in time is left
   after a dozen attempts. */
static void a_dozen_attempts(void **state)
{
    (void)state;
    for (int l = 0; l < LEASES; l++) {
        int64_t lease = leases_us[l], left = lease - lease / 3, trip = lease / 400;
        left -= hf__renewal_patience_us(HF_RENEWAL_FIRST, lease, left, trip);
        for (int n = 1; n < 12; n++)
            left -= hf__renewal_patience_us(HF_RENEWAL_AGAIN, lease, left, trip);
        assert_true(left > lease / 20);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_part_of_the_lease),
        cmocka_unit_test(a_slow_store),
        cmocka_unit_test(a_dozen_attempts),
    };
    return TEST_MAIN(tests);
}
