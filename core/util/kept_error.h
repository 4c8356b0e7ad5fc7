/*
 * kept_error.h - an error that is told later: the first one since the last success.
 */
#ifndef HF_KEPT_ERROR_H
#define HF_KEPT_ERROR_H

#include "holdfast.h"

/* Keeps an error in *at, unless an earlier one is there, or the code is 0. Without memory the cause
   stays unknown. */
void hf__error_keep(hf_error **at, const hf_error *why);
void hf__error_clear(hf_error **at);

#endif
