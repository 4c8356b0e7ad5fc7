/*
 * os.h - the only place in the core that asks the system for time, timers and randomness.
 */
#ifndef HF_OS_H
#define HF_OS_H

#include <stddef.h>
#include <stdint.h>

/* What is seldom needed stays out of what is always needed: its registers and its stack, too. */
#define HF_APART __attribute__((noinline))
#define HF_COLD  __attribute__((cold, noinline))

int64_t hf__local_us(void); /* CLOCK_BOOTTIME: goes on in suspend, never steps */
/* The same as of the kernel's last tick (10 ms ago at most; within a second of a suspend by more),
   at a quarter of the price. Never ahead of hf__local_us. May step back a little. */
int64_t hf__local_rough_us(void);
int64_t hf__day_us(void);              /* time of day; steps: only to start a clock of one's own */
void hf__random(void *to, size_t len); /* from the system; aborts if there is none */
/* A timer that a thread sleeps by: a descriptor, or -1. Set to 0 it isn't set. */
int hf__timer_open(void);
void hf__timer_set(int fd, int64_t us);
void hf__timer_sleep(int fd);       /* until it has run out; less, if anything is wrong with it */
unsigned hf__fork_generation(void); /* changes in the child of a fork */
extern unsigned hf__forks;          /* the same, once it has been asked for */

#endif
