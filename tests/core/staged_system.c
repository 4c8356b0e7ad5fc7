/*
 * staged_system.c - the clock, the threads and the handles of a test on the staged store: see
 * staged.h.
 */
#include "staged.h"

#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

static int64_t suspended_us, hurry_us; /* atomic */
int __real_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    int rc = __real_clock_gettime(clock, ret);
    int64_t more = __atomic_load_n(&hurry_us, __ATOMIC_SEQ_CST);
    if (clock == CLOCK_MONOTONIC) more = 0;
    int64_t us = __atomic_add_fetch(&suspended_us, more, __ATOMIC_SEQ_CST);
    if (clock == CLOCK_MONOTONIC || !us) return rc;
    us += ret->tv_nsec / 1000;
    ret->tv_sec += us / 1000000;
    ret->tv_nsec = us % 1000000 * 1000;
    return rc;
}

void stage_hurry(int64_t us) { __atomic_store_n(&hurry_us, us, __ATOMIC_SEQ_CST); }

void stage_suspend(int64_t us) { __atomic_add_fetch(&suspended_us, us, __ATOMIC_SEQ_CST); }

static int no_threads; /* atomic */
int __real_pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*body)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*body)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*body)(void *),
                          void *arg)
{
    if (__atomic_load_n(&no_threads, __ATOMIC_SEQ_CST)) return EAGAIN;
    return __real_pthread_create(ret, attr, body, arg);
}

void stage_no_threads(int none) { __atomic_store_n(&no_threads, none, __ATOMIC_SEQ_CST); }

hf *stage_open(const char *name)
{
    hf_open_options o = HF_OPEN_OPTIONS_INIT;
    char url[64];
    hf *h;
    o.io_timeout_ms = 100;
    snprintf(url, sizeof url, "staged:%s", name);
    OK(hf_open(url, &o, &h, &stage_error));
    return h;
}

int stage_acquire(hf *h, const char *key, int64_t wait_ms, int64_t lease_ms, unsigned flags,
                  hf_lock **ret)
{
    hf_options o = HF_OPTIONS_INIT;
    o.wait_ms = wait_ms;
    o.lease_ms = lease_ms;
    o.flags = flags;
    return hf_acquire(h, key, &o, ret, &stage_error);
}
