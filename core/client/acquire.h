/*
 * acquire.h - what other files need of acquire.c.
 */
#ifndef HF_ACQUIRE_H
#define HF_ACQUIRE_H

#include "holdfast.h"

/* If `flags` has HF_AT_MOST_ONCE, makes the event's marker durable, before the event runs. *lock
   may be NULL.
   Returns: 0; or the code of the failure: then the lock is released, and *lock is NULL. */
int hf__once_mark(hf_lock **lock, unsigned flags, hf_error *err);

#endif
