/*
 * local_line.h - the line of a handle's waits for one key, of which the first stands at the store.
 * Under the mutex.
 */
#ifndef HF_LOCAL_LINE_H
#define HF_LOCAL_LINE_H

#include "holdfast_driver.h"

struct hf_wait;

void hf__line_up(hf *h, struct hf_wait *w);
void hf__wait_finish(struct hf_wait *w);

#endif
