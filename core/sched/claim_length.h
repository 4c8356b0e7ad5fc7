/*
 * claim_length.h - how long a grant that is handed over waits for its claim. Pure: no clock, no
 * chance.
 *
 * A waiter that learns of its grant reads the row, or not, and writes its claim: that takes a round
 * trip or two, and begins late. So it asks for four round trips, if they are longer than what is
 * usual. A waiter that is dead costs the queue that time; so there is a bound.
 */
#ifndef HF_CLAIM_LENGTH_H
#define HF_CLAIM_LENGTH_H

#include <stdint.h>

enum { HF_CLAIM_TRIPS = 4, HF_CLAIM_MOST_MS = 10000 };

/* least_ms: what is usual at this store; round_trip_us: how long a request takes, 0 if that isn't
   known. */
static inline uint32_t hf__claim_ms(uint32_t least_ms, int64_t round_trip_us)
{
    int64_t most_us = HF_CLAIM_MOST_MS * INT64_C(1000), us = most_us;
    if (round_trip_us < most_us / HF_CLAIM_TRIPS) us = round_trip_us * HF_CLAIM_TRIPS;
    uint32_t ms = (uint32_t)(us / 1000);
    return ms > least_ms ? ms : least_ms;
}

#endif
