/*
 * stepped.c - a wall clock that goes wrong, for a process that preloads this: it is hf_test_step_s
 * seconds later than the others', for all of the process, its libraries too.
 */
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

__attribute__((visibility("default"))) _Atomic int64_t hf_test_step_s;

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *ret)
{
    int rc = (int)syscall(SYS_clock_gettime, clock, ret);
    if (!rc && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        ret->tv_sec += hf_test_step_s;
    return rc;
}

__attribute__((visibility("default"))) int gettimeofday(struct timeval *restrict ret,
                                                        void *restrict zone)
{
    struct timespec t;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &t);
    ret->tv_sec = t.tv_sec;
    ret->tv_usec = t.tv_nsec / 1000;
    return 0;
}

__attribute__((visibility("default"))) time_t time(time_t *ret)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (ret) *ret = t.tv_sec;
    return t.tv_sec;
}
