/*
 * thread.c - see thread.h.
 */
#include "thread.h"

#include "holdfast_driver.h"
#include "os.h"

#ifdef __GLIBC__
#include <link.h>
#endif
#include <signal.h>
#include <string.h>
#include <unistd.h>

#ifdef __GLIBC__
static int add_tls(struct dl_phdr_info *module, size_t size, void *sum)
{
    (void)size;
    for (int i = 0; i < module->dlpi_phnum; i++)
        if (module->dlpi_phdr[i].p_type == PT_TLS)
            *(size_t *)sum += module->dlpi_phdr[i].p_memsz + module->dlpi_phdr[i].p_align;
    return 0;
}
#endif

/* Returns the size of a thread's stack. glibc keeps the thread-local variables of the program and
   of its libraries in it, however large they are. */
static size_t stack_size(void)
{
    size_t size = 256 * 1024;
#ifdef __GLIBC__
    dl_iterate_phdr(add_tls, &size);
#endif
    return size;
}

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
    pthread_attr_setstacksize(&attr, stack_size());
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(thread, &attr, body, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (rc) return hf_fail(err, HF_NOMEM, rc, "start a thread: %s", strerror(rc));
    *runs = 1;
    return 0;
}

/* ---- callbacks ---- */

/* 0: the thread runs no callback; else hf__forks at its beginning, plus 1. */
static HF_THREAD_LOCAL unsigned callback_forks;

void hf__begin_callback(void) { callback_forks = hf__forks + 1; }

void hf__end_callback(void)
{
    /* Not by exit: what the parent has buffered would be written twice. */
    if (!hf__in_callback()) _exit(HF_CALLBACK_LEFT);
    callback_forks = 0;
}

int hf__in_callback(void) { return callback_forks == hf__forks + 1; }
