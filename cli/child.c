/*
 * child.c - watches a command that holds locks, which start.c has started: waits for its end and
 * for the loss of a lock, passes signals on, and stops the command's processes if a lock is lost.
 *
 * The command stays in holdfast's process group, as under flock(1). So the terminal, its job
 * control, pipelines and a caller that kills the group see one job. In a group of its own the
 * command would need the terminal's foreground, which stops the other members of a pipeline and
 * hides Ctrl-C from a script. Therefore:
 *   - The command gets the terminal's signals itself; holdfast doesn't pass them on. It passes on
 *     what was sent to holdfast alone: INT, TERM, HUP, QUIT, TSTP and CONT to the command and those
 *     of its descendants that are in its group; USR1, USR2 and WINCH to the command.
 *   - When the command stops (Ctrl-Z), holdfast stops after it: the shell sees a stopped job.
 *   - When a lock is lost, the command's processes are stopped one by one (tree.c).
 */
#include "job.h"

#include "os.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    GRACE_US = 5000000, /* from TERM to KILL */
    ARM_US = 20000,     /* no thread is started for a command that ends before this */
    SETTLE_US = 20000,  /* after a stop of the command holdfast stops so much later, unless a CONT
                           comes */
    /* how long poll sleeps at most: --max-hold goes on in a suspend of the machine, but the timeout
       of poll doesn't */
    SUSPENDED_US = 60000000,
    LOOK_US = 100000,  /* how often to look for processes that are to end */
    BLIND_US = 250000, /* how often to check a lock that has no descriptor */
    FIXED = 2,         /* entries for poll before those of the locks: signals, damage */
    REPORTED = -2      /* in place of the descriptor of a lock whose loss has been reported */
};

enum phase { RUNNING, STOPPING, KILLING };

struct watch {
    const struct job *job;
    struct job_end *end;
    struct tree tree;
    enum phase phase;
    int ended, raw; /* 1: the main process has ended; its status as of waitpid */
    int typed_int, armed, stop_sig;
    int blind;   /* 1: a lock has no descriptor for its loss: hf_left_ms is called every BLIND_US */
    int carries; /* 1: the command has the descriptor on which the hold depends */
    int told_to_stop; /* 1: this process got TSTP since the last CONT */
    int64_t arm_us, stop_us, kill_us, give_up_us;
    nfds_t n_fds;
    struct pollfd fds[FIXED + KEYS_CAP];
};

/* The job that runs now, for damaged_job. */
static struct watch *current;

/* ---- stopping ---- */

static void stop_all(struct watch *w, int at_once)
{
    if (w->phase == RUNNING) {
        w->phase = STOPPING;
        w->kill_us = hf__local_us() + (at_once ? 0 : GRACE_US);
        if (!at_once) {
            tree_signal(&w->tree, MAIN_SESSION, SIGTERM);
            tree_signal(&w->tree, MAIN_SESSION, SIGCONT); /* so that stopped processes get TERM */
        }
    }
    if (at_once && w->phase == STOPPING) w->kill_us = hf__local_us();
}

static void keep_stopping(struct watch *w)
{
    int64_t now = hf__local_us();
    if (w->phase == STOPPING && now >= w->kill_us) {
        w->phase = KILLING;
        w->give_up_us = now + GRACE_US;
    }
    if (w->phase == KILLING) tree_signal(&w->tree, MAIN_SESSION, SIGKILL);
}

static const char truncated[] = "the store's file was truncated while in use";

static void damaged(struct watch *w, const char *what)
{
    say("%s; stopping the command", what);
    w->end->damaged = 1;
    w->n_fds = 1;
    stop_all(w, 0);
}

static void lock_lost(struct watch *w, hf_lock *lock)
{
    const struct job *job = w->job;
    hf_error err = {0};
    if (w->phase != RUNNING || w->ended || w->end->damaged) return;
    if (job->on_lost != ON_LOST_IGNORE) {
        stop_all(w, job->on_lost == ON_LOST_KILL);
        keep_stopping(w);
    }
    int rc = hf_lost_reason(lock, &err);
    if (w->phase == KILLING) w->give_up_us = hf__local_us() + GRACE_US;
    if (rc == HF_CORRUPT) {
        damaged(w, err.text);
        return;
    }
    if (job->on_lost == ON_LOST_IGNORE) {
        say("the lock on '%s' is lost; the command goes on without it: %s", hf_key(lock), err.text);
        return;
    }
    say("the lock on '%s' is lost; stopping the command: %s", hf_key(lock), err.text);
    w->end->lost = 1;
}

/* Stops the command when --max-hold has passed. Until the command has ended, the locks are held and
   renewed, so that the next holder doesn't run beside it. */
static void overtime(struct watch *w)
{
    stop_all(w, w->job->on_lost == ON_LOST_KILL);
    keep_stopping(w);
    w->end->overtime = 1;
    say("the lock on '%s' has been held for as long as --max-hold allows; stopping the command",
        hf_key(w->job->locks[0]));
}

/* ---- the locks ---- */

static void arm(struct watch *w)
{
    w->armed = 1;
    for (size_t i = 0; i < w->job->n; i++) {
        int fd = w->job->locks[i] ? hf_lost_fd(w->job->locks[i]) : -1;
        w->fds[FIXED + i] = (struct pollfd){fd, POLLIN, 0};
        w->blind |= fd < 0 && w->job->locks[i];
    }
    w->n_fds = FIXED + w->job->n;
}

/* Finds lost locks by hf_left_ms: after this process was stopped, and for locks without a
   descriptor. */
static void ask_locks(struct watch *w)
{
    for (size_t i = 0; !w->end->damaged && i < w->job->n; i++)
        if (w->job->locks[i] && w->fds[FIXED + i].fd != REPORTED &&
            hf_left_ms(w->job->locks[i]) <= 0) {
            w->fds[FIXED + i].fd = REPORTED;
            lock_lost(w, w->job->locks[i]);
        }
}

/* ---- signals ---- */

static int in_foreground(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (isatty(fd)) return tcgetpgrp(fd) == getpgrp();
    return 0;
}

/* Notes that the main process was stopped. Whether this process stops, too, is decided SETTLE_US
   later, because a SIGCONT to the whole group may have reached this process first. */
static void child_stopped(struct watch *w, int sig)
{
    w->stop_sig = sig;
    w->stop_us = hf__local_us() + SETTLE_US;
}

static void stop_self(struct watch *w)
{
    int sig = w->stop_sig;
    w->stop_us = 0;
    if (w->ended || w->phase != RUNNING || tree_state(&w->tree) != 'T') return;
    /* Only the command was stopped, not the job: no shell waits for a stop of this process. */
    if (!w->told_to_stop && !in_foreground()) return;
    sigset_t one, before;
    sigemptyset(&one);
    sigaddset(&one, sig);
    w->told_to_stop = 0;
    raise(sig);
    sigprocmask(SIG_UNBLOCK, &one, &before); /* this process stops here, and goes on after CONT */
    sigprocmask(SIG_SETMASK, &before, NULL);
}

static void reap(struct watch *w)
{
    int raw;
    pid_t pid;
    while ((pid = waitpid(-1, &raw, WNOHANG | WUNTRACED | WCONTINUED)) > 0) {
        if (pid != w->tree.pid || w->ended) continue;
        if (WIFSTOPPED(raw)) {
            child_stopped(w, WSTOPSIG(raw));
        } else if (WIFCONTINUED(raw)) {
            w->stop_us = 0;
        } else {
            w->ended = 1;
            w->tree.reaped = 1;
            w->raw = raw;
            damage_kills(0);
        }
    }
    w->end->kept = pid == 0; /* 1: other processes of the command go on */
}

static void pass_on(struct watch *w, const struct signalfd_siginfo *si)
{
    int sig = (int)si->ssi_signo, typed = si->ssi_code == SI_KERNEL;
    int shares_group = w->ended || getpgid(w->tree.pid) == getpgrp();
    if (sig == SIGINT && typed) w->typed_int = 1;
    if (sig == SIGTSTP) w->told_to_stop = 1;
    if (w->phase != RUNNING && (sig == SIGINT || sig == SIGTERM)) stop_all(w, 1);
    /* The terminal's signals reach the whole group, and so the command; but a hangup reaches only
       the session's leader. */
    if (typed && shares_group && !(sig == SIGHUP && getsid(0) == getpid())) return;
    /* A signal that the command has sent to its whole group ("kill 0") isn't passed back. */
    if (si->ssi_code == SI_USER && sig != SIGCONT && tree_has(&w->tree, (pid_t)si->ssi_pid)) return;
    if (sig == SIGUSR1 || sig == SIGUSR2 || sig == SIGWINCH) {
        if (!w->ended) kill(w->tree.pid, sig);
    } else {
        tree_signal(&w->tree, MAIN_GROUP, sig);
    }
}

static void read_signals(struct watch *w)
{
    struct signalfd_siginfo si[8];
    ssize_t n;
    while ((n = read(w->fds[0].fd, si, sizeof si)) > 0) {
        for (size_t i = 0; i < (size_t)n / sizeof *si; i++) {
            if (si[i].ssi_signo == SIGCHLD) {
                reap(w);
                continue;
            }
            if (si[i].ssi_signo == SIGCONT) {
                w->told_to_stop = 0;
                w->stop_us = 0;
                ask_locks(w);
            }
            pass_on(w, &si[i]);
        }
        if ((size_t)n < sizeof si) break;
    }
}

/* ---- watching ---- */

static int over(struct watch *w)
{
    if (w->phase == RUNNING) return w->ended;
    if (w->phase == KILLING && hf__local_us() >= w->give_up_us) return 1;
    return w->ended && !tree_signal(&w->tree, MAIN_SESSION, 0);
}

static void sooner(int64_t *until, int64_t us)
{
    if (us && us < *until) *until = us;
}

static void wait_for_event(struct watch *w)
{
    int64_t until = INT64_MAX, now = hf__local_us();
    if (!w->armed && !w->end->damaged) sooner(&until, w->arm_us);
    if (w->armed && w->blind) sooner(&until, now + BLIND_US);
    if (w->phase != RUNNING) sooner(&until, now + LOOK_US);
    if (w->phase == RUNNING && w->job->stop_at_us != INT64_MAX) {
        sooner(&until, w->job->stop_at_us);
        sooner(&until, now + SUSPENDED_US);
    }
    sooner(&until, w->stop_us);
    struct timespec t = {0, 0};
    if (until > now) {
        t.tv_sec = (until - now) / 1000000;
        t.tv_nsec = (until - now) % 1000000 * 1000;
    }
    if (ppoll(w->fds, w->n_fds, until == INT64_MAX ? NULL : &t, NULL) <= 0)
        for (nfds_t i = 0; i < w->n_fds; i++) w->fds[i].revents = 0;
}

static void watch_loop(struct watch *w)
{
    while (!over(w)) {
        wait_for_event(w);
        int64_t now = hf__local_us();
        if (w->fds[0].revents) read_signals(w);
        if (w->n_fds > 1 && w->fds[1].revents) {
            damage_seen();
            damaged(w, truncated);
        }
        for (nfds_t i = FIXED; i < w->n_fds; i++)
            if (w->fds[i].revents) {
                w->fds[i].fd = REPORTED;
                lock_lost(w, w->job->locks[i - FIXED]);
            }
        if (w->stop_us && now >= w->stop_us) stop_self(w);
        if (w->phase == RUNNING && !w->ended && now >= w->job->stop_at_us) overtime(w);
        if (w->phase != RUNNING) keep_stopping(w);
        if (w->ended || w->end->damaged) continue;
        if (!w->armed && now >= w->arm_us) arm(w);
        if (w->blind) ask_locks(w);
    }
}

static void conclude(struct watch *w)
{
    struct job_end *end = w->end;
    end->left = (end->lost || end->overtime) && tree_signal(&w->tree, MAIN_SESSION, 0) > 0;
    if (end->left) say("the command can't be stopped: the key isn't given back");
    end->kept = end->kept && w->carries && !end->lost && !end->overtime && !end->damaged;
    if (!w->ended)
        end->status = EXIT_LOST;
    else if (WIFSIGNALED(w->raw))
        end->status = 128 + WTERMSIG(w->raw);
    else
        end->status = WEXITSTATUS(w->raw);
    end->success = w->ended && !end->status;
    end->typed_int = w->typed_int && end->status == 128 + SIGINT && WIFSIGNALED(w->raw);
    if (end->lost || end->overtime) end->status = EXIT_LOST;
    if (end->damaged) end->status = EXIT_DAMAGED;
}

void run_job(const struct job *job, struct job_end *ret)
{
    static struct watch w; /* static, because damaged_job returns here by a jump */
    int why, session_fd = hf_session_fd(job->store);
    memset(ret, 0, sizeof *ret);
    memset(&w, 0, sizeof w);
    if (session_fd >= 0 && !job->close_session) {
        int high = fcntl(session_fd, F_DUPFD_CLOEXEC, SESSION_FD_MIN);
        if (high >= 0) session_fd = high;
    }
    block_job_signals();
    w.carries = session_fd >= 0 && !job->close_session && !job->lease_ms;
    w.fds[0] = (struct pollfd){signals_fd(), POLLIN, 0};
    w.fds[1] = (struct pollfd){damage_fd(), POLLIN, 0};
    w.n_fds = FIXED;
    w.job = job;
    w.end = ret;
    w.arm_us = hf__local_us() + ARM_US;
    if (w.fds[0].fd < 0) {
        say("%s: make a descriptor: %s; %s", command_about, strerror(errno), job->unstarted);
        ret->status = EXIT_INTERNAL;
        return;
    }
    if (session_fd >= 0 && job->close_session && keeper_prepare(session_fd, job->lease_ms)) {
        say("%s: make a descriptor: %s; %s", command_about, strerror(errno), job->unstarted);
        ret->status = EXIT_INTERNAL;
        close(w.fds[0].fd);
        return;
    }
    pid_t pid = start_command(job, job->close_session ? -1 : session_fd,
                              death_signal(job, w.carries), &why);
    if (pid < 0) {
        ret->status = not_started(job->argv, why, job->unstarted);
        return;
    }
    tree_init(&w.tree, pid);
    damage_kills(pid);
    current = &w;
    watch_loop(&w);
    current = NULL;
    conclude(&w);
    close(w.fds[0].fd);
}

int damaged_job(void)
{
    struct watch *w = current;
    if (w && !w->end->damaged) {
        damaged(w, truncated);
        watch_loop(w);
    } else {
        say("the store's file was truncated while in use");
    }
    return EXIT_DAMAGED;
}
