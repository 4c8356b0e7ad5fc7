/*
 * options.h - checks of what callers ask for.
 */
#ifndef HF_OPTIONS_H
#define HF_OPTIONS_H

#include "holdfast.h"

extern const hf_options hf__default_options;

enum { HF_LEASE_WHY = 96 };

/* Returns NULL, or why the store can't keep a lease of that length (constant text, or `to`). A
   lease of 0 is none. */
const char *hf__lease_wrong(const hf *h, int64_t lease_ms, char to[HF_LEASE_WHY]);
/* Returns 0, or HF_INVALID and what is wrong. */
int hf__check_options(hf *h, const hf_options *o, const char *key, hf_error *err);
/* Checks keep_ms, and the options of an event (NULL: none). Returns 0, and in *ret_us how long the
   event stays marked as done, in µs; or HF_INVALID. */
int hf__check_keep(const char *key, int64_t keep_ms, const hf_options *o, int64_t *ret_us,
                   hf_error *err);

#endif
