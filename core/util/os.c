/*
 * os.c - time, timers, conditions, randomness, fork, descriptors. See os.h.
 */
#include "os.h"

#include "holdfast_driver.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
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

/* ---- randomness, forks ---- */

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

unsigned hf__forks;
static pthread_once_t watched = PTHREAD_ONCE_INIT;

static void in_child(void) { hf__forks++; }

static void watch_forks(void) { pthread_atfork(NULL, NULL, in_child); }

unsigned hf__fork_generation(void)
{
    pthread_once(&watched, watch_forks);
    return hf__forks;
}

/* ---- the user's name ---- */

void hf__user_name(char *to, size_t cap)
{
    const char *name = secure_getenv("USER");
    if (!name || !*name) name = secure_getenv("LOGNAME");
    if ((!name || !*name) && !getuid()) name = "root";
    if (name && *name)
        snprintf(to, cap, "%s", name);
    else
        snprintf(to, cap, "%ld", (long)getuid());
}

uint64_t hf__pid_namespace(void)
{
    struct stat s;
    return stat("/proc/self/ns/pid", &s) ? 0 : (uint64_t)s.st_ino;
}

/* ---- descriptors ---- */

int hf__fd_above(int fd)
{
    if (fd < 0 || fd > STDERR_FILENO) return fd;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), sys = errno;
    close(fd);
    errno = sys;
    return high;
}

int hf__open(const char *path, int flags, unsigned mode)
{
    return hf__open_at(AT_FDCWD, path, flags, mode);
}

int hf__open_at(int dir, const char *path, int flags, unsigned mode)
{
    hf_low_hold();
    int fd = dir == AT_FDCWD ? open(path, flags | O_CLOEXEC, mode)
                             : openat(dir, path, flags | O_CLOEXEC, mode);
    hf_low_free();
    /* `fd` may still be 0, 1 or 2, if hf_low_hold failed or another thread has closed one. */
    return hf__fd_above(fd);
}

FILE *hf__fopen(const char *path)
{
    int fd = hf__open(path, O_RDONLY, 0);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
    if (!f && fd >= 0) {
        int sys = errno;
        close(fd);
        errno = sys;
    }
    return f;
}
