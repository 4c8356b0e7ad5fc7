/*
 * start_threads.h - the threads of a handle, started when they are first needed, and woken. Under
 * the mutex.
 */
#ifndef HF_START_THREADS_H
#define HF_START_THREADS_H

#include "holdfast.h"

#include <stdint.h>

int hf__own_thread(const hf *h); /* is this the dispatcher or the expiry monitor, in a callback? */
/* The error of a request for the key if a thread that it needs can't be started. Returns
   HF_NOMEM. */
int hf__no_thread(const char *key, hf_error *err);
/* Starts the thread unless it runs. Returns: 0; or why not. Under the mutex. */
int hf__need_dispatcher(hf *h);
void hf__kick_dispatcher(hf *h);
int hf__need_monitor(hf *h);
void hf__kick_monitor(hf *h, int64_t at_us);
int hf__need_renewer(hf *h, hf_error *err);
void hf__wake_renewer(hf *h);
/* Wakes the thread that sleeps on this wakeup of the handle, or for notifications. Needs no
   mutex. */
void hf__interrupt(hf *h, uint8_t wakeup);
/* Puts the lock into its queue again, by its renew_at_us, and wakes the renewer if need be. */
void hf__kick_renewer(hf_lock *lock);

#endif
