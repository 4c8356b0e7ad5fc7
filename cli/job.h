/*
 * job.h - the command that holds locks: the processes that it starts, and what keeps its hold.
 */
#ifndef HF_CLI_JOB_H
#define HF_CLI_JOB_H

#include "cli.h"

/* ---- tree.c: the processes that a command has started ---- */

enum which { MAIN_GROUP, MAIN_SESSION };
struct tree {
    pid_t pid;     /* the command's main process */
    pid_t session; /* as last seen */
    pid_t group;
    unsigned long long start;
    int reaped;
};
void tree_init(struct tree *t, pid_t pid);
/* Sends sig (0: none) to the main process and its living descendants of that kind. Returns how
   many. */
size_t tree_signal(struct tree *t, enum which which, int sig);
char tree_state(const struct tree *t); /* the state of the main process, as in /proc: 'T' is
                                          stopped */
/* Returns 1 if `pid` is the main process or descends from it. */
int tree_has(struct tree *t, pid_t pid);

/* ---- keeper.c: keeping a hold for a command that doesn't carry it ---- */

/* Prepares a keeper, before the command is started. lease_ms: of a hold with a lease, otherwise 0.
   Returns 0, or -1 and errno. */
int keeper_prepare(int session_fd, int64_t lease_ms);
/* Starts the keeper if it was prepared. Called in the process that becomes the command; after
   vfork, so it changes no memory. Before Linux 5.3 there is no keeper. Returns 0 or an errno. */
int keeper_start(void);
/* Ends the keeper, because the hold was released. */
void keeper_dismiss(void);

/* ---- start.c, child.c: running a command that holds locks ---- */

/* at least this number, out of the way of a shell script's own descriptors */
enum { SESSION_FD_MIN = 100 };

struct job {
    char **argv;
    hf *store;
    hf_lock *const *locks; /* some may be NULL */
    size_t n;
    enum on_lost on_lost;  /* what --on-lost asks for; the command isn't told by hf_on_lost */
    int close_session;     /* the command isn't given the descriptor that carries the hold */
    int64_t lease_ms;      /* the lease; 0: the hold lasts as long as processes have the
                              descriptor */
    int64_t stop_at_us;    /* local: when --max-hold passes; INT64_MAX: never */
    const char *unstarted; /* the state if the command can't be started, for the message */
};
struct job_end {
    int status;    /* the exit status of holdfast so far */
    int success;   /* the command ended by itself, with status 0 */
    int lost;      /* the lock was lost, and the command was stopped because of that */
    int overtime;  /* --max-hold passed, and the command was stopped; the lock is still held */
    int left;      /* a process that had to be stopped goes on: don't release what it may
                      still hold */
    int damaged;   /* the store is damaged: the library must not be called any more */
    int kept;      /* processes that the command left behind carry the hold: don't release it */
    int typed_int; /* it died of a Ctrl-C */
};
/* Returns the signal that the command gets if this process is killed; 0: none. Nothing would renew
   the hold then, so a command that doesn't carry the hold itself has to end with this process. */
int death_signal(const struct job *job, int carries);
/* Starts the command. vfork: a fork would copy the page tables of a mapped store. Returns the pid,
   or -1 and *ret_errno. The child changes none of the parent's memory but that reason. */
pid_t start_command(const struct job *job, int session_fd, int death, int *ret_errno);
/* Returns the text of the state if the command wasn't started and holds no event. */
extern const char not_executed[];
/* Prints that the command wasn't started, why, and what the state is. Returns the exit status. */
int not_started(char *const *argv, int why, const char *state);
void run_job(const struct job *job, struct job_end *ret);
/* Replaces this process by the command, which then holds the locks through the store's session.
   Returns only on failure: the exit status. */
int become_command(hf *store, const struct got *got, char **argv);
/* Does what become_command does, without a change of the environment. */
int exec_holding(hf *store, char **argv);
/* Runs o->argv with the locks' names in its environment. Returns the exit status so far. */
int run_holding(hf *store, const struct got *got, const struct options *o, int64_t stop_at_us,
                struct job_end *end);
void release_all(const struct got *got);
/* Stops the command, if one runs, after damage_return(). Returns EXIT_DAMAGED. */
int damaged_job(void);

#endif
