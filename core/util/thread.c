/*
 * thread.c - see thread.h.
 */
#include "thread.h"

#include "holdfast_driver.h"

#include <signal.h>
#include <string.h>

int hf__start_thread(void *arg, int *runs, pthread_t *thread, void *(*body)(void *), hf_error *err)
{
    if (*runs) return 0;
    /* The new thread blocks signals, so that the program's own threads get them. SIGBUS and SIGSEGV
       stay open: while they are blocked, a fault of the thread would kill the process without
       calling its handler (the command has one for SIGBUS). */
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGSEGV);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 256 * 1024);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(thread, &attr, body, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (rc) return hf_fail(err, HF_NOMEM, rc, "start a thread: %s", strerror(rc));
    *runs = 1;
    return 0;
}
