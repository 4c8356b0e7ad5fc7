/*
 * keeper.c - the keeper: a process that keeps a hold on `file:` for a command that runs with -o.
 *
 * A hold on `file:` lasts as long as a process has the session's descriptor open. With -o the
 * command doesn't get it. If only holdfast had it, SIGKILL to holdfast would free the key while the
 * command goes on. So a small process, the keeper, has it too, and ends when the command has ended.
 * If holdfast was killed and the hold has a lease, the keeper goes on until one lease later:
 * processes that the command has left behind may run until then.
 *
 * The keeper makes itself a session (setsid), so that a signal to the process group doesn't end it,
 * and tree.c leaves it alone. It has no other file of its caller open.
 */
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The descriptors of the keeper. */
enum { SESSION, COMMAND, DISMISSED, KEPT };

/* What the keeper needs. A byte in the pipe `to` -> `from` dismisses it. */
static struct {
    int session_fd, lease_ms, from, to;
} keeper = {-1, 0, -1, -1};

int keeper_prepare(int session_fd, int64_t lease_ms)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC)) return -1;
    keeper.session_fd = session_fd;
    keeper.lease_ms = (int)lease_ms;
    keeper.from = fds[0];
    keeper.to = fds[1];
    return 0;
}

void keeper_dismiss(void)
{
    ssize_t n = keeper.to >= 0 ? write(keeper.to, "", 1) : 0;
    (void)n; /* a keeper that has ended needs no dismissal */
}

/* Waits for a byte in the pipe `dismissal`, until `other` is readable, or for `ms`. If the pipe is
   closed without a byte, holdfast was killed: the wait begins anew without the pipe. Returns: 1: a
   byte came; 0: it didn't. */
static int dismissed(struct pollfd *dismissal, struct pollfd *other, int ms)
{
    struct pollfd fds[2] = {*dismissal, *other};
    for (;;) {
        int n = poll(fds, 2, ms);
        if (n < 0 && errno == EINTR) continue;
        if (fds[0].revents & POLLIN) return 1;
        if (n <= 0 || fds[1].revents) return 0;
        dismissal->fd = fds[0].fd = -1;
    }
}

/* Runs the keeper. Calls async-signal-safe functions only: other threads of the parent may have
   held locks of the C library. */
static void keep(int command_fd)
{
    sigset_t all;
    struct pollfd dismissal = {DISMISSED, POLLIN, 0}, command = {COMMAND, POLLIN, 0};
    struct pollfd none = {-1, 0, 0};
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setsid();
    prctl(PR_SET_NAME, "hf-keeper", 0, 0, 0);
    /* All descriptors are above 2: see main.c. */
    if (dup2(keeper.session_fd, SESSION) < 0 || dup2(command_fd, COMMAND) < 0 ||
        dup2(keeper.from, DISMISSED) < 0 || chdir("/"))
        _exit(EXIT_INTERNAL);
    if (syscall(SYS_close_range, KEPT, ~0U, 0))
        for (int fd = KEPT; fd < 4096; fd++) close(fd);
    if (!dismissed(&dismissal, &command, -1) && keeper.lease_ms)
        dismissed(&dismissal, &none, keeper.lease_ms);
    _exit(0);
}

/* Forks a process whose parent is this process's parent (CLONE_PARENT), so that the command has no
   child that it hasn't made. The first process of a PID namespace can't do that. */
static long clone_sibling(void)
{
#ifdef __s390x__
    long pid = syscall(SYS_clone, 0, CLONE_PARENT | SIGCHLD, 0, 0, 0);
    return pid < 0 && errno == EINVAL ? syscall(SYS_clone, 0, SIGCHLD, 0, 0, 0) : pid;
#else
    long pid = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
    return pid < 0 && errno == EINVAL ? syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : pid;
#endif
}

int keeper_start(void)
{
    if (keeper.to < 0) return 0;
    int command_fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (command_fd < 0) return errno == ENOSYS ? 0 : errno;
    long pid = clone_sibling();
    if (pid == 0) keep(command_fd);
    return pid < 0 ? errno : 0;
}
