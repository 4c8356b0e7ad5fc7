/*
 * acquire.h - from asking for a key to holding it.
 */
#ifndef HF_ACQUIRE_H
#define HF_ACQUIRE_H

#include "holdfast_driver.h"

int hf__once_mark(hf_lock **lock, unsigned flags, hf_error *err);
int hf__check_options(hf *h, const hf_options *o, const char *key, hf_error *err);

#endif
