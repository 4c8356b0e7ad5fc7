/*
 * lock_monitor.h - what the expiry monitor does about the locks of a handle that are due: a lease
 * ends, a loss is to be reported, or the store is to be asked. Under the mutex.
 */
#ifndef HF_LOCK_MONITOR_H
#define HF_LOCK_MONITOR_H

#include "holdfast.h"

/* Looks after the locks that are due, the earliest first. Returns the local time of the next one;
   INT64_MAX: there is none. The mutex is dropped meanwhile. */
int64_t hf__tend_locks(hf *h);

#endif
