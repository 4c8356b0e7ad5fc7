/*
 * thread.h - starts a thread of the library, tells whether a thread runs a callback, and keeps the
 * program's threads from being canceled (pthread_cancel) inside the library.
 */
#ifndef HF_THREAD_H
#define HF_THREAD_H

#include "holdfast.h"

#include <pthread.h>

/* The model initial-exec makes access quick; glibc always has room for a few bytes of it in a
   library that is loaded late. musl refuses to load such a library, so there the model is the usual
   one. */
#ifdef __GLIBC__
#define HF_THREAD_LOCAL __attribute__((tls_model("initial-exec"))) _Thread_local
#else
#define HF_THREAD_LOCAL _Thread_local
#endif

/* Starts a thread that runs body(arg), unless *runs is 1 already.
   Returns 0: the thread runs, and *runs is 1. HF_NOMEM: it can't be started; *err says why. */
int hf__start_thread(void *arg, int *runs, pthread_t *thread, void *(*body)(void *), hf_error *err);

/* Around each callback of the program's that a thread of the library runs. A child that was forked
   in the callback ends in hf__end_callback, with status HF_CALLBACK_LEFT: as this thread it would
   go on with the parent's waits, on the parent's connections. */
enum { HF_CALLBACK_LEFT = 70 };
void hf__begin_callback(void);
void hf__end_callback(void);
/* Returns 1 if the calling thread runs a callback, of any handle, in the process in which the
   callback began. */
int hf__in_callback(void);

/* Stands first in each function of holdfast.h that may sleep, send a request or wake a thread.
   Until the block ends, the calling thread isn't canceled: it would leave the mutex locked, and its
   wait in the lists. On the fast path of hf_acquire and hf_release nothing is a cancellation point;
   it stands in what they call beside that. */
#define HF_NOT_CANCELED \
    int hf__canceled __attribute__((unused, cleanup(hf__cancel_as_before))) = hf__cancel_never()
static inline int hf__cancel_never(void)
{
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}
static inline void hf__cancel_as_before(int *before) { pthread_setcancelstate(*before, NULL); }

#endif
