/*
 * fork_gate.h - keeps fork apart from calls of libraries that have locks of the whole process.
 * Compiled into each module that uses it.
 *
 * OpenSSL and most client libraries have such locks, and take them for moments. The child of a fork
 * has a copy of each lock, but none of its parent's other threads. If another thread had the lock,
 * it is never unlocked in the child, and the child's next call would wait for ever. So a thread
 * enters the gate while it is in such a library:
 *
 *     hf__gate_begin();
 *     while (SSL_connect(ssl) != 1) hf__gate_wait_until(&fd, 1, until_us);
 *     hf__gate_end();
 *
 * fork waits until no other thread is inside. Threads that want to enter meanwhile wait until fork
 * has returned. Between hf__gate_wait and hf__gate_go_on a thread isn't inside: wait there for the
 * network and for other threads, and hold no lock of a library that others use.
 *
 * A library may wait for a server by itself, inside the gate. So fork waits for a second at most;
 * and if it has waited in vain for a thread, a later fork doesn't wait for that thread again until
 * it has left. All other threads' requests wait for the fork meanwhile.
 *
 * Inside, take no mutex that a handler of pthread_atfork takes, too: the thread that forks may have
 * it already. kit/resolve.h has such a mutex, and kit/dial.h uses it: call them outside, or between
 * hf__gate_wait and hf__gate_go_on.
 *
 * Thread safety: any thread. Pairs of begin and end may be nested, but not within a wait.
 */
#ifndef HF_KIT_FORK_GATE_H
#define HF_KIT_FORK_GATE_H

#include "await.h"

void hf__gate_begin(void);
void hf__gate_end(void);
/* Leave the gate for a wait, and enter it again. Do nothing in a thread that isn't between begin
   and end. They keep errno. */
void hf__gate_wait(void);
void hf__gate_go_on(void);

/* Calls hf__wait_until outside the gate. */
static inline int hf__gate_wait_until(struct pollfd *fds, nfds_t n, int64_t until_us)
{
    hf__gate_wait();
    int ready = hf__wait_until(fds, n, until_us);
    hf__gate_go_on();
    return ready;
}

#endif
