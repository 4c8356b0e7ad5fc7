/*
 * fork_gate.c - see fork_gate.h.
 */
#include "fork_gate.h"

#include "os.h"

#include <errno.h>

enum { FORK_MS = 1000 };

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed; /* signalled when a fork is over, and when a thread leaves */
static unsigned inside;        /* how many threads are inside the gate */
static int forks;
static unsigned forks_inside; /* 1: the thread that forks was inside itself */
/* given_up: how many of the threads inside are no longer waited for, because a fork has waited for
   them in vain. Each fork that waits in vain begins a new round (round_now). So a thread inside is
   given up if it entered in an earlier round. */
static unsigned given_up, round_now;

static __thread unsigned depth;      /* how many calls of hf__gate_begin this thread hasn't ended */
static __thread unsigned is_inside;  /* 1: this thread is counted in `inside` */
static __thread unsigned round_then; /* round_now when it entered */

/* ---- this thread, under the mutex ---- */

static void enter(void)
{
    while (forks) pthread_cond_wait(&changed, &mu);
    inside++;
    is_inside = 1;
    round_then = round_now;
}

static void leave(void)
{
    inside--;
    is_inside = 0;
    if (round_then != round_now) given_up--;
    if (forks) pthread_cond_broadcast(&changed);
}

/* ---- forks ---- */

/* Waits until no other thread is inside, for FORK_MS at most. Keeps the mutex until fork has
   returned. The thread that forks may be inside itself. */
static void before_fork(void)
{
    int64_t until_us = hf__local_us() + FORK_MS * INT64_C(1000);
    pthread_mutex_lock(&mu);
    while (forks) pthread_cond_wait(&changed, &mu);
    forks_inside = is_inside;
    if (is_inside) leave();
    forks = 1;
    while (inside > given_up && hf__local_us() < until_us) hf__cond_until(&changed, &mu, until_us);
    if (inside > given_up) {
        given_up = inside;
        round_now++;
    }
}

static void after_fork(void)
{
    forks = 0;
    if (forks_inside) enter();
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mu);
}

/* Resets the counts in the child, which has none of its parent's other threads. */
static void in_child(void)
{
    inside = given_up = 0;
    hf__thread_condition(&changed);
    after_fork();
}

static void watch_forks(void)
{
    static int watches; /* a child that was forked during the pthread_once calls this again */
    if (watches) return;
    watches = 1;
    hf__thread_condition(&changed);
    pthread_atfork(before_fork, after_fork, in_child);
}

/* ---- the gate ---- */

void hf__gate_begin(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (depth++) return;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&mu);
    enter();
    pthread_mutex_unlock(&mu);
}

void hf__gate_end(void)
{
    if (--depth) return;
    pthread_mutex_lock(&mu);
    leave();
    pthread_mutex_unlock(&mu);
}

void hf__gate_wait(void)
{
    int sys = errno;
    if (!is_inside) return;
    pthread_mutex_lock(&mu);
    leave();
    pthread_mutex_unlock(&mu);
    errno = sys;
}

void hf__gate_go_on(void)
{
    int sys = errno;
    if (!depth || is_inside) return;
    pthread_mutex_lock(&mu);
    enter();
    pthread_mutex_unlock(&mu);
    errno = sys;
}
