/*
 * rest_fork.c - forks while threads make requests. See rest_request.h.
 *
 * OpenSSL, which libcurl uses, has locks of the whole process, which a request takes for moments. A
 * child of fork finds them as other threads had them, and would wait for ever. So while a thread
 * forks, none of the others is in the code of these libraries: fork waits until they have left it,
 * as they do to wait for the network, and none enters before fork has returned.
 */
#include "rest_request.h"

#include "os.h"

enum { FORK_MS = 2000 };

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed; /* signalled when a fork is over, and when a thread leaves */
static unsigned inside;        /* threads */
static int forks;
static __thread unsigned mine; /* 1: this thread is inside */

void hf__rest_enter(void)
{
    pthread_mutex_lock(&mu);
    while (forks) pthread_cond_wait(&changed, &mu);
    inside++;
    mine = 1;
    pthread_mutex_unlock(&mu);
}

void hf__rest_leave(void)
{
    pthread_mutex_lock(&mu);
    inside--;
    mine = 0;
    if (forks) pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mu);
}

/* The mutex is kept until fork returns. A thread that looks for files of certificates may take its
   time, so this waits for a limited time. */
static void before_fork(void)
{
    pthread_mutex_lock(&mu);
    while (forks) pthread_cond_wait(&changed, &mu);
    forks = 1;
    int64_t until_us = hf__local_us() + FORK_MS * INT64_C(1000);
    while (inside > mine && hf__local_us() < until_us) hf__cond_until(&changed, &mu, until_us);
}

static void in_parent(void)
{
    forks = 0;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mu);
}

/* The child has none of its parent's threads. */
static void in_child(void)
{
    forks = 0;
    inside = mine;
    hf__thread_condition(&changed);
    pthread_mutex_unlock(&mu);
}

void hf__rest_watch_forks(void)
{
    static int watches; /* a child that was made within pthread_once calls this again */
    if (watches) return;
    watches = 1;
    hf__thread_condition(&changed);
    pthread_atfork(before_fork, in_parent, in_child);
}
