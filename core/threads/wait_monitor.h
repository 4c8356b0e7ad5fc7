/*
 * wait_monitor.h - what the expiry monitor notices for those who wait in a store with wakeups.
 * Under the mutex.
 */
#ifndef HF_WAIT_MONITOR_H
#define HF_WAIT_MONITOR_H

#include "holdfast.h"

/* Each looks after what is due, and says when to look again. The mutex is dropped. */
int64_t hf__tend_waits(hf *h);
int64_t hf__tend_claims(hf *h);
/* Each wait is to be looked after; each that depends on a session that has died. */
void hf__look_after_waits(hf *h);
void hf__look_for_deaths(hf *h);

#endif
