/*
 * info.h - shows a row to people, as an hf_info.
 */
#ifndef HF_INFO_H
#define HF_INFO_H

#include "clock.h"
#include "holdfast_driver.h"

/* Returns 1 if this party's hold or wait is over: by its lease, or because its session has died. */
int hf__party_ended(hf *h, const hf_party *p, struct hf_time now);
/* Calls see(arg, info) for a row. Returns 1 if `see` wants no more, 0 if it does, or HF_NOMEM. */
int hf__show_info(hf *h, const char *key, const hf_row *row, hf_info_fn *see, void *arg,
                  hf_error *err);

#endif
