/*
 * clock.h - the interval clock: what a store's clock can say at a local moment.
 *
 * A request is sent at local time s and answered at r, and the answer says c. At any local x >= r
 * the store's clock is between c + (x - r) and c + (x - s). HF_CLOCK_RATE_PPM widens both bounds,
 * as clocks run at different rates. A slow round trip widens the interval, and does no harm.
 * Samples are intersected; if they contradict each other the store's clock has stepped, and only
 * the new one is kept.
 */
#ifndef HF_CLOCK_H
#define HF_CLOCK_H

#include "step.h"

/* Two clocks whose rates are being corrected (slewed) differ by more than two quartzes do. */
#define HF_CLOCK_RATE_PPM 2000

struct hf_clock {
    int known;
    int64_t lo_us, lo_at_us; /* the store's clock was at least lo_us at local lo_at_us */
    int64_t hi_us, hi_at_us; /* and at most hi_us at local hi_at_us */
    uint64_t jumps;          /* contradictions seen */
};

/* Adds a sample; c <= 0 (no clock) is ignored. resolution_us: the clock's grain. */
void hf__clock_add(struct hf_clock *clock, int64_t sent_us, int64_t received_us, int64_t c_us,
                   int64_t resolution_us);
/* Returns the interval at local time x; [0, HF_CLOCK_UNKNOWN] if there is no sample. */
struct hf_time hf__clock_at(const struct hf_clock *clock, int64_t local_us);

#endif
