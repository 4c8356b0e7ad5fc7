/*
 * s3_fork.c - a fork while another thread, by the first request of the process, has locked for
 * writing what OpenSSL keeps for the whole process: the child uses the store all the same. Run by
 * tests/servers/s3.
 *
 * The thread stays in the first such lock that it takes until a fork has happened. In a new process
 * it stays in the second one, then in the fourth, and so on: it takes some hundreds.
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

enum { CHILD_S = 30, STAYS_MS = 50, MOST = 1 << 16 };

static __thread int to_stay; /* this thread stays in the lock with that number; 0: in none */
static sem_t locked, forked;

static int is_of_openssl(const void *caller)
{
    Dl_info of;
    return dladdr(caller, &of) && of.dli_fname && strstr(of.dli_fname, "/libcrypto.");
}

/* A program's own function comes before the C library's, also for OpenSSL. A fork that waits for
   the thread comes when it goes on. */
__attribute__((visibility("default"))) int pthread_rwlock_wrlock(pthread_rwlock_t *lock)
{
    int (*real)(pthread_rwlock_t *);
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_rwlock_wrlock");
    int rc = real(lock);
    struct timespec until;
    if (rc || !to_stay || !is_of_openssl(__builtin_return_address(0)) || --to_stay) return rc;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += STAYS_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    sem_post(&locked);
    sem_timedwait(&forked, &until);
    return rc;
}

static hf *store;
static hf_error err;

static int use(const char *key)
{
    hf_options o = HF_OPTIONS_INIT;
    hf_lock *lock;
    o.wait_ms = 20000;
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

/* Forks while a thread is in the n-th lock. Returns 0: the child has used the store; 1: it has, but
   there are fewer locks; 2: it failed. */
static int try_one(const char *url, int n)
{
    pthread_t thread;
    void *is_fewer;
    int status = 1;
    sem_init(&locked, 0, 0);
    sem_init(&forked, 0, 0);
    if (hf_open(url, NULL, &store, &err) || pthread_create(&thread, NULL, holder, &n)) return 2;
    while (sem_wait(&locked)) continue;
    pid_t pid = fork();
    if (!pid) {
        alarm(CHILD_S);
        _exit(use("child") != 0);
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
    if (argc < 2) return printf("Bail out! no store\n"), 1;
    do { /* each in a process that has used nothing yet */
        pid_t pid = fork();
        if (!pid) _exit(try_one(argv[1], n));
        if (pid < 0 || waitpid(pid, &status, 0) != pid) break;
    } while (!status && (n *= 2) < MOST);
    int good = WIFEXITED(status) && WEXITSTATUS(status) == 1;
    printf("1..1\n# fewer than %d locks\n%sok 1 - a child of fork waits for no lock of others\n", n,
           good ? "" : "not ");
    return !good;
}
