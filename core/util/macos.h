/*
 * macos.h - what the sources call and macOS doesn't have. There it is included before every file
 * (meson.build).
 */
#ifndef HF_MACOS_H
#define HF_MACOS_H

#define __STDC_WANT_LIB_EXT1__ 1

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define program_invocation_short_name getprogname()
/* A descriptor for events alone: reads and writes on it fail with EBADF. */
#define O_PATH O_EVTONLY
/* poll(2) tells of an end of the other side unasked. */
#define POLLRDHUP 0
#ifndef TCP_KEEPIDLE
#define TCP_KEEPIDLE TCP_KEEPALIVE
#endif

static inline char *secure_getenv(const char *name) { return issetugid() ? NULL : getenv(name); }

static inline void explicit_bzero(void *at, size_t len) { memset_s(at, len, 0, len); }

/* Waits for whole milliseconds, INT_MAX of them at most. The mask isn't used. */
static inline int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *t, const void *mask)
{
    (void)mask;
    if (!t) return poll(fds, n, -1);
    if (t->tv_sec >= INT_MAX / 1000) return poll(fds, n, INT_MAX);
    return poll(fds, n, (int)(t->tv_sec * 1000 + (t->tv_nsec + 999999) / 1000000));
}

/* Takes a signal of the set that is pending; doesn't wait for one. */
static inline int sigtimedwait(const sigset_t *set, const void *info, const struct timespec *t)
{
    sigset_t pending;
    int sig;
    (void)info, (void)t;
    sigpending(&pending);
    for (sig = 1; sig < NSIG; sig++)
        if (sigismember(set, sig) == 1 && sigismember(&pending, sig) == 1)
            return sigwait(set, &sig) ? -1 : sig;
    errno = EAGAIN;
    return -1;
}

#endif
