/*
 * clock.c - see clock.h.
 */
#include "clock.h"

static int64_t drift(int64_t elapsed_us) { return elapsed_us * HF_CLOCK_RATE_PPM / 1000000 + 1; }

static int64_t lo_at(const struct hf_clock *k, int64_t x)
{
    int64_t d = x - k->lo_at_us;
    return d <= 0 ? k->lo_us : k->lo_us + d - drift(d);
}

static int64_t hi_at(const struct hf_clock *k, int64_t x)
{
    int64_t d = x - k->hi_at_us;
    return d <= 0 ? k->hi_us : k->hi_us + d + drift(d);
}

void hf__clock_add(struct hf_clock *k, int64_t sent_us, int64_t received_us, int64_t c_us,
                   int64_t resolution_us)
{
    if (c_us <= 0) return;
    struct hf_clock fresh = {1, c_us, received_us, c_us + resolution_us, sent_us, k->jumps};
    if (!k->known) {
        *k = fresh;
        return;
    }
    int64_t lo = lo_at(k, received_us), hi = hi_at(k, received_us);
    int64_t new_lo = lo_at(&fresh, received_us), new_hi = hi_at(&fresh, received_us);
    if (new_lo > hi || new_hi < lo) {
        *k = fresh;
        k->jumps++;
        return;
    }
    if (new_lo >= lo) {
        k->lo_us = fresh.lo_us;
        k->lo_at_us = fresh.lo_at_us;
    }
    if (new_hi <= hi) {
        k->hi_us = fresh.hi_us;
        k->hi_at_us = fresh.hi_at_us;
    }
}

struct hf_time hf__clock_at(const struct hf_clock *k, int64_t local_us)
{
    if (!k->known) return (struct hf_time){0, HF_CLOCK_UNKNOWN};
    return (struct hf_time){lo_at(k, local_us), hi_at(k, local_us)};
}
