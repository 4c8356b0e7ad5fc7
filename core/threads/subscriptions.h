/*
 * subscriptions.h - tells the driver of which keys a handle is to be notified, and the waits of the
 * events that came. Under the mutex.
 */
#ifndef HF_SUBSCRIPTIONS_H
#define HF_SUBSCRIPTIONS_H

#include "holdfast.h"

/* Changes the subscriptions as the waits need it, takes the events that came, and notifies the
   waits of their keys. Sets h->events, and h->disconnected where the store notifies of nothing.
   The mutex is dropped. */
void hf__take_events(hf *h);

#endif
