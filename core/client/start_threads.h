/*
 * start_threads.h - the threads of a handle, started when they are first needed, and woken. Under
 * the mutex.
 */
#ifndef HF_START_THREADS_H
#define HF_START_THREADS_H

#include "holdfast.h"

#include <stdint.h>

/* Fills *err for a request whose thread can't be started. Returns HF_NOMEM. */
int hf__no_thread(const char *key, hf_error *err);
/* hf__need_X starts the thread X unless it runs. Returns 0; or the error: it can't be started.
   hf__kick_X and hf__wake_X make the thread look at its queues again; the monitor at at_us at the
   latest. They do nothing if it doesn't run. */
int hf__need_dispatcher(hf *h);
void hf__kick_dispatcher(hf *h);
int hf__need_monitor(hf *h);
void hf__kick_monitor(hf *h, int64_t at_us);
int hf__need_renewer(hf *h, hf_error *err);
void hf__wake_renewer(hf *h);
/* Wakes the thread that sleeps in the driver: on that wakeup (local stores), or until a
   notification (other stores). Needs no mutex. */
void hf__interrupt(hf *h, uint8_t wakeup);
/* Puts the lock into its queue again, by its renew_at_us, and wakes the renewer if need be. */
void hf__kick_renewer(hf_lock *lock);

#endif
