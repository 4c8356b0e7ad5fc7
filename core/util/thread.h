/*
 * thread.h - threads of the library.
 */
#ifndef HF_THREAD_H
#define HF_THREAD_H

#include "holdfast.h"

#include <pthread.h>

/* Starts a thread that runs body(arg), unless *runs is 1 already. Returns 0: it runs, and *runs is
   1; else why it can't be started. */
int hf__start_thread(void *arg, int *runs, pthread_t *thread, void *(*body)(void *), hf_error *err);

#endif
