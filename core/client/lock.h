/*
 * lock.h - the grant: how a handle makes one, and what it says of itself. Under the mutex.
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
void hf__lock_free(hf_lock *lock);

#endif
