/*
 * expiry_monitor.h - the thread that sees leases and claims end, and peers die. See above.h.
 */
#ifndef HF_EXPIRY_MONITOR_H
#define HF_EXPIRY_MONITOR_H

void *hf__expiry_monitor(void *handle);

#endif
