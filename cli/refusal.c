/*
 * refusal.c - the refusal: what `holdfast acquire` prints if it doesn't acquire. A shell that
 * evaluates it fails.
 *
 * In `eval "$(holdfast acquire ...)"` the shell drops the exit status of holdfast, and evaluating
 * no text succeeds: the script would go on without the lock. So every end without a grant (a wrong
 * option, a store that doesn't answer, a signal, help) prints text that clears the variables, and
 * that fails with the exit status when it is evaluated. This doesn't help if nothing can be printed
 * (SIGKILL, holdfast isn't found): see holdfast-acquire(1).
 */
#include "refusal.h"

#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Signals that may come, and end a process that has no handler for them. */
static const int deadly[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGILL, SIGABRT, SIGFPE,  SIGSEGV,  SIGALRM,
                             SIGTERM, SIGUSR1, SIGUSR2, SIGSYS, SIGTRAP, SIGXCPU, SIGVTALRM};

#define CLEAR "unset HOLDFAST_KEY HOLDFAST_TOKEN HOLDFAST_OWNER; "

static volatile sig_atomic_t armed; /* 1: print the refusal as shell text; 2: as JSON; 0: don't, or
                                       it was printed */
static char reason[1024];           /* the last message */

/* Writes a number below 1,000. Returns its length. */
static size_t add_number(char *to, int n)
{
    size_t at = 0;
    for (int unit = 100; unit; unit /= 10)
        if (n >= unit || unit == 1) to[at++] = (char)('0' + n / unit % 10);
    return at;
}

/* Prints the text `before`, the status and the text `after`. Async-signal-safe. */
static void print(const char *before, int status, const char *after)
{
    char text[256];
    size_t n = strlen(before), m = strlen(after), at = 0;
    memcpy(text, before, n);
    n += add_number(text + n, status);
    memcpy(text + n, after, m);
    n += m;
    while (at < n) {
        ssize_t done = write(STDOUT_FILENO, text + at, n - at);
        /* Nothing more can be written, as to a pipe without a reader. */
        if (done <= 0 && errno != EINTR) return;
        if (done > 0) at += (size_t)done;
    }
}

void refuse(int status)
{
    int how = armed;
    armed = 0;
    /* Fails even with -E 0, because the shell that evaluates this has no lock. */
    if (!status) status = EXIT_BUSY;
    if (how == 1) print(CLEAR "(exit ", status, ")\n");
    if (how == 2) print("{\"held\":false,\"status\":", status, "}\n");
}

static void on_deadly(int sig)
{
    struct sigaction standard = {.sa_handler = SIG_DFL};
    sigset_t one;
    refuse(128 + sig);
    sigaction(sig, &standard, NULL);
    sigemptyset(&one);
    sigaddset(&one, sig);
    raise(sig);
    sigprocmask(SIG_UNBLOCK, &one, NULL);
}

void refuse_begin(int argc, char *const *argv)
{
    struct sigaction act = {.sa_handler = on_deadly}, now;
    armed = isatty(STDOUT_FILENO) ? 0 : 1; /* no shell evaluates what goes to a terminal */
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
        if (!strcmp(argv[i], "--json")) armed = 2;
    for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++)
        if (!sigaction(deadly[i], NULL, &now) && now.sa_handler == SIG_DFL)
            sigaction(deadly[i], &act, NULL);
}

void refuse_end(void) { armed = 0; }

/* Begins a here-document as the input of `:`, so that a shell that evaluates the text runs nothing
   of it. */
void answer_begin(void)
{
    if (armed == 1) fputs(": <<'END'\n", stdout);
}

void answer_end(void)
{
    if (armed == 1) printf("END\n" CLEAR "(exit %d)\n", EXIT_USAGE);
    armed = 0;
}

void refuse_reason(const char *text)
{
    if (armed) snprintf(reason, sizeof reason, "%s", text);
}

int refused(int status)
{
    char *line = NULL;
    if (armed == 2)
        line = json_fields("{s:b, s:i, s:s?}", "held", 0, "status", status ? status : EXIT_BUSY,
                           "error", *reason ? reason : NULL);
    if (line) {
        fputs(line, stdout);
        if (fflush(stdout)) clearerr(stdout); /* if it can't be written, the status has to do */
        armed = 0;
    }
    free(line);
    refuse(status);
    return status;
}
