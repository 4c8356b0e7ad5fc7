/*
 * release.h - a holder gives its grant back.
 */
#ifndef HF_RELEASE_H
#define HF_RELEASE_H

#include "holdfast.h"

/* Releases, and frees the lock unless the release is pending. Returns as hf_release. Under the
   mutex, which is dropped: a thread that has found the lock in a list has it in no other way. */
int hf__release(hf_lock *lock, hf_error *err);

#endif
