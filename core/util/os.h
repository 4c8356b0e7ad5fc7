/*
 * os.h - the system's clocks, timers, randomness and descriptors. The core and the drivers' kit ask
 * the system for these by os.h only. Times are in microseconds.
 *
 * Any thread may call any function.
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

/* For functions that the fast path seldom calls: not inlined, they cost it neither registers nor
   stack. */
#define HF_APART __attribute__((noinline))
#define HF_COLD  __attribute__((cold, noinline))

/* Returns the local time, CLOCK_BOOTTIME: it goes on in suspend and never steps. */
int64_t hf__local_us(void);
/* Returns hf__local_us() as of the kernel's last tick, at a quarter of the cost. It is at most 10
   ms behind (more in the first second after a suspend), never ahead, and may step back a little. */
int64_t hf__local_rough_us(void);
/* Returns the time of day since 1970. It steps when the time is set, so the core doesn't use it.
   Drivers do: as the clock of a store that has none, and where a server asks for a date. */
int64_t hf__day_us(void);
/* Fills `to` with random bytes from the system; ends the process if there are none. */
void hf__random(void *to, size_t len);
/* Initializes a condition for hf__cond_until. */
void hf__thread_condition(pthread_cond_t *cond);
/* Waits for the condition, until local_us at the latest (INT64_MAX: no limit). May return early:
   the caller checks again what it waits for, and the clock. If the machine is suspended meanwhile,
   the wait is longer by the suspend. Called with the mutex locked. */
void hf__cond_until(pthread_cond_t *cond, pthread_mutex_t *mu, int64_t local_us);
/* Writes the name of this process's user, as the environment has it: a directory server, which
   getpwuid may ask, would take time. If the environment has none: "root", or the number. */
void hf__user_name(char *to, size_t cap);

/* Returns the number of the PID namespace of this process: a pid means the same process only within
   one of them. 0: it can't be found. */
uint64_t hf__pid_namespace(void);
/* Returns a number that is another one in the child of a fork. */
unsigned hf__fork_generation(void);
/* The same number, to be read without a call. Valid after the first hf__fork_generation(). */
extern unsigned hf__forks;

/*
 * The library never uses descriptors 0, 1 and 2, even if the program has closed them: what the
 * program prints would land in what is opened there. Every descriptor of this project comes from
 * these functions.
 *
 * hf__fd_above: takes over the result of socket, eventfd, dup and their kind. Returns `fd` itself
 * if it is above 2. Otherwise closes it, and returns a duplicate that is above 2 and closed on
 * exec. Returns -1 (errno says why) if `fd` is negative or can't be duplicated: nothing is left
 * open.
 *
 * hf__open, hf__open_at (as openat), hf__fopen (for reading): always closed on exec; not even for a
 * moment at 0, 1 or 2. Return the descriptor or the stream, or -1 or NULL and errno.
 *
 * While another library opens descriptors of its own, hf_low_hold (holdfast_driver.h) occupies
 * them.
 */
int hf__fd_above(int fd);
int hf__open(const char *path, int flags, unsigned mode);
int hf__open_at(int dir, const char *path, int flags, unsigned mode);
FILE *hf__fopen(const char *path);

/* Makes a socket, which is closed on exec; `type` as in socket(2). Returns -1 and errno if it
 * fails.
 */
int hf__socket(int family, int type, int protocol);
int hf__socket_nonblocking(int family, int type, int protocol);

/* Makes a descriptor that is ready to be read once another thread has called hf__wake: an eventfd,
   on macOS a kqueue. Returns -1 if that fails: errno says why. */
int hf__wake_fd(void);
/* Makes the descriptor ready. */
void hf__wake(int wake_fd);
/* Returns 1 if hf__wake was called since the last call, and makes the descriptor not ready. */
int hf__woken(int wake_fd);

#endif
