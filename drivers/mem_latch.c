/*
 * mem_latch.c - sleeping on a word until another thread changes it. See mem_latch.h.
 */
#include "mem_latch.h"

#ifdef __APPLE__
/* macOS 14.4 and later; not every SDK has the header. */
int os_sync_wait_on_address(void *at, uint64_t value, size_t size, uint32_t flags);
int os_sync_wait_on_address_with_timeout(void *at, uint64_t value, size_t size, uint32_t flags,
                                         uint32_t clock, uint64_t timeout_ns);
int os_sync_wake_by_address_any(void *at, size_t size, uint32_t flags);
int os_sync_wake_by_address_all(void *at, size_t size, uint32_t flags);

enum { MACH_ABSOLUTE_TIME = 32 }; /* OS_CLOCK_MACH_ABSOLUTE_TIME */

void hf__sleep_on(_Atomic uint32_t *word, uint32_t value, int64_t us)
{
    if (us < 0)
        os_sync_wait_on_address(word, value, sizeof *word, 0);
    else
        os_sync_wait_on_address_with_timeout(word, value, sizeof *word, 0, MACH_ABSOLUTE_TIME,
                                             (uint64_t)us * 1000);
}

void hf__wake_sleepers(_Atomic uint32_t *word, int all)
{
    if (all)
        os_sync_wake_by_address_all(word, sizeof *word, 0);
    else
        os_sync_wake_by_address_any(word, sizeof *word, 0);
}
#else
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void hf__sleep_on(_Atomic uint32_t *word, uint32_t value, int64_t us)
{
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    syscall(SYS_futex, word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, value, us < 0 ? NULL : &t, NULL, 0);
}

void hf__wake_sleepers(_Atomic uint32_t *word, int all)
{
    syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, all ? INT_MAX : 1, NULL, NULL, 0);
}
#endif
