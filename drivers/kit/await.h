/*
 * await.h - waits for descriptors until a local time. Descriptors by which one thread wakes another
 * are in os.h.
 */
#ifndef HF_KIT_AWAIT_H
#define HF_KIT_AWAIT_H

#include "os.h"

#include <errno.h>
#include <poll.h>
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

#endif
