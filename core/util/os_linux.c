/*
 * os_linux.c - clocks, conditions, randomness and descriptors that wake, on Linux. See os.h.
 */
#include "os.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int64_t read_us(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int64_t hf__local_us(void) { return read_us(CLOCK_BOOTTIME); }

/* There is no coarse CLOCK_BOOTTIME: hf__local_rough_us adds the distance between CLOCK_BOOTTIME
   and CLOCK_MONOTONIC to CLOCK_MONOTONIC_COARSE. The distance changes in a suspend only, and is
   measured again once a second. */
static int64_t measured_us, distance_us;

static HF_COLD void measure(int64_t coarse_us)
{
    /* In this order, so that a pause between them makes the result too small, not too large. */
    int64_t boot = read_us(CLOCK_BOOTTIME);
    int64_t distance = boot - read_us(CLOCK_MONOTONIC);
    __atomic_store_n(&distance_us, distance, __ATOMIC_RELAXED);
    __atomic_store_n(&measured_us, coarse_us, __ATOMIC_RELEASE);
}

int64_t hf__local_rough_us(void)
{
    int64_t coarse = read_us(CLOCK_MONOTONIC_COARSE);
    int64_t at = __atomic_load_n(&measured_us, __ATOMIC_ACQUIRE);
    if (!at || coarse - at > 1000000) measure(coarse);
    return coarse + __atomic_load_n(&distance_us, __ATOMIC_RELAXED);
}

int64_t hf__day_us(void) { return read_us(CLOCK_REALTIME); }

/* ---- conditions ---- */

void hf__thread_condition(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

void hf__cond_until(pthread_cond_t *cond, pthread_mutex_t *mu, int64_t local_us)
{
    if (local_us == INT64_MAX) {
        pthread_cond_wait(cond, mu);
        return;
    }
    int64_t left = local_us - hf__local_us();
    if (left <= 0) return;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += left / 1000000;
    t.tv_nsec += left % 1000000 * 1000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    pthread_cond_timedwait(cond, mu, &t);
}

/* ---- randomness ---- */

void hf__random(void *to, size_t len)
{
    unsigned char *p = to;
    while (len) {
        ssize_t n = syscall(SYS_getrandom, p, len, 0); /* glibc has a function since 2.25 */
        if (n < 0 && errno == EINTR) continue;
        /* Without randomness two owners could be mistaken for each other. */
        if (n <= 0) abort();
        p += n;
        len -= (size_t)n;
    }
}

/* ---- sockets, and descriptors that wake ---- */

int hf__socket(int family, int type, int protocol)
{
    return hf__fd_above(socket(family, type | SOCK_CLOEXEC, protocol));
}

int hf__socket_nonblocking(int family, int type, int protocol)
{
    return hf__fd_above(socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol));
}

int hf__wake_fd(void) { return hf__fd_above(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }

void hf__wake(int wake_fd)
{
    /* A full eventfd can't be written to, but is ready already. */
    if (eventfd_write(wake_fd, 1)) return;
}

int hf__woken(int wake_fd)
{
    eventfd_t n;
    return !eventfd_read(wake_fd, &n);
}
