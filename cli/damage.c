/*
 * damage.c - handles the truncation of a mapped store, so that it doesn't kill this process.
 *
 * The library accesses a `file:` store as mapped memory. If the file was truncated, an access
 * beyond its end raises SIGBUS in any thread. The library can't be used after that, because the
 * thread may have held a mutex. So the main thread jumps out of the library, stops the command and
 * exits.
 */
#include "cli.h"

#include "refusal.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { PATIENCE_MS = 3000, LOOK_MS = 50 };

static pthread_t main_thread;
static sigjmp_buf jump;
static volatile sig_atomic_t armed, seen, victim;
static volatile sig_atomic_t told_fd = -1;

static void give_up(void)
{
    static const char why[] = "holdfast: the store's file was truncated while in use\n";
    if (victim) kill((pid_t)victim, SIGKILL);
    refuse(EXIT_DAMAGED);
    struct pollfd fd = {STDERR_FILENO, POLLOUT, 0};
    ssize_t n = poll(&fd, 1, 0) > 0 ? write(STDERR_FILENO, why, sizeof why - 1) : 0;
    (void)n; /* without a reader the exit status has to suffice */
    _exit(EXIT_DAMAGED);
}

/* Handles SIGBUS. Calls async-signal-safe functions only. */
static void on_bus(int sig)
{
    (void)sig;
    if (!armed) give_up();
    if (pthread_equal(pthread_self(), main_thread)) siglongjmp(jump, 1);
    uint64_t one = 1;
    if (told_fd < 0 || write(told_fd, &one, sizeof one) < 0) give_up();
    /* The main thread may never read told_fd, if it sleeps on a mutex that this thread holds. */
    for (int waited = 0; !seen; waited += LOOK_MS) {
        if (waited >= PATIENCE_MS) give_up();
        poll(NULL, 0, LOOK_MS);
    }
    for (;;) pause();
}

void watch_for_damage(void)
{
    struct sigaction act = {.sa_handler = on_bus, .sa_flags = SA_NODEFER};
    main_thread = pthread_self();
    sigaction(SIGBUS, &act, NULL);
}

sigjmp_buf *damage_jump(void)
{
    armed = 1;
    return &jump;
}

int damage_fd(void)
{
    if (told_fd < 0) told_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return told_fd;
}

void damage_seen(void) { seen = 1; }
void damage_kills(pid_t pid) { victim = (sig_atomic_t)pid; }
