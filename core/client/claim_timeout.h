/*
 * claim_timeout.h - grants that were handed over from here: passed on when their claim has run out.
 */
#ifndef HF_CLAIM_TIMEOUT_H
#define HF_CLAIM_TIMEOUT_H

#include "holdfast_driver.h"

struct hf_entry;

/* If `row`, as just written, holds a grant that was handed over: the expiry monitor passes it on
   when its claim runs out, should nobody else. Takes the mutex. */
void hf__watch_claim(hf *h, struct hf_entry *e, const hf_row *row);

#endif
