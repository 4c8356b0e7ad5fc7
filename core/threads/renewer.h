/*
 * renewer.h - the thread that renews what is due, ends sessions, and cancels requests late. See
 * above.h.
 */
#ifndef HF_RENEWER_H
#define HF_RENEWER_H

void *hf__renewer(void *handle);

#endif
