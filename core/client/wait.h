/*
 * wait.h - a wait: its beginning, the local queue, the caller's thread that drives it, its end, and
 * the subscription of its key. Under the mutex.
 */
#ifndef HF_WAIT_H
#define HF_WAIT_H

#include "holdfast_driver.h"

struct hf_entry;
struct hf_wait;

/* Initializes a wait for the entry's key with these options. The wait takes over the caller's
   reference to the entry. */
void hf__wait_init(hf *h, struct hf_wait *w, struct hf_entry *e, const hf_options *o);
/* Puts the wait at the end of the local queue of its key. Only the first of that queue asks the
   store. */
void hf__enter_local_queue(hf *h, struct hf_wait *w);
/* Puts the wait into the local queue, and returns when it is over. The calling thread drives it; on
   stores that may block the dispatcher does, after the first look. Called with the mutex, which is
   released meanwhile. */
void hf__wait_until_over(hf *h, struct hf_wait *w);
/* Sets the result of a wait that is cancelled, or whose limit has passed, behind others of its
   handle (LOCAL): nothing of it is in the store. */
void hf__give_up_local(struct hf_wait *w);
/* Takes a wait that is over out of the local queue; the next wait becomes the first. Called with
   the mutex, which is released while another thread has the wait pinned. */
void hf__wait_finish(struct hf_wait *w);

/* Returns 1 if the wait needs notifications of its key: the dispatcher drives it, it has made its
   first look, and it doesn't back off. */
int hf__needs_notifications(const struct hf_wait *w);
/* Returns the wait for which a key is to be subscribed to: the last of the local queue that needs
   notifications. NULL: there is none. (Several need them only if a request that held was repeated
   by its request_id, and holds no more.) */
struct hf_wait *hf__subscriber_of(const struct hf_entry *e);
/* Returns 1 if, after a look, the subscription of the wait's key has to be made or changed. */
int hf__subscription_changes(const struct hf_wait *w);
/* Notes that the subscription of the key is to be made, changed or ended: the dispatcher does that
   before it sleeps (subscriptions.c). */
void hf__subscribe_later(hf *h, struct hf_entry *e);

#endif
