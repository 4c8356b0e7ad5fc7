/*
 * url_advice.h - advice for URLs in the form of other programs: what to write here instead.
 */
#ifndef HF_URL_ADVICE_H
#define HF_URL_ADVICE_H

#include "holdfast.h"

/* Returns what to write instead of a scheme that other programs use; NULL: the scheme is not
   known. */
const char *hf__scheme_advice(const char *scheme);
/* Adds advice to an error about an unknown option, if URLs of other programs have that option. */
void hf__explain_option(hf_error *err);

#endif
