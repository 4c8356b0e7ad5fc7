/*
 * renewal.h - how long an attempt to renew waits for its answer. Pure: no clock, no chance.
 *
 * A request that isn't answered may have hung, and so may the one that repeats it. The lease has to
 * last for several of them. The first attempt is made with two thirds of the lease left, and waits
 * for a sixth of the lease. Each later one waits for a sixth of what is left by then. So a
 * twentieth of the lease is still left after a dozen attempts.
 *
 * A store that always takes longer is waited for: three round trips, but no more than a third of
 * the lease.
 */
#ifndef HF_RENEWAL_H
#define HF_RENEWAL_H

#include <stdint.h>

enum hf_renewal_try {
    HF_RENEWAL_FIRST, /* the one before was answered */
    HF_RENEWAL_AGAIN, /* it wasn't */
    HF_RENEWAL_CALLED /* A third of the lease: for a caller that waits for the answer, and itself
                         decides whether to repeat the call. */
};

/* left_us: until the lease ends; round_trip_us: how long a request takes, 0 if that isn't known.
   Returns microseconds, at least 0. */
static inline int64_t hf__renewal_patience_us(enum hf_renewal_try nth, int64_t lease_us,
                                              int64_t left_us, int64_t round_trip_us)
{
    int64_t most = lease_us / 3, part = most;
    if (nth == HF_RENEWAL_FIRST) part = lease_us / 6;
    if (nth == HF_RENEWAL_AGAIN) part = left_us / 6;
    int64_t slow = round_trip_us < most / 3 ? 3 * round_trip_us : most;
    return part > slow ? part : slow;
}

#endif
