/*
 * mongodb_fork.c - a fork while another thread has a lock of libmongoc's that is the whole
 * process's: the child opens the store anew all the same. Run by tests/servers/mongodb.
 *
 * libmongoc takes that lock for a moment with each command. Here its holder stays in it until the
 * fork has happened, or for so long that a fork would have, unless fork waits for the holder.
 */
#include "holdfast.h"

#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { STAYS_MS = 500, CHILD_S = 60 };

static __thread int stays; /* this thread: in the next lock of this kind that it takes */
static sem_t locked, forked;

/* libmongoc's, too: a program's own function comes before the C library's. */
__attribute__((visibility("default"))) int pthread_rwlock_rdlock(pthread_rwlock_t *lock)
{
    int (*real)(pthread_rwlock_t *);
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_rwlock_rdlock");
    int rc = real(lock);
    if (rc || !stays) return rc;
    stays = 0;
    struct timespec until;
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

static int use(const char *key, int64_t wait_ms)
{
    hf_options o = HF_OPTIONS_INIT;
    hf_lock *lock;
    o.wait_ms = wait_ms;
    int rc = hf_acquire(store, key, &o, &lock, &err);
    return rc ? rc : hf_release(lock, &err);
}

static void *holder(void *arg)
{
    stays = 1;
    if (use(arg, 60000)) printf("# the holder: %s\n", err.text);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    char key[] = "holder";
    int status = 1;
    sem_init(&locked, 0, 0);
    sem_init(&forked, 0, 0);
    if (argc < 2 || hf_open(argv[1], NULL, &store, &err) || use("before", 60000) ||
        pthread_create(&thread, NULL, holder, key)) {
        printf("Bail out! %s\n", err.text);
        return 1;
    }
    sem_wait(&locked);
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        alarm(CHILD_S);
        _exit(use("child", 30000) != 0);
    }
    sem_post(&forked);
    waitpid(pid, &status, 0);
    pthread_join(thread, NULL);
    hf_close(store);
    printf("1..1\n# the child's status: %d\n%sok 1 - a child of fork waits for no lock of others\n",
           status, status ? "not " : "");
    return status != 0;
}
