/*
 * wanted_keys.h - for which keys a handle's subscriptions are to be changed. Under the mutex.
 */
#ifndef HF_WANTED_KEYS_H
#define HF_WANTED_KEYS_H

#include "holdfast.h"

struct hf_entry;
struct hf_wait;

/* Is the wait to be notified of its key? One that hasn't looked yet looks in any case. */
int hf__wanted(const struct hf_wait *w);
/* The wait that a key is subscribed to for: of those that want notifications the last one that came
   to the store; NULL: there is none. There are several only if a request that held was asked again
   by its id and held no more. */
struct hf_wait *hf__subscriber_of(const struct hf_entry *e);
/* After a look: is its key to be subscribed to, or in another way than it is? */
int hf__subscription_changes(const struct hf_wait *w);
/* The dispatcher tells the driver before it sleeps. */
void hf__change_subscription(hf *h, struct hf_entry *e);

#endif
