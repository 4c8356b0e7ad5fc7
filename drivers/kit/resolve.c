/*
 * resolve.c - see resolve.h.
 *
 * Contents: jobs; the helper thread; lookups; the whole.
 */
#include "resolve.h"

#include "await.h"
#include "holdfast_driver.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- jobs ---- */

/* One call of getaddrinfo, which runs or has returned. Its helper thread and each lookup that
   joined it own it together (`owners`). `mu` protects all members but the names. */
struct job {
    struct job *next; /* in `running` */
    char *host, *port;
    int owners, done;
    int event; /* an eventfd, readable once `done` is set */
    int failure, sys;
    struct addrinfo *found;
};

struct hf__lookup {
    struct job *job; /* NULL: no thread was needed, and `to` has the endpoints */
    struct hf__endpoint to[HF_ENDPOINTS];
    size_t n;
};

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static struct job *running;
static unsigned n_running;

/* The fork handlers: the child of a fork forgets its parent's jobs, because their threads don't
   exist in it. */
static void before_fork(void) { pthread_mutex_lock(&mu); }
static void in_parent(void) { pthread_mutex_unlock(&mu); }
static void in_child(void)
{
    running = NULL;
    n_running = 0;
    pthread_mutex_unlock(&mu);
}
static void watch_forks(void) { pthread_atfork(before_fork, in_parent, in_child); }

/* Gives up one ownership of the job; the last owner frees it. The caller holds the mutex. */
static void drop(struct job *job)
{
    if (--job->owners) return;
    if (job->found) freeaddrinfo(job->found);
    if (job->event >= 0) close(job->event);
    free(job->host);
    free(job->port);
    free(job);
}

static struct job *make_job(const char *host, const char *port)
{
    struct job *job = calloc(1, sizeof *job);
    if (!job) return NULL;
    job->owners = 1;
    job->host = strdup(host);
    job->port = strdup(port);
    job->event = hf__wake_fd();
    return job;
}

static struct job *find_running(const char *host, const char *port)
{
    struct job *job = running;
    while (job && (strcmp(job->host, host) != 0 || strcmp(job->port, port) != 0)) job = job->next;
    return job;
}

/* ---- the helper thread ---- */

static void *look_up(void *arg)
{
    struct job *job = arg;
    struct addrinfo want = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    /* getaddrinfo's sockets must not be 0, 1 or 2, because the program may print there */
    hf_low_hold();
    int failure = getaddrinfo(job->host, job->port, &want, &found), sys = errno;
    hf_low_free();
    pthread_mutex_lock(&mu);
    struct job **at = &running;
    while (*at && *at != job) at = &(*at)->next;
    if (*at) {
        *at = job->next;
        n_running--;
    }
    job->failure = failure;
    job->sys = sys;
    job->found = failure ? NULL : found;
    job->done = 1;
    hf__wake(job->event);
    drop(job);
    pthread_mutex_unlock(&mu);
    return NULL;
}

/* Starts the job's thread, which blocks all signals. Returns 0 or an errno. The caller holds the
   mutex. */
static int run(struct job *job)
{
    pthread_t thread;
    pthread_attr_t attr;
    sigset_t all, before;
    int rc = pthread_attr_init(&attr);
    if (rc) return rc;
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&thread, &attr, look_up, job);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (rc) return rc;
    job->owners++;
    job->next = running;
    running = job;
    n_running++;
    return 0;
}

/* Joins the running job of this name and port, or starts a new one. Returns 0 or the code, with the
   reason. The caller holds the mutex. */
static int join_or_run(const char *host, const char *port, struct job **ret, char why[HF_KIT_WHY])
{
    struct job *job = find_running(host, port);
    if (job) {
        job->owners++;
        *ret = job;
        return 0;
    }
    if (n_running == HF_LOOKUPS) {
        snprintf(why, HF_KIT_WHY, "%d names are being looked up, none is answered", HF_LOOKUPS);
        return HF_UNAVAILABLE;
    }
    job = make_job(host, port);
    int sys = errno, lacks = !job || !job->host || !job->port;
    int failure = lacks ? ENOMEM : job->event < 0 ? sys : run(job);
    if (!failure) {
        *ret = job;
        return 0;
    }
    snprintf(why, HF_KIT_WHY, "look up the name: %s", strerror(failure));
    if (job) drop(job);
    return lacks ? HF_NOMEM : HF_UNAVAILABLE;
}

/* ---- lookups ---- */

/* Returns the first address, from `a` on, that is of the family (`same`) or of another one. */
static const struct addrinfo *of_family(const struct addrinfo *a, int family, int same)
{
    while (a && ((a->ai_family == family) != same ||
                 (size_t)a->ai_addrlen > sizeof(struct sockaddr_in6)))
        a = a->ai_next;
    return a;
}

/* Copies the endpoints, with the two families in turn. Returns their number. */
static size_t in_turn(const struct addrinfo *found, struct hf__endpoint to[HF_ENDPOINTS])
{
    if (!found) return 0;
    int family = found->ai_family, same = 1;
    const struct addrinfo *next[2] = {of_family(found, family, 0), of_family(found, family, 1)};
    size_t n = 0;
    while (n < HF_ENDPOINTS && (next[0] || next[1])) {
        if (!next[same]) same = !same;
        const struct addrinfo *a = next[same];
        memset(&to[n], 0, sizeof to[n]);
        to[n].len = a->ai_addrlen;
        memcpy(&to[n++].to, a->ai_addr, a->ai_addrlen);
        next[same] = of_family(a->ai_next, family, same);
        same = !same;
    }
    return n;
}

/* Resolves a path or a numeric address, without a thread. Returns 1 if the host was one; then l->to
   is filled. */
static int without_thread(struct hf__lookup *l, const char *host, const char *port, int *ret_rc)
{
    struct addrinfo want = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *found = NULL;
    *ret_rc = 0;
    if (host[0] == '/') {
        *ret_rc = hf__endpoint_local(&l->to[0], host);
        l->n = 1;
        return 1;
    }
    want.ai_flags |= AI_NUMERICSERV;
    if (getaddrinfo(host, port, &want, &found)) return 0;
    l->n = in_turn(found, l->to);
    freeaddrinfo(found);
    return 1;
}

int hf__lookup_start(const char *host, const char *port, struct hf__lookup **ret,
                     char why[HF_KIT_WHY])
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct hf__lookup *l = calloc(1, sizeof *l);
    int rc = 0;
    *ret = NULL;
    why[0] = 0;
    if (!l) {
        snprintf(why, HF_KIT_WHY, "out of memory");
        return HF_NOMEM;
    }
    if (without_thread(l, host, port, &rc)) {
        if (rc) snprintf(why, HF_KIT_WHY, "the path of the socket is too long");
    } else {
        pthread_once(&once, watch_forks);
        pthread_mutex_lock(&mu);
        rc = join_or_run(host, port, &l->job, why);
        pthread_mutex_unlock(&mu);
    }
    if (rc)
        free(l);
    else
        *ret = l;
    return rc;
}

int hf__lookup_fd(const struct hf__lookup *l) { return l->job ? l->job->event : -1; }

int hf__lookup_take(struct hf__lookup *l, struct hf__endpoint to[HF_ENDPOINTS], size_t *ret_n,
                    char why[HF_KIT_WHY])
{
    why[0] = 0;
    if (!l->job) {
        memcpy(to, l->to, l->n * sizeof *to);
        *ret_n = l->n;
        return 0;
    }
    pthread_mutex_lock(&mu);
    int done = l->job->done, failure = l->job->failure, sys = l->job->sys;
    size_t n = done && !failure ? in_turn(l->job->found, to) : 0;
    pthread_mutex_unlock(&mu);
    if (!done) return HF_LOOKUP_PENDING;
    if (failure || !n) {
        snprintf(why, HF_KIT_WHY, "%s",
                 failure == EAI_SYSTEM ? strerror(sys)
                                       : gai_strerror(failure ? failure : EAI_NONAME));
        return failure == EAI_MEMORY ? HF_NOMEM : HF_UNAVAILABLE;
    }
    *ret_n = n;
    return 0;
}

void hf__lookup_end(struct hf__lookup *l)
{
    if (!l) return;
    if (l->job) {
        pthread_mutex_lock(&mu);
        drop(l->job);
        pthread_mutex_unlock(&mu);
    }
    free(l);
}

/* ---- the whole ---- */

int hf__resolve(const char *host, const char *port, int64_t until_us,
                struct hf__endpoint to[HF_ENDPOINTS], size_t *ret_n, char why[HF_KIT_WHY])
{
    struct hf__lookup *l;
    int rc = hf__lookup_start(host, port, &l, why);
    if (rc) return rc;
    while ((rc = hf__lookup_take(l, to, ret_n, why)) == HF_LOOKUP_PENDING) {
        struct pollfd p = {hf__lookup_fd(l), POLLIN, 0};
        if (hf__wait_until(&p, 1, until_us) > 0) continue;
        snprintf(why, HF_KIT_WHY, "the name servers don't answer in time");
        rc = HF_UNAVAILABLE;
        break;
    }
    hf__lookup_end(l);
    return rc;
}
