/*
 * low_fd.c - keeps descriptors 0, 1 and 2 occupied while a library opens its own. See
 * holdfast_driver.h. The calls are counted here, for the core and all drivers together: each has a
 * copy of os.c.
 */
#include "holdfast_driver.h"
#include "thread.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

/* The calls of hf_low_hold that hf_low_free hasn't ended, all and this thread's, and the
   descriptors that they occupy, a bit each. */
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static unsigned users, occupied;
static HF_THREAD_LOCAL unsigned users_here;

/* The child of a fork has this thread alone: the calls of the others end here, and one of them may
   have the mutex. */
static void in_child(void)
{
    pthread_mutex_init(&mu, NULL);
    users = users_here;
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, in_child); }

void hf_low_hold(void)
{
    static pthread_once_t watched = PTHREAD_ONCE_INIT;
    pthread_once(&watched, watch_forks);
    pthread_mutex_lock(&mu);
    users++;
    users_here++;
    /* Reads and writes on an O_PATH descriptor fail with EBADF. */
    for (int fd; (fd = open("/", O_PATH | O_CLOEXEC)) >= 0;) {
        if (fd > STDERR_FILENO) {
            close(fd);
            break;
        }
        occupied |= 1U << fd;
    }
    pthread_mutex_unlock(&mu);
}

void hf_low_free(void)
{
    int sys = errno;
    pthread_mutex_lock(&mu);
    users_here--;
    if (!--users) {
        for (int fd = 0; fd <= STDERR_FILENO; fd++) {
            /* A descriptor that the program has replaced meanwhile isn't O_PATH: it stays. */
            int flags = occupied & 1U << fd ? fcntl(fd, F_GETFL) : -1;
            if (flags >= 0 && flags & O_PATH) close(fd);
        }
        occupied = 0;
    }
    pthread_mutex_unlock(&mu);
    errno = sys;
}
