/*
 * start.c - starts a command that holds locks. See job.h. (child.c watches it.)
 */
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

const char not_executed[] = "nothing was executed, and the lock is given back";

int death_signal(const struct job *job, int carries)
{
    if (carries || job->on_lost == ON_LOST_IGNORE) return 0;
    return job->on_lost == ON_LOST_KILL ? SIGKILL : SIGTERM;
}

/* Returns 1 if the parent has ended. Returns 0 if it hasn't, or if it is in another PID namespace
   (as under `unshare -p`), where its end can't be seen. */
static int orphaned(pid_t parent)
{
    pid_t now = getppid();
    return now && now != parent;
}

pid_t start_command(const struct job *job, int session_fd, int death, int *ret_errno)
{
    volatile int why = 0;
    pid_t parent = getpid();
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    pid_t pid = vfork();
    if (pid == 0) {
        if (death) prctl(PR_SET_PDEATHSIG, death, 0, 0, 0);
        if (death && orphaned(parent)) _exit(EXIT_LOST);
        if (session_fd >= 0) fcntl(session_fd, F_SETFD, 0);
        why = keeper_start();
        if (why) _exit(127);
        restore_signals();
        execvp(job->argv[0], job->argv);
        why = errno;
        _exit(127);
    }
    if (pid < 0) why = errno;
    if (pid > 0 && why) {
        int raw;
        waitpid(pid, &raw, 0);
        pid = -1;
    }
    *ret_errno = why;
    return pid;
}

static int is_executable(const char *path)
{
    struct stat s;
    return !stat(path, &s) && S_ISREG(s.st_mode) && !access(path, X_OK);
}

const char *find_program(const char *word)
{
    static char path[4096];
    const char *dirs = getenv("PATH"), *end;
#ifdef __GLIBC__
    if (!dirs) dirs = "/bin:/usr/bin";
#else
    if (!dirs) dirs = "/usr/local/bin:/bin:/usr/bin"; /* as musl does */
#endif
    if (strchr(word, '/')) return is_executable(word) ? word : NULL;
    for (;; dirs = end + 1) {
        end = strchrnul(dirs, ':');
        const char *between = end == dirs ? "" : "/"; /* an empty one is the current directory */
        int n = snprintf(path, sizeof path, "%.*s%s%s", (int)(end - dirs), dirs, between, word);
        if (n < (int)sizeof path && is_executable(path)) return path;
        if (!*end) return NULL;
    }
}

/* Writes the interpreter that the first line of a script names; "" if it names none. */
static void read_interpreter(const char *path, char *to, size_t cap)
{
    char line[256];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd < 0 ? 0 : read(fd, line, sizeof line - 1);
    if (fd >= 0) close(fd);
    line[n > 0 ? n : 0] = 0;
    *to = 0;
    if (strncmp(line, "#!", 2)) return;
    const char *name = line + 2 + strspn(line + 2, " \t");
    snprintf(to, cap, " '%.*s'", (int)strcspn(name, " \t\n"), name);
}

/* Says why the command can't be executed. The kernel doesn't tell a missing program from one whose
   interpreter, or dynamic linker, is missing. */
static void say_not_started(const char *word, int why, const char *state)
{
    char interpreter[264];
    const char *path = why == ENOENT ? find_program(word) : NULL;
    if (path) {
        read_interpreter(path, interpreter, sizeof interpreter);
        say("%s: execute '%s': the file is there, but its interpreter%s or what that needs isn't; "
            "%s",
            command_about, word, interpreter, state);
    } else {
        say("%s: execute '%s': %s; %s", command_about, word, strerror(why), state);
    }
}

int not_started(char *const *argv, int why, const char *state)
{
    say_not_started(argv[0], why, state);
    return why == ENOENT ? 127 : why == EAGAIN || why == ENOMEM ? EXIT_INTERNAL : 126;
}

int exec_holding(hf *store, char **argv)
{
    int session_fd = hf_session_fd(store), high = fcntl(session_fd, F_DUPFD, SESSION_FD_MIN);
    if (high < 0) return not_started(argv, errno, not_executed);
    restore_signals();
    execvp(argv[0], argv);
    int why = errno;
    let_writes_fail();
    close(high);
    return not_started(argv, why, not_executed);
}
