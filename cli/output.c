/*
 * output.c - writes messages to standard error, without blocking the threads that print them.
 *
 * A full pipe, or a terminal whose output is stopped (Ctrl-S, a stalled ssh), blocks the thread
 * that writes. All the same the command must start when the key is granted, and be stopped when a
 * lock is lost. So messages are queued, and the writing thread writes them. Another thread waits
 * for it only while the descriptor takes text, so that messages appear before what the command
 * prints. SIGTTOU is blocked in the writing thread, so that `stty tostop` doesn't stop this process
 * either.
 */
#include "cli.h"

#include "os.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum {
    QUEUE_CAP = 65536,
    PATIENCE_MS = 200, /* how long to wait for a write that should succeed at once */
    FAREWELL_MS = 300, /* when this process ends: how long to wait for queued text */
    /* and how often to yield to a writing thread that could write, but hasn't run yet */
    FAREWELLS = 30
};

static struct {
    pthread_mutex_t mu;
    pthread_cond_t changed;
    int runs;        /* 1: the writing thread runs; -1: it can't be started */
    int late;        /* 1: the last text wasn't written in time: no thread waits until it is */
    size_t n, taken; /* how many bytes are queued; how many the writing thread has taken */
    char text[QUEUE_CAP];
} out = {.mu = PTHREAD_MUTEX_INITIALIZER};

static int writable(int ms)
{
    struct pollfd fd = {STDERR_FILENO, POLLOUT, 0};
    return poll(&fd, 1, ms) > 0;
}

/* Writes all of the text, or as much as can be written until a write fails. */
static void write_all(const char *text, size_t n)
{
    while (n) {
        ssize_t done = write(STDERR_FILENO, text, n);
        if (done < 0 && errno == EAGAIN) writable(-1);
        /* Nothing more can be written, as to a pipe without a reader. */
        if (done < 0 && errno != EAGAIN && errno != EINTR) return;
        if (done <= 0) continue;
        text += done;
        n -= (size_t)done;
    }
}

static void *writer(void *arg)
{
    char text[4096];
    (void)arg;
    pthread_mutex_lock(&out.mu);
    for (;;) {
        while (!out.n) pthread_cond_wait(&out.changed, &out.mu);
        out.taken = out.n < sizeof text ? out.n : sizeof text;
        memcpy(text, out.text, out.taken);
        out.n -= out.taken;
        memmove(out.text, out.text + out.taken, out.n);
        pthread_mutex_unlock(&out.mu);
        write_all(text, out.taken);
        pthread_mutex_lock(&out.mu);
        out.taken = 0;
        out.late = 0;
        pthread_cond_broadcast(&out.changed);
    }
    return NULL;
}

int start_thread(pthread_t *ret, void *(*body)(void *arg), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    /* Not blocked, for damage.c: a fault whose signal is blocked kills the process. */
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGSEGV);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(ret, NULL, body, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc ? -1 : 0;
}

/* Starts the writing thread unless it runs. Under out.mu. */
static void need_writer(void)
{
    pthread_t thread;
    if (out.runs) return;
    hf__thread_condition(&out.changed);
    out.runs = start_thread(&thread, writer, NULL) ? -1 : 1;
    if (out.runs > 0) pthread_detach(thread);
}

/* Waits until all queued text is written, for `ms` at most. Under out.mu. */
static void await_writer(int ms)
{
    int64_t until_us = hf__local_us() + ms * 1000;
    while ((out.n || out.taken) && hf__local_us() < until_us)
        hf__cond_until(&out.changed, &out.mu, until_us);
    out.late = out.n || out.taken;
}

int output_add(const char *text, size_t n, const int *unless, int *shown)
{
    pthread_mutex_lock(&out.mu);
    need_writer();
    int asked = !unless || !*unless, room = n <= sizeof out.text - out.n;
    /* A line that is replaced later isn't queued behind text that isn't written yet. */
    if (unless && (out.n || out.taken)) asked = 0;
    if (asked && room && out.runs > 0) {
        /* Before the wait, during which another thread may have output_stop return. */
        if (shown) __atomic_store_n(shown, 1, __ATOMIC_RELAXED);
        memcpy(out.text + out.n, text, n);
        out.n += n;
        pthread_cond_broadcast(&out.changed);
        if (!out.late && writable(0))
            await_writer(PATIENCE_MS);
        else
            out.late = 1;
    } else if (asked && room && writable(0) && write(STDERR_FILENO, text, n) < 0) {
        asked = 0;
    } else if (asked && room && shown) {
        __atomic_store_n(shown, 1, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&out.mu);
    return asked && room;
}

void output_stop(int *stopped)
{
    pthread_mutex_lock(&out.mu);
    *stopped = 1;
    pthread_mutex_unlock(&out.mu);
}

void output_end(void)
{
    pthread_mutex_lock(&out.mu);
    if (out.runs > 0) await_writer(FAREWELL_MS);
    for (int n = 1; out.late && n < FAREWELLS && writable(0); n++) await_writer(FAREWELL_MS);
    pthread_mutex_unlock(&out.mu);
}
