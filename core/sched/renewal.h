/*
 * renewal.h - how long an attempt to renew waits for its answer. Pure: no clock, no randomness.
 *
 * A renewal without an answer may hang, and so may its repetition: the lease has to last for
 * several attempts. The first attempt is made with two thirds of the lease left, and waits for a
 * sixth of the lease. Each later attempt waits for a sixth of what is left by then. So a twentieth
 * of the lease is still left after a dozen attempts.
 *
 * If the store is slower than that, an attempt waits for three round trips instead, but for no more
 * than a third of the lease.
 */
#ifndef HF_RENEWAL_H
#define HF_RENEWAL_H

#include <stdint.h>

enum hf_renewal_try {
    HF_RENEWAL_FIRST, /* the attempt before it was answered */
    HF_RENEWAL_AGAIN, /* the attempt before it wasn't */
    HF_RENEWAL_CALLED /* a call of the program, which waits for the answer and itself decides
                         whether to repeat the call: a third of the lease */
};

/* Returns for how long the attempt waits, in µs. left_us: the time until the lease ends;
   round_trip_us: how long a request takes, 0 if that isn't known. */
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
