/*
 * renew.h - the renewal of one grant. Under the mutex.
 */
#ifndef HF_RENEW_H
#define HF_RENEW_H

#include "holdfast_driver.h"

/* Renews a lock that is seized (lock.h). by_hand: the holder has called hf_renew. Returns as
   hf_renew. Called with the mutex, which is released meanwhile. */
int hf__renew(hf_lock *lock, uint32_t lease_ms, int by_hand, hf_error *err);
/* Notes that the grant was renewed, by the write of this row. */
void hf__renewed(hf_lock *lock, const hf_row *row);

#endif
