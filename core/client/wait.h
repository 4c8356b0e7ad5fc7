/*
 * wait.h - a request that isn't granted at once: its beginning, the local queue, the thread of the
 * caller that drives it, and its end. Under the mutex.
 */
#ifndef HF_WAIT_H
#define HF_WAIT_H

#include "holdfast_driver.h"

struct hf_entry;
struct hf_wait;

void hf__wait_init(hf *h, struct hf_wait *w, struct hf_entry *e, const hf_options *o);
/* Puts the wait at the end of the local queue of its key, of which the first one asks the store. */
void hf__enter_local_queue(hf *h, struct hf_wait *w);
/* Puts the wait into the local queue, and drives it by the caller's thread until it is over; on a
   server the dispatcher drives it after the first look. Called with the mutex, which is released
   meanwhile. */
void hf__wait_until_over(hf *h, struct hf_wait *w);
/* Sets the result of a wait that is cancelled, or whose limit has passed, behind others of its
   handle: it has nothing at the store. */
void hf__give_up_local(struct hf_wait *w);
/* Takes a wait that is over out of the local queue, so that the next one is the first. Called with
   the mutex, which is released while another thread looks at the wait. */
void hf__wait_finish(struct hf_wait *w);

/* Returns 1 if the wait needs notifications of its key. A wait that hasn't looked yet looks in any
   case. */
int hf__needs_notifications(const struct hf_wait *w);
/* Returns the wait for which a key is subscribed to: among those that need notifications, the last
   one that came to the store. NULL: there is none. There are several only if a request that held
   was repeated by its id, and held no more. */
struct hf_wait *hf__subscriber_of(const struct hf_entry *e);
/* Returns 1 if, after a look, the subscription of the wait's key has to be made or changed. */
int hf__subscription_changes(const struct hf_wait *w);
/* Notes that the subscription of the key is to be made, changed or ended: the dispatcher does that
   before it sleeps (subscriptions.c). */
void hf__subscribe_later(hf *h, struct hf_entry *e);

#endif
