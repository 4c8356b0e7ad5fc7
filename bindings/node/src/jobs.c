/*
 * jobs.c - makes calls that may block (requests to a server, or writes to a disk) in threads of
 * each store. A server that doesn't answer must delay neither the event loop nor libuv's few
 * threads, which Node uses for files and name lookups.
 */
#include "addon.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = sizeof((struct store *)0)->threads / sizeof(pthread_t) };

/* Starts a thread that blocks all signals, so that the program's own threads get them. Returns 0 or
   an errno. */
int start_thread(pthread_t *thread, void *(*body)(void *), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(thread, NULL, body, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

/* Returns the next job that may run. Under the mutex. */
static struct job *next_job(struct store *s)
{
    while (!s->first && !s->stop) {
        s->n_idle++;
        pthread_cond_wait(&s->work, &s->mu);
        s->n_idle--;
    }
    if (s->stop) return NULL;
    struct job *job = s->first;
    if (!(s->first = job->next)) s->last = NULL;
    return job;
}

static void *worker(void *arg)
{
    struct store *s = arg;
    struct job *job;
    pthread_mutex_lock(&s->mu);
    while ((job = next_job(s))) {
        pthread_mutex_unlock(&s->mu);
        job->work(job);
        post(s->addon, &job->event); /* the job may be freed from here on */
        pthread_mutex_lock(&s->mu);
    }
    pthread_mutex_unlock(&s->mu);
    return NULL;
}

void jobs_begin(struct store *s)
{
    pthread_mutex_init(&s->mu, NULL);
    pthread_cond_init(&s->work, NULL);
    pthread_cond_init(&s->idle, NULL);
}

void jobs_end(struct store *s)
{
    pthread_mutex_lock(&s->mu);
    s->stop = true;
    pthread_cond_broadcast(&s->work);
    while (s->n_streaming) pthread_cond_wait(&s->idle, &s->mu);
    pthread_mutex_unlock(&s->mu);
    for (unsigned i = 0; i < s->n_threads; i++) pthread_join(s->threads[i], NULL);
    s->n_threads = 0;
    /* Jobs that no thread has begun fail now: a server may be away, and each could take long. */
    for (struct job *job; (job = s->first);) {
        s->first = job->next;
        if (job->gives_back) job->lost = hf_left_ms(job->l) <= 0;
        job_closed(job);
        post(s->addon, &job->event);
    }
    s->last = NULL;
}

void job_closed(struct job *job)
{
    const char *why = job->lost ? "lost before the store was closed" : "the store is closed";
    const char *quote = *job->key ? "'" : "", *space = *job->key ? " " : "";
    if (job->gives_back && !job->lost) return; /* closing the store releases the lock */
    job->code = job->lost ? HF_LOST : HF_CANCELED;
    snprintf(job->err.text, sizeof job->err.text, "%s%s%s%.100s%s: %s",
             job->doing ? job->doing : "close", space, quote, job->key, quote, why);
}

static void free_job(struct job *job)
{
    free(job->info);
    free(job->url);
    free(job);
}

static void drop(struct event *e) { free_job((struct job *)e); }

void job_deliver(struct addon *a, struct event *e)
{
    struct job *job = (struct job *)e;
    struct store *s = job->store;
    napi_value value = !job->code && job->result ? job->result(a, job) : NULL;
    settle(a, job->deferred, job->code, &job->err, *job->key ? job->key : NULL, value);
    if (job->lock) lock_unbusy(job);
    unpend(a);
    free_job(job);
    store_unref(s);
}

struct job *job_new(struct store *s, void (*work)(struct job *job), napi_value *promise)
{
    struct addon *a = s->addon;
    struct job *job = calloc(1, sizeof *job);
    if (!job || (promise && napi_create_promise(a->env, &job->deferred, promise))) {
        free(job);
        fail(a, HF_NOMEM, NULL, "out of memory");
        return NULL;
    }
    job->event.deliver = job_deliver;
    job->event.drop = drop;
    job->store = s;
    job->work = work;
    s->refs++;
    pend(a);
    return job;
}

void job_start(struct job *job)
{
    struct store *s = job->store;
    pthread_mutex_lock(&s->mu);
    if (s->last)
        s->last->next = job;
    else
        s->first = job;
    s->last = job;
    /* Several threads, because each may wait long for an answer. */
    if (!s->n_idle && s->n_threads < THREADS && !start_thread(&s->threads[s->n_threads], worker, s))
        s->n_threads++;
    bool alone = !s->n_threads;
    if (alone) s->first = s->last = NULL;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->mu);
    if (!alone) return;
    job->work(job); /* no thread can be started: this thread makes the call */
    post(s->addon, &job->event);
}
