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
/* Puts the wait into the local queue of its key, of which the first one asks the store. */
void hf__line_up(hf *h, struct hf_wait *w);
/* Lines up, and drives the wait by the caller's thread until it is over; on a server the dispatcher
   drives it after the first look. The mutex is dropped. */
void hf__wait_sync(hf *h, struct hf_wait *w);
/* The wait is over: it leaves the local queue, and the next one is the first. The mutex is dropped
   for as long as another thread looks at the wait. */
void hf__wait_finish(struct hf_wait *w);

/* Is the wait to be notified of its key? A wait that hasn't looked yet looks in any case. */
int hf__wanted(const struct hf_wait *w);
/* The wait for which a key is subscribed to: of those that want notifications the last one that
   came to the store; NULL: there is none. There are several only if a request that held was asked
   again by its id and held no more. */
struct hf_wait *hf__subscriber_of(const struct hf_entry *e);
/* After a look: is its key to be subscribed to, or in another way than it is? */
int hf__subscription_changes(const struct hf_wait *w);
/* The dispatcher changes the subscription of the key before it sleeps (subscriptions.c). */
void hf__change_subscription(hf *h, struct hf_entry *e);

#endif
