/*
 * pump.h - drives the waits that no thread of the caller's drives, and calls their callbacks. See
 * above.h.
 */
#ifndef HF_PUMP_H
#define HF_PUMP_H

void *hf__pump(void *handle);

#endif
