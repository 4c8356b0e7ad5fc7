/*
 * fork_locks.c - a fork while another thread has a lock of a library: the child uses the store all
 * the same.
 *
 *     fork_locks URL LIBRARY...
 *
 * A thread opens the store, acquires and releases a key, and closes the store; then it acquires and
 * releases one by a connection that another thread has made. It stays in the first mutex, or lock
 * for writing, that one of the libraries takes for it until a fork has happened. In a new process
 * it stays in the second one, and so on, in ever longer steps: some take thousands. A child that
 * finds such a lock taken waits for ever, and alarm(2) ends it.
 */
#include "holdfast.h"

#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHILD_S = 40, TRIES_S = 20, STAYS_MS = 100, MOST = 1 << 16 };

static int to_stay; /* the lock with that number is stayed in; 0: none (atomic) */
static __thread int is_main;
static int in_lock; /* 1: the thread stays in one now (atomic) */
static int *hits;   /* how many forks began meanwhile; shared by the processes */
static sem_t locked, forked;
static char **libraries;

static int is_of_library(const void *caller)
{
    Dl_info of;
    char **name = libraries;
    if (!dladdr(caller, &of) || !of.dli_fname) return 0;
    while (*name && !strstr(of.dli_fname, *name)) name++;
    return *name != NULL;
}

/* Stays in the lock that this thread has just taken, if it is the one. A fork that waits for the
   thread comes when it goes on. */
static void stay_in_it(const void *caller)
{
    struct timespec until;
    if (is_main || !__atomic_load_n(&to_stay, __ATOMIC_SEQ_CST) || !is_of_library(caller) ||
        __atomic_sub_fetch(&to_stay, 1, __ATOMIC_SEQ_CST))
        return;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += STAYS_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    __atomic_store_n(&in_lock, 1, __ATOMIC_SEQ_CST);
    sem_post(&locked);
    sem_timedwait(&forked, &until);
    __atomic_store_n(&in_lock, 0, __ATOMIC_SEQ_CST);
}

/* A program's own functions come before the C library's, also for these libraries. */
#define STAYS_IN(name, type)                                    \
    __attribute__((visibility("default"))) int name(type *lock) \
    {                                                           \
        static int (*real)(type *);                             \
        if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name);   \
        int rc = real(lock);                                    \
        if (!rc) stay_in_it(__builtin_return_address(0));       \
        return rc;                                              \
    }
STAYS_IN(pthread_mutex_lock, pthread_mutex_t)
STAYS_IN(pthread_mutex_trylock, pthread_mutex_t)
STAYS_IN(pthread_rwlock_wrlock, pthread_rwlock_t)

static hf *store;
static hf_error err;

/* On a busy machine a login may take too long: then it is tried again. */
static int use(hf *by, const char *key, hf_error *why)
{
    hf_options o = HF_OPTIONS_INIT;
    hf_lock *lock;
    time_t until = time(NULL) + TRIES_S;
    int rc;
    o.wait_ms = TRIES_S * 1000;
    do rc = hf_acquire(by, key, &o, &lock, why);
    while (rc == HF_UNAVAILABLE && time(NULL) < until);
    return rc ? rc : hf_release(lock, why);
}

/* Returns NULL if it has stayed in a lock; it takes fewer otherwise. */
static void *holder(void *arg)
{
    static int none;
    hf_error why = {0, 0, ""};
    hf *own = NULL;
    if (hf_open(arg, NULL, &own, &why) || use(own, "login", &why) || use(store, "holder", &why))
        printf("# the holder: %s\n", why.text);
    hf_close(own);
    if (!__atomic_load_n(&to_stay, __ATOMIC_SEQ_CST)) return NULL;
    sem_post(&locked);
    return &none;
}

/* Forks while a thread is in the n-th lock. Returns 0: the child has used the store; 1: it has, but
   there are fewer locks; 2: it failed. */
static int try_one(char *url, int n)
{
    pthread_t thread;
    void *is_fewer;
    int status = 1;
    is_main = 1;
    sem_init(&locked, 0, 0);
    sem_init(&forked, 0, 0);
    if (hf_open(url, NULL, &store, &err) || use(store, "before", &err)) {
        printf("# %s\n", err.text);
        return 2;
    }
    __atomic_store_n(&to_stay, n, __ATOMIC_SEQ_CST);
    if (pthread_create(&thread, NULL, holder, url)) return 2;
    while (sem_wait(&locked)) continue;
    *hits += __atomic_load_n(&in_lock, __ATOMIC_SEQ_CST);
    pid_t pid = fork();
    if (!pid) {
        alarm(CHILD_S);
        int rc = use(store, "child", &err);
        if (rc) printf("# the child: %s\n", err.text);
        _exit(rc != 0);
    }
    sem_post(&forked);
    waitpid(pid, &status, 0);
    pthread_join(thread, &is_fewer);
    if (status) printf("# lock %d: the child's status: %d\n", n, status);
    return status ? 2 : is_fewer != NULL;
}

int main(int argc, char **argv)
{
    int n = 1, status = 2 << 8;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc < 3) return printf("Bail out! no store\n"), 1;
    libraries = argv + 2;
    hits = mmap(NULL, sizeof *hits, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (hits == MAP_FAILED) return printf("Bail out! no memory\n"), 1;
    do { /* each in a process of its own */
        pid_t pid = fork();
        if (!pid) _exit(try_one(argv[1], n));
        if (pid < 0 || waitpid(pid, &status, 0) != pid) break;
        n += 1 + n / 2;
    } while (!status && n < MOST);
    int good = WIFEXITED(status) && WEXITSTATUS(status) == 1 && n > 2 && *hits > 0;
    printf("1..1\n# fewer than %d locks, %d hits\n%sok 1 - a child of fork waits for no lock of "
           "others\n",
           n, *hits, good ? "" : "not ");
    return !good;
}
