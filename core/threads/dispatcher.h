/*
 * dispatcher.h - drives the waits that no thread of the caller's drives, and calls their callbacks.
 * See above.h.
 */
#ifndef HF_DISPATCHER_H
#define HF_DISPATCHER_H

void *hf__dispatcher(void *handle);

#endif
