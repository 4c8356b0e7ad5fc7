/*
 * url_advice.h - URLs as other programs write them, and what to write here.
 */
#ifndef HF_URL_ADVICE_H
#define HF_URL_ADVICE_H

#include "holdfast.h"

/* What to write instead of a scheme that other programs have; NULL: nothing is known of it. */
const char *hf__scheme_advice(const char *scheme);
/* Of an error about an option that other programs have: adds what is to be done with it here. */
void hf__explain_option(hf_error *err);

#endif
