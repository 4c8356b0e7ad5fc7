/*
 * renewals.h - the threads that renew what is due in the queues of renewal_queue.h, one at a time
 * or many by one request (renew_batch.c).
 */
#ifndef HF_RENEWALS_H
#define HF_RENEWALS_H

#include "renewal_queue.h"

/* The renewer's part: sees to it that what is due is renewed. When to look again; 0 if the mutex
   was dropped. Under it. */
int64_t hf__renewals_tend(hf *h);
void hf__renewals_close(hf *h); /* no thread but the caller's is left then */

/* renew_batch.c */
struct hf_renew_batch *hf__renew_batch_new(void); /* NULL: out of memory */
void hf__renew_batch_free(struct hf_renew_batch *batch);
/* Renews up to `most` grants of that queue by requests of which each may fail alone. Returns 0:
   there was none; 1; 2: some weren't answered. Under the mutex, dropped. */
int hf__renew_batch(hf *h, struct hf_renew_batch *batch, enum hf_renewal_queue queue, size_t most);

#endif
