/*
 * live.c - the live line, which shows on a terminal what takes so long, and is removed again.
 *
 * It is shown only if stderr is a terminal and this process is in its foreground: a background job
 * would write into the output of other programs.
 */
#include "cli.h"
#include "shown.h"

#include <locale.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

static int shown; /* 1: a line is on the terminal (atomic) */
static const int never;

int live_possible(void) { return isatty(STDERR_FILENO) && tcgetpgrp(STDERR_FILENO) == getpgrp(); }

/* Returns the number of columns of the terminal, less the one for the cursor. */
static size_t columns(void)
{
    struct winsize w;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) || w.ws_col < 2) return 79;
    return w.ws_col - 1u;
}

/* Returns how many bytes of the UTF-8 text fit into that many columns. A CJK character takes two, a
   combining one none. In a locale without UTF-8 each character takes one. */
static size_t fitting(const char *text, size_t room, size_t *ret_used)
{
    locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    locale_t before = utf8 ? uselocale(utf8) : (locale_t)0;
    mbstate_t state = {0};
    size_t at = 0, used = 0, n = strlen(text);
    while (at < n) {
        wchar_t c;
        size_t len = utf8 ? mbrtowc(&c, text + at, n - at, &state) : 0;
        int width = len && len <= n - at ? wcwidth(c) : 1;
        if (!len || len > n - at) { /* this byte and the following bytes of the same character */
            memset(&state, 0, sizeof state);
            for (len = 1; ((unsigned char)text[at + len] & 0xc0) == 0x80; len++) continue;
        }
        if (width < 0) width = 1;
        if (used + (size_t)width > room) break;
        used += (size_t)width;
        at += len;
    }
    *ret_used = used;
    if (!utf8) return at;
    uselocale(before);
    freelocale(utf8);
    return at;
}

size_t columns_of(const char *text)
{
    size_t used;
    fitting(text, SIZE_MAX, &used);
    return used;
}

void live_show(const int *unless, const char *format, ...)
{
    char line[600], clean[512], out[640];
    va_list args;
    if (!live_possible()) return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    hf__show_text(line, clean, sizeof clean);
    size_t used, n = fitting(clean, columns(), &used);
    int len = snprintf(out, sizeof out, "\r%.*s\033[K", (int)n, clean);
    output_add(out, (size_t)len, unless ? unless : &never, &shown);
}

void live_erase(void)
{
    static const char blank[] = "\r\033[K";
    if (!__atomic_exchange_n(&shown, 0, __ATOMIC_RELAXED)) return;
    output_add(blank, sizeof blank - 1, NULL, NULL);
}

/* ---- progress of work other than a wait ---- */

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
            live_show(NULL, "%s: %llu, %d s", progress.what, (unsigned long long)n, seconds);
        else
            live_show(NULL, "%s: %d s", progress.what, seconds);
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
    progress.runs = !start_thread(&progress.thread, progress_thread, NULL);
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
