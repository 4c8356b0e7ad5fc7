/*
 * output.c - messages to standard error that never hold this process up.
 *
 * A terminal whose output is stopped (Ctrl-S, a stalled ssh) and a full pipe block the thread that
 * writes. A granted command must start, and a lost one be stopped, all the same. So a thread of its
 * own writes what is queued here. The other threads wait for it only while it writes without
 * blocking, so that messages stand before what the command prints. Otherwise they go on without it.
 * SIGTTOU is blocked in the writing thread, so `stty tostop` doesn't stop this process either.
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
    FAREWELL_MS = 300, /* how long to wait for what is still queued when this process ends */
    /* how often to yield to a writing thread that could write, but hasn't run yet */
    FAREWELLS = 30
};

static struct {
    pthread_mutex_t mu;
    pthread_cond_t changed;
    int runs;        /* the writing thread: 1: it runs; -1: it can't be started */
    int late;        /* it didn't write in time: no thread waits for it until it has written */
    size_t n, taken; /* how many bytes are queued; how many it is writing */
    char text[QUEUE_CAP];
} out = {.mu = PTHREAD_MUTEX_INITIALIZER};

static int writable(int ms)
{
    struct pollfd fd = {STDERR_FILENO, POLLOUT, 0};
    return poll(&fd, 1, ms) > 0;
}

/* Writes all of the text, unless a write fails. */
static void write_all(const char *text, size_t n)
{
    while (n) {
        ssize_t done = write(STDERR_FILENO, text, n);
        if (done < 0 && errno == EAGAIN) writable(-1);
        if (done < 0 && errno != EAGAIN && errno != EINTR) return; /* nobody reads it any more */
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
    /* for damage.c: a fault whose signal is blocked would kill the process */
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGSEGV);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(ret, NULL, body, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc ? -1 : 0;
}

/* Starts the writing thread if none runs. Under the mutex. */
static void need_writer(void)
{
    pthread_t thread;
    if (out.runs) return;
    hf__thread_condition(&out.changed);
    out.runs = start_thread(&thread, writer, NULL) ? -1 : 1;
    if (out.runs > 0) pthread_detach(thread);
}

/* Waits until all queued text is written, at most this long. Under the mutex. */
static void await_writer(int ms)
{
    int64_t until_us = hf__local_us() + ms * 1000;
    while ((out.n || out.taken) && hf__local_us() < until_us)
        hf__cond_until(&out.changed, &out.mu, until_us);
    out.late = out.n || out.taken;
}

int output_add(const char *text, size_t n, const int *unless)
{
    pthread_mutex_lock(&out.mu);
    need_writer();
    int asked = !unless || !*unless, room = n <= sizeof out.text - out.n;
    /* A line that is replaced later isn't queued behind text that is stuck. */
    if (unless && (out.n || out.taken)) asked = 0;
    if (asked && room && out.runs > 0) {
        memcpy(out.text + out.n, text, n);
        out.n += n;
        pthread_cond_broadcast(&out.changed);
        if (!out.late && writable(0))
            await_writer(PATIENCE_MS);
        else
            out.late = 1;
    } else if (asked && room && writable(0) && write(STDERR_FILENO, text, n) < 0) {
        asked = 0;
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
