/*
 * threads.h - what the threads of a handle run, and what the files of this folder use of each
 * other. Under the mutex where nothing else is said.
 */
#ifndef HF_THREADS_H
#define HF_THREADS_H

#include "renewal_queue.h"
#include "session.h"

/* ---- what the threads run (struct hf_above); each takes the mutex ---- */

/* Drives the waits that no thread of the caller drives, and calls their callbacks. */
void *hf__dispatcher(void *handle);
/* Marks locks as lost when their leases end, passes keys on when claim timeouts end, and looks for
   the waits whose peers have died. */
void *hf__expiry_monitor(void *handle);
/* Renews leases that are due, ends sessions that are no longer needed, and makes deferred cancels.
 */
void *hf__renewer(void *handle);
/* Ends the workers that the renewer has started, and the keepers. Then only the caller's thread is
   left. */
void hf__renewals_close(hf *h);

/* ---- subscriptions.c ---- */

/* Changes the subscriptions as the waits need them, takes the events that came, and makes the waits
   of their keys look. Sets h->events; and h->disconnected: 1 if the store sends no notifications.
   Called with the mutex, which is released meanwhile. */
void hf__take_events(hf *h);

/* ---- wait_monitor.c: what the expiry monitor does for waits, on local stores ---- */

/* These handle the waits (hf.checks) and the claim timeouts (hf.claim_deadlines) that are due. They
   return the local time of the next one; INT64_MAX: none; 0: more are due. Called with the mutex,
   which is released meanwhile. */
int64_t hf__tend_waits(hf *h);
int64_t hf__tend_claims(hf *h);
/* Makes all waits due. */
void hf__check_all_waits(hf *h);
/* Called when a session may have died: makes the waits due that depend on a dead session. */
void hf__check_after_death(hf *h);

/* ---- renew_batch.c: many renewals by one request ---- */

struct hf_renew_batch *hf__renew_batch_new(void); /* NULL: out of memory */
void hf__renew_batch_free(struct hf_renew_batch *batch);
/* Renews grants of up to `most` keys of that queue by one call of replace_many.
   Returns: 0: none was due; 1: all were answered, though some may have failed; 2: some weren't
   answered. Called with the mutex, which is released meanwhile. */
int hf__renew_batch(hf *h, struct hf_renew_batch *batch, enum hf_renewal_queue queue, size_t most);

/* ---- keepers.c: the threads that keep sessions alive (stores with hf_session_ops) ---- */

/* Makes the keepers look at the sessions again, because one was made, or is to be kept at another
   time. Starts the first keeper. Returns 0 if no keeper runs. */
int hf__kick_keepers(struct hf_sessions *all);
/* Waits until the keepers have ended; all->closed is set. Takes the mutex. */
void hf__keepers_close(struct hf_sessions *all);

#endif
