/*
 * os_macos.c - clocks, conditions, randomness and descriptors that wake, on macOS. See os.h. This
 * file is compiled by the tests, but was never run.
 */
#include "os.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/event.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int64_t read_us(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* Returns a clock that goes on while the machine sleeps, mach_continuous_time. */
int64_t hf__local_us(void) { return read_us(CLOCK_MONOTONIC_RAW); }

int64_t hf__local_rough_us(void) { return read_us(CLOCK_MONOTONIC_RAW_APPROX); }

int64_t hf__day_us(void) { return read_us(CLOCK_REALTIME); }

/* ---- conditions ---- */

void hf__thread_condition(pthread_cond_t *cond) { pthread_cond_init(cond, NULL); }

void hf__cond_until(pthread_cond_t *cond, pthread_mutex_t *mu, int64_t local_us)
{
    if (local_us == INT64_MAX) {
        pthread_cond_wait(cond, mu);
        return;
    }
    int64_t left = local_us - hf__local_us();
    if (left <= 0) return;
    struct timespec t = {left / 1000000, left % 1000000 * 1000};
    pthread_cond_timedwait_relative_np(cond, mu, &t);
}

/* ---- randomness ---- */

void hf__random(void *to, size_t len) { arc4random_buf(to, len); }

/* ---- sockets ---- */

int hf__socket(int family, int type, int protocol)
{
    int fd = hf__fd_above(socket(family, type, protocol));
    if (fd < 0) return fd;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &(int){1}, sizeof(int));
    return fd;
}

int hf__socket_nonblocking(int family, int type, int protocol)
{
    int fd = hf__socket(family, type, protocol);
    if (fd >= 0) fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

/* ---- descriptors that wake: a kqueue, which poll(2) takes, with an event of our own ---- */

enum { OURS = 1 };

int hf__wake_fd(void)
{
    struct kevent add;
    int fd = hf__fd_above(kqueue());
    EV_SET(&add, OURS, EVFILT_USER, EV_ADD | EV_CLEAR, 0, 0, NULL);
    if (fd < 0 || !kevent(fd, &add, 1, NULL, 0, NULL)) return fd;
    close(fd);
    return -1;
}

void hf__wake(int wake_fd)
{
    struct kevent set;
    EV_SET(&set, OURS, EVFILT_USER, 0, NOTE_TRIGGER, 0, NULL);
    kevent(wake_fd, &set, 1, NULL, 0, NULL);
}

int hf__woken(int wake_fd)
{
    const struct timespec none = {0, 0};
    struct kevent got;
    return kevent(wake_fd, NULL, 0, &got, 1, &none) == 1;
}
