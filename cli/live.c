/*
 * live.c - the one line on a terminal that says what takes so long, and goes away again.
 *
 * Nothing is written unless stderr is a terminal and this process is in its foreground: output of a
 * background job would only be in the way of somebody else's.
 */
#include "cli.h"

#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

static int shown; /* a line stands there (atomic) */

int live_possible(void) { return isatty(STDERR_FILENO) && tcgetpgrp(STDERR_FILENO) == getpgrp(); }

/* How many columns the terminal has, less the one in which the cursor rests. */
static size_t columns(void)
{
    struct winsize w;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) || w.ws_col < 2) return 79;
    return w.ws_col - 1u;
}

void live_show(const char *format, ...)
{
    char line[600], clean[512], out[640];
    va_list args;
    if (!live_possible()) return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    show_text(line, clean, sizeof clean);
    size_t n = 0, room = columns();
    for (size_t seen = 0; clean[n]; n++) /* counts characters, not bytes */
        if (((unsigned char)clean[n] & 0xc0) != 0x80 && ++seen > room) break;
    int len = snprintf(out, sizeof out, "\r%.*s\033[K", (int)n, clean);
    if (write(STDERR_FILENO, out, (size_t)len) > 0) __atomic_store_n(&shown, 1, __ATOMIC_RELAXED);
}

void live_erase(void)
{
    static const char blank[] = "\r\033[K";
    if (!__atomic_exchange_n(&shown, 0, __ATOMIC_RELAXED)) return;
    if (write(STDERR_FILENO, blank, sizeof blank - 1) < 0) return; /* the terminal is gone */
}

/* ---- progress of what isn't a wait ---- */

static struct {
    pthread_t thread;
    int runs, stop_fd;
    const char *what;
    uint64_t count; /* atomic; 0: not counted */
} progress = {.stop_fd = -1};

static void *progress_thread(void *arg)
{
    struct pollfd fd = {progress.stop_fd, POLLIN, 0};
    (void)arg;
    for (int seconds = 1; poll(&fd, 1, 1000) == 0; seconds++) {
        uint64_t n = __atomic_load_n(&progress.count, __ATOMIC_RELAXED);
        if (n)
            live_show("%s: %llu, %d s", progress.what, (unsigned long long)n, seconds);
        else
            live_show("%s: %d s", progress.what, seconds);
    }
    return NULL;
}

void progress_begin(const char *what)
{
    if (!live_possible()) return;
    progress.what = what;
    progress.count = 0;
    progress.stop_fd = eventfd(0, EFD_CLOEXEC);
    if (progress.stop_fd < 0) return;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    progress.runs = !pthread_create(&progress.thread, NULL, progress_thread, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void progress_count(uint64_t n) { __atomic_store_n(&progress.count, n, __ATOMIC_RELAXED); }

void progress_end(void)
{
    uint64_t one = 1;
    if (progress.runs && write(progress.stop_fd, &one, sizeof one) > 0)
        pthread_join(progress.thread, NULL);
    if (progress.stop_fd >= 0) close(progress.stop_fd);
    progress.runs = 0;
    progress.stop_fd = -1;
    live_erase();
}
