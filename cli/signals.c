/*
 * signals.c - the signals that end a wait, and those that are passed on to a command.
 *
 * They are blocked, and read from a descriptor, so that none is lost between the request for a key
 * and the start of the command. Signals that were ignored when this process began (nohup) stay
 * ignored.
 */
#include "cli.h"

#include "os.h"
#include "refusal.h"

#include <sys/signalfd.h>
#include <time.h>

static const int enders[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
static const int others[] = {SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT, SIGTSTP, SIGCHLD};
enum { ENDERS = sizeof enders / sizeof *enders, OTHERS = sizeof others / sizeof *others };

static sigset_t at_start, blocked;
static struct sigaction pipe_at_start, child_at_start, size_at_start;

static void add_unless_ignored(int sig)
{
    struct sigaction now;
    if (!sigaction(sig, NULL, &now) && now.sa_handler != SIG_IGN) sigaddset(&blocked, sig);
}

void let_writes_fail(void)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGXFSZ, &ignore, &size_at_start);
    sigaction(SIGPIPE, &ignore, &pipe_at_start);
}

void end_by_broken_pipe(void)
{
    struct sigaction standard = {.sa_handler = SIG_DFL};
    sigset_t one;
    if (pipe_at_start.sa_handler == SIG_IGN) return;
    output_end();
    sigemptyset(&one);
    sigaddset(&one, SIGPIPE);
    sigaction(SIGPIPE, &standard, NULL);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
    raise(SIGPIPE);
}

void block_signals(void)
{
    sigemptyset(&blocked);
    for (int i = 0; i < ENDERS; i++) add_unless_ignored(enders[i]);
    sigaction(SIGCHLD, NULL, &child_at_start);
    sigprocmask(SIG_BLOCK, &blocked, &at_start);
}

void block_job_signals(void)
{
    struct sigaction standard = {.sa_handler = SIG_DFL};
    /* If SIGCHLD were ignored, the kernel would discard the command's status. */
    sigaction(SIGCHLD, &standard, NULL);
    for (int i = 0; i < OTHERS; i++)
        if (others[i] == SIGWINCH || others[i] == SIGCHLD)
            sigaddset(&blocked, others[i]);
        else
            add_unless_ignored(others[i]);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
}

void restore_signals(void)
{
    sigaction(SIGPIPE, &pipe_at_start, NULL);
    sigaction(SIGCHLD, &child_at_start, NULL);
    sigaction(SIGXFSZ, &size_at_start, NULL);
    unblock_signals();
}

void unblock_signals(void) { sigprocmask(SIG_SETMASK, &at_start, NULL); }

int signals_fd(void) { return signalfd(-1, &blocked, SFD_CLOEXEC | SFD_NONBLOCK); }

int pending_end_signal(int *ret_typed)
{
    sigset_t came, wanted;
    struct timespec at_once = {0, 0};
    siginfo_t info;
    if (sigpending(&came)) return 0;
    sigemptyset(&wanted);
    int any = 0;
    for (int i = 0; i < ENDERS; i++)
        if (sigismember(&came, enders[i]) == 1 && sigismember(&blocked, enders[i]) == 1) {
            sigaddset(&wanted, enders[i]);
            any = 1;
        }
    int sig = any ? sigtimedwait(&wanted, &info, &at_once) : 0;
    if (sig <= 0) return 0;
    *ret_typed = info.si_code == SI_KERNEL;
    return sig;
}

int await_end_signal(int64_t until_us, int *ret_typed)
{
    int64_t left_us = until_us - hf__local_us();
    struct timespec t = {0, 0};
    sigset_t wanted;
    siginfo_t info;
    sigemptyset(&wanted);
    for (int i = 0; i < ENDERS; i++)
        if (sigismember(&blocked, enders[i]) == 1) sigaddset(&wanted, enders[i]);
    sigaddset(&wanted, SIGCHLD);
    if (left_us > 0) {
        t.tv_sec = left_us / 1000000;
        t.tv_nsec = left_us % 1000000 * 1000;
    }
    int sig = sigtimedwait(&wanted, &info, &t);
    if (sig <= 0 || sig == SIGCHLD) return 0;
    *ret_typed = info.si_code == SI_KERNEL;
    return sig;
}

int end_by_signal(int sig, int typed)
{
    refuse(128 + sig);
    if (sig == SIGINT && typed) {
        struct sigaction standard = {.sa_handler = SIG_DFL};
        sigset_t one;
        sigemptyset(&one);
        sigaddset(&one, sig);
        fflush(NULL);
        output_end();
        sigaction(sig, &standard, NULL);
        raise(sig);
        sigprocmask(SIG_UNBLOCK, &one, NULL);
    }
    return 128 + sig;
}
