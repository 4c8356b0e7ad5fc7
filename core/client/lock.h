/*
 * lock.h - the grant, and what its holder does with it. Under the mutex.
 */
#ifndef HF_LOCK_H
#define HF_LOCK_H

#include "holdfast_driver.h"

struct hf_entry;
struct hf_wait;

/* Memory for one more: the next hf__lock_new will find it. 0, or HF_NOMEM. */
int hf__lock_more(hf *h);
hf_lock *hf__lock_new(hf *h, struct hf_entry *e, const hf_party *p, const hf_row *row,
                      const struct hf_wait *w);
void hf__plan_renewal(hf_lock *lock);
/* `row` as stored holds the grant: what it says of it. */
void hf__note_row(hf_lock *lock, const hf_row *row);
/* The grant was renewed, with this row. Under the mutex. */
void hf__renewed(hf_lock *lock, const hf_row *row);
/* Nobody works on it any more (it was `busy`). */
void hf__let_go(hf_lock *lock);
void hf__lock_free(hf_lock *lock);
int hf__release(hf_lock *lock, hf_error *err);
int hf__renew(hf_lock *lock, uint32_t lease_ms, int by_hand, hf_error *err);

#endif
