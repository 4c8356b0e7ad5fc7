/*
 * printed.c - standard output of a process that a signal may end while nobody takes what it prints.
 *
 * A terminal whose output is stopped and a full pipe block whoever writes, for as long as they
 * like. `acquire` holds keys then that nobody has been told of, and `watch` has been asked to end.
 * So a thread of its own writes, and the process waits for it or for a signal, whichever is first.
 */
#include "cli.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

static struct {
    int runs; /* the thread */
    int asked_fd, done_fd;
    char *text; /* its own while it writes */
    size_t n;
    int error; /* errno of the write that failed, or 0 */
} printing;

static int write_all(const char *text, size_t n)
{
    while (n) {
        ssize_t done = write(STDOUT_FILENO, text, n);
        if (done < 0 && errno == EAGAIN) {
            struct pollfd out = {STDOUT_FILENO, POLLOUT, 0};
            poll(&out, 1, -1);
        } else if (done < 0 && errno != EINTR) {
            return errno;
        }
        if (done <= 0) continue;
        text += done;
        n -= (size_t)done;
    }
    return 0;
}

static void *printer(void *arg)
{
    eventfd_t n;
    (void)arg;
    while (!eventfd_read(printing.asked_fd, &n)) {
        printing.error = write_all(printing.text, printing.n);
        free(printing.text);
        eventfd_write(printing.done_fd, 1);
    }
    return NULL;
}

static int need_printer(void)
{
    pthread_t thread;
    if (printing.runs) return 1;
    printing.asked_fd = eventfd(0, EFD_CLOEXEC);
    printing.done_fd = eventfd(0, EFD_CLOEXEC);
    if (printing.asked_fd >= 0 && printing.done_fd >= 0)
        printing.runs = !start_thread(&thread, printer, NULL);
    if (printing.runs) pthread_detach(thread);
    return printing.runs;
}

int print_or_signal(char *text, size_t n, int *ret_error, int *ret_typed)
{
    int sig = 0;
    if (!need_printer()) {
        *ret_error = write_all(text, n);
        free(text);
        return 0;
    }
    printing.text = text;
    printing.n = n;
    eventfd_write(printing.asked_fd, 1);
    struct pollfd fds[2] = {{printing.done_fd, POLLIN, 0}, {signals_fd(), POLLIN, 0}};
    while (!sig) {
        int ready = poll(fds, 2, fds[1].fd < 0 ? 250 : -1);
        if (ready > 0 && fds[0].revents) break;
        sig = pending_end_signal(ret_typed);
    }
    if (fds[1].fd >= 0) close(fds[1].fd);
    if (sig) return sig;
    eventfd_t done;
    eventfd_read(printing.done_fd, &done);
    *ret_error = printing.error;
    return 0;
}
