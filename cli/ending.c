/*
 * ending.c - runs a function in a thread, for a limited time or until a signal.
 *
 * If the store or a name server doesn't answer, a request may take longer than this process should
 * live: its command has ended, and the caller waits for the status. So on a store that may block a
 * thread makes the last requests. If they aren't answered in time, the process ends without the
 * answer, and its grants end by their leases.
 *
 * A write to a full pipe, or to a terminal whose output is stopped, blocks for ever. So a thread
 * makes writes that a signal has to be able to end.
 */
#include "cli.h"

#include "os.h"
#include "refusal.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct body {
    int done_fd;
    void (*run)(void *arg);
    void *arg;
    pthread_t thread;
};

static void *run_thread(void *arg)
{
    struct body *b = arg;
    b->run(b->arg);
    eventfd_write(b->done_fd, 1);
    return NULL;
}

/* Runs the function in a new thread. Returns NULL if no thread could be started. */
static struct body *begin(void (*run)(void *arg), void *arg)
{
    struct body *b = malloc(sizeof *b);
    if (b) *b = (struct body){.done_fd = eventfd(0, EFD_CLOEXEC), .run = run, .arg = arg};
    if (b && b->done_fd >= 0 && !start_thread(&b->thread, run_thread, b)) return b;
    if (b && b->done_fd >= 0) close(b->done_fd);
    free(b);
    return NULL;
}

static void end(struct body *b)
{
    pthread_join(b->thread, NULL);
    close(b->done_fd);
    free(b);
}

/* Waits for the thread. Returns 1 if it has ended; 0: it still runs, and its memory isn't freed. */
static int ends_within(struct body *b, int64_t limit_ms)
{
    int64_t until_us = hf__local_us() + limit_ms * 1000, left_us;
    struct pollfd fd = {b->done_fd, POLLIN, 0};
    while (!fd.revents && (left_us = until_us - hf__local_us()) > 0)
        if (poll(&fd, 1, (int)(left_us / 1000) + 1) < 0) fd.revents = 0;
    if (!fd.revents) return 0;
    end(b);
    return 1;
}

int done_within(int64_t limit_ms, void (*run)(void *arg), void *arg)
{
    struct body *b = begin(run, arg);
    if (!b) run(arg);
    return !b || ends_within(b, limit_ms);
}

int done_or_signal(void (*run)(void *arg), void *arg, int64_t more_ms, int *ret_typed)
{
    struct body *b = begin(run, arg);
    int sig = 0;
    if (!b) return -1;
    struct pollfd fds[2] = {{b->done_fd, POLLIN, 0}, {signals_fd(), POLLIN, 0}};
    while (!sig && !(fds[0].revents & POLLIN)) {
        poll(fds, 2, fds[1].fd < 0 ? 250 : -1);
        sig = pending_end_signal(ret_typed);
    }
    if (fds[1].fd >= 0) close(fds[1].fd);
    if (!sig)
        end(b);
    else if (more_ms)
        ends_within(b, more_ms);
    return sig;
}

void leave_now(int status)
{
    refused(status);
    output_end();
    _exit(status);
}

static void close_body(void *store)
{
    waiting_line_join();
    hf_close(store);
}

void close_within(hf *store, int64_t limit_ms, int status)
{
    int64_t left_ms = limit_end_left_ms();
    if (left_ms < limit_ms) limit_ms = left_ms;
    if (hf_session_fd(store) >= 0)
        close_body(store);
    else if (!limit_ms || !done_within(limit_ms, close_body, store))
        leave_now(status);
}
