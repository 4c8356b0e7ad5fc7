/*
 * claim_length.h - the claim timeout: how long a handover waits for its claim. Pure: no clock, no
 * randomness.
 *
 * A waiter that learns of its grant may read the row, and writes its claim: one or two round trips,
 * which begin only when the waiter learns of it. So a waiter asks for a claim timeout of four round
 * trips, if that is longer than the usual one. A dead waiter blocks the queue for that time, so
 * there is a maximum.
 */
#ifndef HF_CLAIM_LENGTH_H
#define HF_CLAIM_LENGTH_H

#include <stdint.h>

enum { HF_CLAIM_TRIPS = 4, HF_CLAIM_MOST_MS = 10000 };

/* Returns the claim timeout in ms. least_ms: the usual one at this store; round_trip_us: how long a
   request takes, 0 if that isn't known. */
static inline uint32_t hf__claim_ms(uint32_t least_ms, int64_t round_trip_us)
{
    int64_t most_us = HF_CLAIM_MOST_MS * INT64_C(1000), us = most_us;
    if (round_trip_us < most_us / HF_CLAIM_TRIPS) us = round_trip_us * HF_CLAIM_TRIPS;
    uint32_t ms = (uint32_t)(us / 1000);
    return ms > least_ms ? ms : least_ms;
}

#endif
