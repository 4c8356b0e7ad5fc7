/*
 * kept_error.h - an error that is kept until a caller asks for it: the first one since the last
 * success.
 */
#ifndef HF_KEPT_ERROR_H
#define HF_KEPT_ERROR_H

#include "holdfast.h"

/* Keeps a copy of the error in *at, unless *at has an earlier one, or the code is 0. If there is no
   memory, nothing is kept. */
void hf__error_keep(hf_error **at, const hf_error *why);
/* Frees the kept error, if there is one. */
void hf__error_clear(hf_error **at);

#endif
