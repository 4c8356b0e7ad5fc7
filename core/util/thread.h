/*
 * thread.h - starts a thread of the library.
 */
#ifndef HF_THREAD_H
#define HF_THREAD_H

#include "holdfast.h"

#include <pthread.h>

/* Starts a thread that runs body(arg), unless *runs is 1 already.
   Returns 0: the thread runs, and *runs is 1. HF_NOMEM: it can't be started; *err says why. */
int hf__start_thread(void *arg, int *runs, pthread_t *thread, void *(*body)(void *), hf_error *err);

#endif
