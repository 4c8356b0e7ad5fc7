/*
 * renew.h - one grant is renewed. Under the mutex.
 */
#ifndef HF_RENEW_H
#define HF_RENEW_H

#include "holdfast_driver.h"

/* Renews a lock that is seized (lock.h). by_hand: its holder asked for it. Returns as
   hf_renew. The mutex is dropped meanwhile. */
int hf__renew(hf_lock *lock, uint32_t lease_ms, int by_hand, hf_error *err);
/* The grant was renewed, with this row. */
void hf__renewed(hf_lock *lock, const hf_row *row);

#endif
