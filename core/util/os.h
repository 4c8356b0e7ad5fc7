/*
 * os.h - the only place that asks the system for time, timers, conditions, randomness and
 * descriptors: in the core, and in the kit for drivers. Times are in microseconds.
 *
 * Thread safety: all functions by any thread.
 */
#ifndef HF_OS_H
#define HF_OS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#if defined(__GLIBC__) && __GLIBC__ == 2 && __GLIBC_MINOR__ < 25
/* Wipes memory, for C libraries without explicit_bzero. */
static inline void hf__explicit_bzero(void *at, size_t len)
{
    memset(at, 0, len);
    __asm__ volatile("" : : "r"(at) : "memory"); /* so that the memset isn't removed as useless */
}
#define explicit_bzero hf__explicit_bzero
#endif

/* Code that is seldom needed stays out of the fast path, with its registers and its stack. */
#define HF_APART __attribute__((noinline))
#define HF_COLD  __attribute__((cold, noinline))

int64_t hf__local_us(void); /* CLOCK_BOOTTIME: goes on in suspend, never steps */
/* The same as of the kernel's last tick (10 ms ago at most; within a second of a suspend by more),
   at a quarter of the price. Never ahead of hf__local_us. May step back a little. */
int64_t hf__local_rough_us(void);
/* The time of day, since 1970. It steps when it is set: only for a store whose clock it is, or to
   start a clock. */
int64_t hf__day_us(void);
/* Fills `to` with random bytes from the system; ends the process if there are none. */
void hf__random(void *to, size_t len);
/* A condition whose waits end at a local time (INT64_MAX: never). A wait may end early: the caller
   looks at what it waits for, and at the clock, again. */
void hf__thread_condition(pthread_cond_t *cond);
void hf__cond_until(pthread_cond_t *cond, pthread_mutex_t *mu, int64_t local_us);
unsigned hf__fork_generation(void); /* a number that changes in the child of a fork */
extern unsigned hf__forks;          /* the same number, without a call, once hf__fork_generation was
                                       called */

/*
 * Descriptors 0, 1 and 2 are not ours, even while they are closed: what the program prints would
 * land in what is opened there. Every descriptor that this project opens comes from here.
 *
 * hf__fd_above: takes the result of socket, eventfd, dup and their kind over. Returns it, or a
 * duplicate of it that is above 2 and closed on exec; the low one is closed then. -1 (errno says
 * why) if `fd` is negative or no duplicate could be made: nothing is left open.
 *
 * hf__open, hf__open_at (as openat), hf__fopen (for reading): always closed on exec; not even for a
 * moment at 0, 1 or 2. Return the descriptor or the stream, or -1 or NULL and errno.
 *
 * hf__low_hold: holds 0, 1 and 2 where they are closed, for a library that opens descriptors of
 * its own; what is read from or written to them fails with EBADF as if they were closed. Keep it
 * short. Returns the set held, for hf__low_free, which keeps errno.
 */
int hf__fd_above(int fd);
int hf__open(const char *path, int flags, unsigned mode);
int hf__open_at(int dir, const char *path, int flags, unsigned mode);
FILE *hf__fopen(const char *path);
unsigned hf__low_hold(void);
void hf__low_free(unsigned held);

#endif
