/*
 * wait.h - a request that isn't granted at once, and the caller's thread that drives it. Under
 * the mutex.
 */
#ifndef HF_WAIT_H
#define HF_WAIT_H

#include "holdfast_driver.h"

struct hf_entry;
struct hf_wait;

void hf__wait_init(hf *h, struct hf_wait *w, struct hf_entry *e, const hf_options *o);
void hf__wait_sync(hf *h, struct hf_wait *w);

#endif
