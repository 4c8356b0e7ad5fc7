/*
 * job.h - runs a command that holds locks: its processes, the keeper of its hold, its start and
 * end.
 */
#ifndef HF_CLI_JOB_H
#define HF_CLI_JOB_H

#include "cli.h"

/* ---- tree.c: the processes that a command has started ---- */

/* Which processes: those in the process group of the main process, or in its session. */
enum which { MAIN_GROUP, MAIN_SESSION };
struct tree {
    pid_t pid;     /* the command's main process */
    pid_t session; /* of the main process, as last seen */
    pid_t group;
    unsigned long long start;
    int reaped; /* 1: waitpid has returned the main process */
};
void tree_init(struct tree *t, pid_t pid);
/* Sends sig (0: only counts) to the main process and its living descendants, those of `which`.
   Returns how many there are. */
size_t tree_signal(struct tree *t, enum which which, int sig);
/* Returns the state of the main process, as in /proc: 'T' is stopped. */
char tree_state(const struct tree *t);
/* Returns 1 if `pid` is the main process or descends from it. */
int tree_has(struct tree *t, pid_t pid);

/* ---- keeper.c: the keeper, a process that keeps a hold for a command without its descriptor ----
 */

/* Prepares a keeper, before the command is started. lease_ms: of a hold with a lease, otherwise 0.
   Returns 0, or -1 and errno. */
int keeper_prepare(int session_fd, int64_t lease_ms);
/* Starts the keeper if it was prepared. Called after vfork, in the process that becomes the
   command; changes no memory of the parent. Before Linux 5.3 there is no keeper. Returns 0 or an
   errno. */
int keeper_start(void);
/* Ends the keeper, because the hold was released. */
void keeper_dismiss(void);

/* ---- start.c, child.c: running a command that holds locks ---- */

/* Returns the path of the program that this word runs, as execvp(3) finds it; NULL: it runs none.
   Good until the next call. */
const char *find_program(const char *word);

/* The session's descriptor gets at least this number: scripts use low numbers themselves. */
enum { SESSION_FD_MIN = 100 };

struct job {
    char **argv;
    hf *store;
    hf_lock *const *locks; /* some may be NULL */
    size_t n;
    enum on_lost on_lost; /* what --on-lost asks for */
    int close_session;    /* 1: the command doesn't get the descriptor on which the hold depends */
    int64_t lease_ms;     /* the lease; 0: the hold lasts as long as a process has the descriptor */
    int64_t stop_at_us;   /* local: when --max-hold passes; INT64_MAX: never */
    const char *unstarted; /* the state if the command can't be started, for the message */
};
struct job_end {
    int status;    /* the exit status of holdfast so far */
    int success;   /* 1: the command ended by itself, with status 0 */
    int lost;      /* 1: the lock was lost, and the command was stopped because of that */
    int overtime;  /* 1: --max-hold passed, and the command was stopped; the lock is still held */
    int left;      /* 1: a process that was to be stopped goes on: don't release what it holds */
    int damaged;   /* 1: the store is damaged: the library must not be called any more */
    int kept;      /* 1: processes that the command left behind go on, and have the hold's
                      descriptor: don't release it */
    int typed_int; /* 1: a Ctrl-C ended the command */
};
/* Returns the signal that the kernel sends to the command if this process is killed; 0: none. No
   process would renew the hold then. So a command without the hold's descriptor (`carries` 0) has
   to end with this process. */
int death_signal(const struct job *job, int carries);
/* Starts the command by vfork, because a fork would copy the page tables of a mapped store. Returns
   the pid, or -1 and *ret_errno. The child changes no memory of the parent but *ret_errno. */
pid_t start_command(const struct job *job, int session_fd, int death, int *ret_errno);
/* The state for not_started, if the command has no event. */
extern const char not_executed[];
/* Prints that the command wasn't started, why, and the state. Returns the exit status. */
int not_started(char *const *argv, int why, const char *state);
/* Starts the command, and watches it and the locks until it has ended. */
void run_job(const struct job *job, struct job_end *ret);
/* Replaces this process by the command, which holds the locks by the session's descriptor. Returns
   only after a failure: the exit status. */
int become_command(hf *store, const struct got *got, char **argv);
/* Does what become_command does, without a change of the environment. */
int exec_holding(hf *store, char **argv);
/* Runs o->argv with keys, tokens and owner in its environment. Returns the exit status so far. */
int run_holding(hf *store, const struct got *got, const struct options *o, int64_t stop_at_us,
                struct job_end *end);
/* Releases locks under which no command was run. */
void release_all(const struct got *got);
/* Stops the command, if one runs, after damage_return(). Returns EXIT_DAMAGED. */
int damaged_job(void);

#endif
