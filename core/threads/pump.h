/*
 * pump.h - drives the waits that no thread of the caller's drives, and calls their callbacks. See
 * above.h.
 */
#ifndef HF_PUMP_H
#define HF_PUMP_H

struct hf;
struct hf_wait;

void *hf__pump(void *handle);
int hf__pump_leads(struct hf *h, struct hf_wait *w);
void hf__pump_lead(struct hf *h, struct hf_wait *w);

#endif
