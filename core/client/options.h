/*
 * options.h - what callers may ask for, checked.
 */
#ifndef HF_OPTIONS_H
#define HF_OPTIONS_H

#include "holdfast.h"

extern const hf_options hf__default_options;

/* Returns 0, or HF_INVALID and what is wrong. */
int hf__check_options(hf *h, const hf_options *o, const char *key, hf_error *err);
/* The same of keep_ms, and of the options of an event (NULL: none). Returns 0 and for how long the
   event is marked as done, in microseconds. */
int hf__check_keep(const char *key, int64_t keep_ms, const hf_options *o, int64_t *ret_us,
                   hf_error *err);

#endif
