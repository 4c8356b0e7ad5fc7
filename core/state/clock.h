/*
 * clock.h - the interval clock: between which bounds a store's clock is at a local moment.
 *
 * A sample: a request is sent at local time s and answered at r, and the answer says that the
 * store's clock is c. At any local x >= r the store's clock is between c + (x - r) and c + (x - s).
 * HF_CLOCK_RATE_PPM widens both bounds, because clocks run at different rates. A slow round trip
 * widens the interval, and does no other harm. A new sample is intersected with the interval so
 * far. If they don't overlap, the store's clock has been set, and only the new sample counts.
 */
#ifndef HF_CLOCK_H
#define HF_CLOCK_H

#include "step.h"

/* By how many millionths the rates of the two clocks may differ. Two quartzes differ by less;
   clocks that are being corrected (slewed) may differ by more than quartzes do. */
#define HF_CLOCK_RATE_PPM 2000

struct hf_clock {
    int known;
    int64_t lo_us, lo_at_us; /* the store's clock was at least lo_us at local lo_at_us */
    int64_t hi_us, hi_at_us; /* and at most hi_us at local hi_at_us */
    uint64_t jumps;          /* how many samples didn't overlap with the interval */
};

/* Adds a sample; c_us <= 0 (no clock) is ignored. resolution_us: how much later than c_us the
   store's clock may have been. */
void hf__clock_add(struct hf_clock *clock, int64_t sent_us, int64_t received_us, int64_t c_us,
                   int64_t resolution_us);
/* Returns the interval at local_us; [0, HF_CLOCK_UNKNOWN] if there is no sample. */
struct hf_time hf__clock_at(const struct hf_clock *clock, int64_t local_us);

#endif
