/*
 * options.c - checks hf_options, and how long a marker is kept. See options.h.
 */
#include "options.h"

#include "handle.h"
#include "key.h"

#include <stdio.h>
#include <string.h>

const hf_options hf__default_options = HF_OPTIONS_INIT;

enum { ALL_FLAGS = HF_DETACHED | HF_UNQUEUED | HF_ALLOW_RECURSIVE | HF_AT_MOST_ONCE | HF_NO_RENEW };

const char *hf__lease_wrong(const hf *h, int64_t lease_ms, char to[HF_LEASE_WHY])
{
    int64_t least_ms = (3 * h->port.caps.clock_resolution_us + 999) / 1000;
    if (!lease_ms) return NULL;
    if (lease_ms < 100 || lease_ms > 86400000) return "lease_ms: must be 100 to 86,400,000";
    if (lease_ms >= least_ms) return NULL;
    snprintf(to, HF_LEASE_WHY, "lease_ms: too short for this store's clock: must be at least %lld",
             (long long)least_ms);
    return to;
}

int hf__check_options(hf *h, const hf_options *o, const char *key, hf_error *err)
{
    char text[HF_LEASE_WHY];
    const char *why = NULL;
    if (o->size < sizeof *o)
        why = "options: not initialized";
    else if (o->wait_ms < HF_FOREVER || o->wait_ms > INT64_C(31536000000))
        why = "wait_ms: must be -1 (for ever) or 0 to a year";
    else if ((why = hf__lease_wrong(h, o->lease_ms, text)))
        ;
    else if (o->max_hold_ms < 0 || o->max_hold_ms > INT64_C(31536000000))
        why = "max_hold_ms: must be 0 to a year";
    else if (o->at_least_ms < 0 || o->at_least_ms > 86400000)
        why = "at_least_ms: must be 0 to 86,400,000";
    else if (o->max_hold_ms && o->at_least_ms > o->max_hold_ms)
        why = "at_least_ms: must not be above max_hold_ms";
    else if (o->mode != HF_EXCLUSIVE && o->mode != HF_SHARED && o->mode != HF_LIMITED)
        why = "mode: unknown";
    else if (o->mode == HF_LIMITED && (o->limit < 1 || o->limit > 1000))
        why = "limit: must be 1 to 1,000";
    else if ((why = hf__owner_wrong(o->owner)))
        ;
    else if (o->note && strlen(o->note) >= HF_NOTE_CAP)
        why = "note: longer than 255 bytes";
    else if (o->flags & ~(unsigned)ALL_FLAGS)
        why = "flags: unknown";
    else if (o->flags & HF_DETACHED && !o->lease_ms)
        why = "a detached grant needs lease_ms";
    else if (o->mode == HF_LIMITED && o->limit > h->port.caps.holders_cap)
        why = "limit: more than this store can hold";
    return why ? hf_fail(err, HF_INVALID, 0, "acquire '%.100s': %s", key ? key : "", why) : 0;
}

int hf__check_keep(const char *key, int64_t keep_ms, const hf_options *o, int64_t *ret_us,
                   hf_error *err)
{
    if (o && o->size >= sizeof *o && o->mode != HF_EXCLUSIVE)
        return hf_fail(err, HF_INVALID, 0, "once '%.100s': mode: must be exclusive", key);
    if (keep_ms != HF_FOREVER && (keep_ms < 1 || keep_ms > INT64_C(3153600000000)))
        return hf_fail(err, HF_INVALID, 0,
                       "once '%.100s': keep_ms: must be -1 or 1 ms to 100 years", key);
    *ret_us = keep_ms == HF_FOREVER ? INT64_MAX : keep_ms * 1000;
    return 0;
}
