/*
 * wanted_keys.h - for which keys a handle's subscriptions are to be changed. Under the mutex.
 */
#ifndef HF_WANTED_KEYS_H
#define HF_WANTED_KEYS_H

#include "holdfast.h"

struct hf_entry;
struct hf_wait;

int hf__watches(const hf *h);      /* is there anything that tells of changes? */
int hf__one_by_one(const hf *h);   /* are keys told to the driver one by one? */
int hf__tells_events(const hf *h); /* does the store name the keys that something came about? */
/* Is it to hear of its key? Who hasn't looked yet does so anyway. */
int hf__wanted(const struct hf_wait *w);
/* After a look, its `first`: is its key to be subscribed to, or in another way than it is? */
int hf__subscription_changes(const struct hf_wait *w, int first);
void hf__change_subscription(hf *h, struct hf_entry *e);

#endif
