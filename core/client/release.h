/*
 * release.h - a holder gives its grant back.
 */
#ifndef HF_RELEASE_H
#define HF_RELEASE_H

#include "holdfast.h"

/* Releases the lock, and frees it unless the release is pending. Returns as hf_release. Called
   with the mutex, which is released during a request. A thread that has found the lock in a list
   must not use it after that. */
int hf__release(hf_lock *lock, hf_error *err);

#endif
