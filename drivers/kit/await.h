/*
 * await.h - waiting for descriptors until a time, and waking the thread that waits.
 */
#ifndef HF_KIT_AWAIT_H
#define HF_KIT_AWAIT_H

#include "os.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Waits for the descriptors until the local time until_us. Returns how many of them are ready; 0:
   the time is over, and the descriptors were not checked; -1: poll failed, with errno. */
static inline int hf__wait_until(struct pollfd *fds, nfds_t n, int64_t until_us)
{
    for (;;) {
        int64_t left_us = until_us - hf__local_us();
        if (left_us <= 0) return 0;
        /* poll doesn't count the time of a suspend, so it is called for a minute at most. */
        int ready = poll(fds, n, left_us > 60000000 ? 60000 : (int)(left_us / 1000 + 1));
        if (ready > 0 || (ready < 0 && errno != EINTR)) return ready;
    }
}

/* Makes a descriptor that is ready to be read once another thread has called hf__wake. Returns -1
   if that fails: errno says why. */
static inline int hf__wake_fd(void) { return hf__fd_above(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }

/* Makes the descriptor ready. Any thread may call it. */
static inline void hf__wake(int wake_fd)
{
    const uint64_t one = 1;
    ssize_t n = write(wake_fd, &one, sizeof one);
    (void)n; /* a full eventfd can't be written to, but is ready already */
}

/* Returns 1 if hf__wake was called since the last call. */
static inline int hf__woken(int wake_fd)
{
    uint64_t n;
    return read(wake_fd, &n, sizeof n) == (ssize_t)sizeof n;
}

#endif
