/*
 * threads.h - the threads of a handle, and what the files of this folder have of each other. Under
 * the mutex where nothing else is said.
 */
#ifndef HF_THREADS_H
#define HF_THREADS_H

#include "renewal_queue.h"
#include "session.h"

/* ---- what the threads run (struct hf_above); each takes the mutex ---- */

/* Drives the waits that no thread of the caller drives, and calls their callbacks. */
void *hf__dispatcher(void *handle);
/* Sees leases and claims end, and peers die. */
void *hf__expiry_monitor(void *handle);
/* Renews what is due, ends sessions, and cancels requests late. */
void *hf__renewer(void *handle);
/* Ends the threads that the renewer has started, and the keepers. After it only the caller's thread
   is left. */
void hf__renewals_close(hf *h);

/* ---- subscriptions.c ---- */

/* Changes the subscriptions as the waits need it, takes the events that came, and notifies the
   waits of their keys. Sets h->events, and h->disconnected where the store notifies of nothing.
   Called with the mutex, which is released meanwhile. */
void hf__take_events(hf *h);

/* ---- wait_monitor.c: what the expiry monitor checks for waits, in a store with wakeups ---- */

/* These handle waits and claims that are due. They return when to look again. Called with the
   mutex, which is released meanwhile. */
int64_t hf__tend_waits(hf *h);
int64_t hf__tend_claims(hf *h);
/* Let all waits be checked; those that depend on a session that has died. */
void hf__check_all_waits(hf *h);
void hf__check_after_death(hf *h);

/* ---- renew_batch.c: many renewals by one request ---- */

struct hf_renew_batch *hf__renew_batch_new(void); /* NULL: out of memory */
void hf__renew_batch_free(struct hf_renew_batch *batch);
/* Renews up to `most` grants of that queue by requests of which each may fail alone. Returns 0: the
   queue had none; 1: it renewed some; 2: some weren't answered. Called with the mutex, which is
   released. */
int hf__renew_batch(hf *h, struct hf_renew_batch *batch, enum hf_renewal_queue queue, size_t most);

/* ---- keepers.c: the threads that keep sessions alive (stores with hf_session_ops) ---- */

/* Tells the keepers that a session was made, or is to be kept at another time. Returns 0 if there
   is no thread that would keep it. */
int hf__kick_keepers(struct hf_sessions *all);
/* Takes the mutex. */
void hf__keepers_close(struct hf_sessions *all);

#endif
