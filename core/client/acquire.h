/*
 * acquire.h - what other files need of acquire.c.
 */
#ifndef HF_ACQUIRE_H
#define HF_ACQUIRE_H

#include "holdfast.h"

/* If `flags` has HF_AT_MOST_ONCE, makes the mark of the event durable, before the event runs.
   Returns: 0; the code of the failure: the lock is released then, and *lock is NULL. */
int hf__once_mark(hf_lock **lock, unsigned flags, hf_error *err);

#endif
