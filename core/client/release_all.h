/*
 * release_all.h - of hf_close: the release of all locks that the handle still has.
 */
#ifndef HF_RELEASE_ALL_H
#define HF_RELEASE_ALL_H

#include "holdfast.h"

/* 1: the store doesn't answer. Under the mutex, dropped. */
int hf__release_all(hf *h);

#endif
