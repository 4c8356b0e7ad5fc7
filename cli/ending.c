/*
 * ending.c - giving back and closing in limited time.
 *
 * A store that stays mute, or a name server that does, may keep a request for longer than this
 * process should live: its command has ended, and somebody waits for the status. So on a store that
 * may block the last requests are made by a thread of its own. If they aren't answered in time the
 * process ends without; what it leaves at the store ends by its lease.
 */
#include "cli.h"

#include "os.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

static struct {
    int done_fd;
    void (*body)(void *arg);
    void *arg;
} ending;

static void *end_thread(void *arg)
{
    uint64_t one = 1;
    (void)arg;
    ending.body(ending.arg);
    ssize_t n = write(ending.done_fd, &one, sizeof one);
    (void)n; /* an empty eventfd takes it */
    return NULL;
}

int done_within(int64_t limit_ms, void (*body)(void *arg), void *arg)
{
    pthread_t thread;
    int64_t until_us = hf__local_us() + limit_ms * 1000, left_us;
    ending.done_fd = eventfd(0, EFD_CLOEXEC);
    ending.body = body;
    ending.arg = arg;
    if (ending.done_fd < 0 || start_thread(&thread, end_thread, NULL)) {
        body(arg);
        return 1;
    }
    struct pollfd fd = {ending.done_fd, POLLIN, 0};
    while (!fd.revents && (left_us = until_us - hf__local_us()) > 0)
        if (poll(&fd, 1, (int)(left_us / 1000) + 1) < 0) fd.revents = 0;
    if (!fd.revents) return 0;
    pthread_join(thread, NULL);
    close(ending.done_fd);
    return 1;
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
