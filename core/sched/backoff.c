/*
 * backoff.c - see backoff.h.
 */
#include "backoff.h"

enum { LEAST_TRIP_US = 200, MOST_US = 32000000, DOUBLINGS = 12, FULL_DOUBLINGS = 5 };
enum { SMALL_QUEUE = 64, STEPS = FULL_DOUBLINGS + 1 };

static int64_t part(int64_t window_us, uint32_t dice)
{
    return (int64_t)((uint64_t)window_us * dice >> 32);
}

int64_t hf__backoff_conflict_us(unsigned nth, int64_t round_trip_us, uint32_t dice)
{
    int64_t window_us = round_trip_us < LEAST_TRIP_US ? LEAST_TRIP_US : round_trip_us;
    for (unsigned i = 0; i < nth && i < DOUBLINGS && window_us < MOST_US; i++) window_us *= 2;
    return part(window_us < MOST_US ? window_us : MOST_US, dice);
}

int64_t hf__backoff_full_us(unsigned nth, int64_t poll_us, uint32_t dice)
{
    int64_t window_us = poll_us;
    for (unsigned i = 1; i < nth && i <= FULL_DOUBLINGS; i++) window_us *= 2;
    /* At least half of the window: a moment ago there was no room. */
    return window_us / 2 + part(window_us, dice);
}

uint32_t hf__backoff_room(uint32_t cap, unsigned nth)
{
    if (cap < SMALL_QUEUE || nth >= STEPS) return cap;
    return cap - cap / 4 * (STEPS - nth) / STEPS;
}
