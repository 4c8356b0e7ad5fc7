/*
 * nats_fork.c - a fork while another thread has a lock of libnats: the child opens the store anew
 * all the same. Run by tests/servers/nats.
 *
 * A thread acquires and releases a key. It stays in the first lock that libnats takes for it until
 * a fork has happened, the next time in the second one, and so on. fork_locks.c tries the login.
 */
#include "holdfast.h"

#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHILD_S = 60, STAYS_MS = 50, FEWEST = 10 };

static __thread int to_stay; /* this thread stays in the lock with that number; 0: in none */
static int in_lock;          /* 1: the thread stays in one now (atomic) */
static int hits;             /* how many forks began meanwhile */
static sem_t locked, forked;

static int is_of_libnats(const void *caller)
{
    Dl_info of;
    return dladdr(caller, &of) && of.dli_fname && strstr(of.dli_fname, "/libnats.");
}

/* Stays in the lock that this thread has just taken, if it is the one. A fork that waits for the
   thread comes when it goes on. */
static void stay_in_it(const void *caller)
{
    struct timespec until;
    if (!to_stay || !is_of_libnats(caller) || --to_stay) return;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += STAYS_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    __atomic_store_n(&in_lock, 1, __ATOMIC_SEQ_CST);
    sem_post(&locked);
    sem_timedwait(&forked, &until);
    __atomic_store_n(&in_lock, 0, __ATOMIC_SEQ_CST);
}

/* A program's own function comes before the C library's, also for libnats, which tries a lock some
   thousand times before it waits. */
__attribute__((visibility("default"))) int pthread_mutex_trylock(pthread_mutex_t *lock)
{
    static int (*real)(pthread_mutex_t *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pthread_mutex_trylock");
    int rc = real(lock);
    if (!rc) stay_in_it(__builtin_return_address(0));
    return rc;
}

__attribute__((visibility("default"))) int pthread_mutex_lock(pthread_mutex_t *lock)
{
    static int (*real)(pthread_mutex_t *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pthread_mutex_lock");
    int rc = real(lock);
    if (!rc) stay_in_it(__builtin_return_address(0));
    return rc;
}

static hf *store;
static hf_error err;

static int use(const char *key)
{
    hf_options o = HF_OPTIONS_INIT;
    hf_lock *lock;
    o.wait_ms = 30000;
    int rc = hf_acquire(store, key, &o, &lock, &err);
    return rc ? rc : hf_release(lock, &err);
}

/* Returns NULL if it has stayed in a lock; it takes fewer otherwise. */
static void *holder(void *arg)
{
    static int none;
    to_stay = *(int *)arg;
    if (use("holder")) printf("# the holder: %s\n", err.text);
    if (!to_stay) return NULL;
    sem_post(&locked);
    return &none;
}

/* Forks while a thread is in the n-th lock. Returns 0: the child has used the store; 1: there are
   fewer locks; negative: the child failed. */
static int try_one(int n)
{
    pthread_t thread;
    void *is_fewer;
    int status = 1;
    sem_init(&forked, 0, 0);
    if (pthread_create(&thread, NULL, holder, &n)) return -1;
    while (sem_wait(&locked)) continue;
    fflush(stdout);
    hits += __atomic_load_n(&in_lock, __ATOMIC_SEQ_CST);
    pid_t pid = fork();
    if (!pid) {
        alarm(CHILD_S);
        _exit(use("child") != 0);
    }
    sem_post(&forked);
    waitpid(pid, &status, 0);
    pthread_join(thread, &is_fewer);
    if (status) printf("# lock %d: the child's status: %d\n", n, status);
    return status ? -1 : is_fewer != NULL;
}

int main(int argc, char **argv)
{
    int n = 0, rc;
    sem_init(&locked, 0, 0);
    if (argc < 2 || hf_open(argv[1], NULL, &store, &err) || use("before")) {
        printf("Bail out! %s\n", err.text);
        return 1;
    }
    do rc = try_one(++n);
    while (!rc);
    hf_close(store);
    int good = rc > 0 && n > FEWEST && hits > 0;
    printf("1..1\n# %d locks, %d hits\n%sok 1 - a child of fork waits for no lock of others\n",
           n - 1, hits, good ? "" : "not ");
    return !good;
}
