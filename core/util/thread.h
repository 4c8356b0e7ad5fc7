/*
 * thread.h - threads of the library.
 */
#ifndef HF_THREAD_H
#define HF_THREAD_H

#include "holdfast.h"

#include <pthread.h>

/* Starts body(arg), unless *runs. 0: it runs (*runs); else why it can't be started. */
int hf__start_thread(void *arg, int *runs, pthread_t *thread, void *(*body)(void *), hf_error *err);

#endif
