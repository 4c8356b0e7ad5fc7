/*
 * acquire.h - from asking for a key to holding it.
 */
#ifndef HF_ACQUIRE_H
#define HF_ACQUIRE_H

#include "holdfast.h"

/* A mark made before its event must be on disk before that runs; if it can't be, it doesn't run. */
int hf__once_mark(hf_lock **lock, unsigned flags, hf_error *err);

#endif
