/*
 * threads.h - the expiry monitor and the renewer of a handle. See above.h.
 */
#ifndef HF_THREADS_H
#define HF_THREADS_H

void *hf__expiry_monitor(void *handle);
void *hf__renewer(void *handle);

#endif
