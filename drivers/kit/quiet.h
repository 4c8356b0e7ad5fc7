/*
 * quiet.h - around calls of a library that uses OpenSSL's own sockets: what OpenSSL writes to a
 * connection that is gone raises SIGPIPE, which would end the process.
 *
 *     struct hf__quiet quiet;
 *     hf__quiet(&quiet);
 *     mysql_close(my);
 *     hf__loud(&quiet);
 *
 * In between the thread blocks SIGPIPE, and is inside of the gate of fork_gate.h. A SIGPIPE that
 * came is discarded, unless one was pending before.
 *
 * Thread safety: any thread, each with a struct of its own. Pairs may be nested.
 */
#ifndef HF_KIT_QUIET_H
#define HF_KIT_QUIET_H

#include "fork_gate.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

struct hf__quiet {
    sigset_t mask;
    int before; /* 1: a SIGPIPE was pending already */
};

static inline sigset_t hf__only_sigpipe(void)
{
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    return pipe;
}

static inline void hf__quiet(struct hf__quiet *q)
{
    sigset_t pending;
    const sigset_t pipe = hf__only_sigpipe();
    hf__gate_begin();
    q->before = !sigpending(&pending) && sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe, &q->mask);
}

static inline void hf__loud(const struct hf__quiet *q)
{
    static const struct timespec now = {0, 0};
    const sigset_t pipe = hf__only_sigpipe();
    hf__gate_end();
    if (!q->before)
        while (sigtimedwait(&pipe, NULL, &now) < 0 && errno == EINTR) continue;
    pthread_sigmask(SIG_SETMASK, &q->mask, NULL);
}

#endif
