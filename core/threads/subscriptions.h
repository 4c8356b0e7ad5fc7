/*
 * subscriptions.h - which keys a handle listens for, and which waits an event is for. Under the
 * mutex.
 */
#ifndef HF_SUBSCRIPTIONS_H
#define HF_SUBSCRIPTIONS_H

#include "holdfast.h"

struct hf_wait;

/* Listens for those who wait, and notifies those about whose keys something may have come. What is
   heard from here on is news to h->ear; or nobody is told of anything, and h->deaf. The mutex is
   dropped. */
void hf__listen(hf *h);
/* Before a look: what comes from here on is news. */
void hf__hear_from_now(struct hf_wait *w);

#endif
