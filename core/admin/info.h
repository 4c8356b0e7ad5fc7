/*
 * info.h - a row as people see it.
 */
#ifndef HF_INFO_H
#define HF_INFO_H

#include "clock.h"
#include "holdfast_driver.h"

/* Returns 1 if this party's hold or wait is over: by its lease, or because its session has died. */
int hf__party_ended(hf *h, const hf_party *p, struct hf_time now);
/* Shows a row. Returns 1 if `see` has enough, 0 if it goes on, or a negative code. */
int hf__show_info(hf *h, const char *key, const hf_row *row, hf_info_fn *see, void *arg,
                  hf_error *err);

#endif
