/*
 * cli.h - what the files of the command `holdfast` share.
 */
#ifndef HF_CLI_H
#define HF_CLI_H

#include "holdfast.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/types.h>

enum {
    EXIT_USAGE = 64,
    EXIT_DAMAGED = 65,
    EXIT_INTERNAL = 70,
    EXIT_BUSY = 75,
    EXIT_LOST = 76,
    EXIT_DENIED = 77
};
enum { KEYS_CAP = 64 };

/* ---- main.c ---- */

/* Prints one line on stderr, "holdfast: ..."; control characters become '?'. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Does what say() does, and adds how to get help. Returns EXIT_USAGE. */
int bad_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* With -v, prints the state after this failure, and what to do. */
void advise(int code);
/* Prints the error, and calls advise. Returns the exit status of the code. */
int failed(const hf_error *err);
/* Does what `failed` does; also names the command, its key, and the state that is left. */
int not_changed(const hf_error *err);
/* Flushes and closes stdout. Returns 0; or EXIT_INTERNAL if output got lost, which it reports.
   `state`: what was done all the same, for that message. NULL: nothing was; then a pipe without a
   reader ends this process (end_by_broken_pipe). */
int finish_output_of(const char *state);
/* Calls finish_output_of(NULL). */
int finish_output(void);
/* Does what finish_output_of does, for a write that failed with this errno. */
int output_failed(int error, const char *state);
/* Writes the text to stdout without stdio's buffer. Returns 0 or errno. */
int write_out(const char *text, size_t n);

struct command {
    const char *name, *synopsis, *about, *page;
    int (*run)(const struct command *self, int argc, char **argv);
    int keyed;          /* 1: its first operand is a key */
    const char *undone; /* the state if the store can't be opened, for messages; NULL: the command
                           only reads */
};

/* The store's URL: that of -S, or what find_store has found. Never printed as it is: it may contain
   a password. */
extern const char *store_url;
extern const char *store_owner;  /* the owner of the holds; NULL: random */
extern const char *command_name; /* the subcommand under way, for messages */
/* The subcommand with its key, once that is known ("renew 'k'"), and its `undone`; for messages. */
extern char command_about[HF_KEY_CAP + 16];
extern const char *command_undone;

/* ---- options.c: short options follow flock(1) ---- */

enum takes {                       /* groups of options; a command names those that it takes */
             TAKES_WAIT = 1 << 0,  /* -n -w -E -v -q --owner */
             TAKES_MODE = 1 << 1,  /* -s -x --limit */
             TAKES_LEASE = 1 << 2, /* --lease */
             TAKES_MAX_HOLD = 1 << 3,
             TAKES_AT_LEAST = 1 << 11,
             TAKES_RUN = 1 << 4,      /* --on-lost -o */
             TAKES_ONCE = 1 << 5,     /* --keep --at-most-once */
             TAKES_TOKEN = 1 << 6,    /* --token */
             TAKES_IDLE = 1 << 7,     /* --idle */
             TAKES_ALL = 1 << 8,      /* --all */
             TAKES_JSON = 1 << 9,     /* --json */
             TAKES_CMD = 1 << 10,     /* operands end where a command begins */
             TAKES_NO_FORK = 1 << 12, /* -F */
             TAKES_LOOK = 1 << 13     /* -v: print how the store is set up */
};

enum on_lost { ON_LOST_TERM, ON_LOST_KILL, ON_LOST_IGNORE };

struct options {
    int64_t wait_ms, lease_ms, max_hold_ms, at_least_ms, keep_ms;
    int64_t idle_ms; /* -1: not given */
    uint64_t token;  /* 0: not given */
    enum hf_mode mode;
    uint32_t limit;
    enum on_lost on_lost;
    int busy_status; /* the exit status if the key isn't obtained */
    int close_session, at_most_once, all, json, verbose, quiet, no_fork;
    int no_wait, waits, limited, plain_mode; /* 1: -n was given; -w; --limit; -s or -x */
    const char *owner;                       /* NULL: random */
    char **args;                             /* the operands: keys, a prefix, a URL */
    int n_args;
    char **argv; /* the command to run, NULL-terminated; NULL: none */
};

/* Parses a command line. Returns 0; -1: --help was given, and help was printed; or the exit status,
   with an error printed. */
int parse_options(const struct command *self, unsigned takes, int argc, char **argv,
                  struct options *ret);
/* Replaces every character of a secret in the URLs of a text by '*'. Returns 1 if there was one. */
int wipe_secrets(char *text);
/* Writes a store's URL without its secrets, which makes it shorter. Of a text that can't be parsed
   only the scheme is left, because any other part may be a password; without a scheme, "". Returns
   1 if a secret was recognized. */
int wipe_url(char *text);
/* Parses a time such as "500ms", "10s", "1.5h", "7d" or "2" (seconds). Returns milliseconds,
   rounded up; -1: not a time; INT64_MAX: more than a hundred years. */
int64_t parse_time(const char *text);
/* Checks the number of operands. Returns 0 or EXIT_USAGE. */
int want_args(const struct options *o, int least, int most, const char *what);
/* Takes the store's URL from an argument of -S, and wipes its secrets in the argument list. Returns
   0 or the exit status. */
int take_url(char *arg);
/* Sets store_url if -S hasn't. Returns 0 or the exit status. */
int find_store(void);
extern const char *store_from; /* where the URL comes from, for messages */
extern int store_told;         /* 1: print which store is used when it is opened */
extern int store_quiet;        /* 1: don't warn about a password in the arguments */
/* Opens the store for a command that takes locks. Refuses a store that no other process can open.
   Returns 0 or the exit status. `note` NULL: the library's own note. The limit wait_ms begins here,
   and bounds how long one request may take. While the store can't be reached, opening is tried
   again until the limit, or for 5 s if there is no limit; not at all if wait_ms is 0. While a
   server is there, but has no room for a client or isn't ready yet (err.sys is EBUSY), opening
   without a limit is tried again for as long. */
int open_to_lock(const char *note, int64_t wait_ms, hf **ret);
/* Opens the store for a command that doesn't wait: makes one attempt. */
int open_at_once(hf **ret);
/* Returns 1 if this failure may pass by itself: a server can't be reached, is starting, or has too
   many clients. An error with an errno comes from this machine, and doesn't pass. */
int may_pass(const hf_error *err);
/* Returns " (store URL, named by -S)", for messages, if the error says that the server can't be
   reached; else "". Some stores don't connect before the first request. Good until the next call.
 */
const char *unreached_store(const hf_error *err);
/* Does what open_at_once does, for a command that only reads; makes no store. If a store that was
   named isn't there, fails. If the default store isn't there, it counts as empty: returns 0, with
   NULL in *ret. */
int open_to_look(hf **ret);
/* Does what open_at_once does, for a command that changes a row; makes no store. If the default
   store doesn't exist, prints that the key isn't held, and returns status 76. */
int open_to_change(const char *key, hf **ret);
/* Returns 1 if no store was named, so that the default store is used. */
int store_is_default(void);
hf_options lock_options(const struct options *o);

/* ---- people.c: describes holders and waiters ---- */

struct person { /* what a note says; the strings are safe to show on a terminal */
    char host[80], user[80], command[HF_NOTE_CAP];
    long pid;                         /* 0: unknown */
    unsigned long long pid_namespace; /* 0: unknown */
};
void read_note(const char *note, struct person *ret);
/* Writes the note for a holder: of this process, which runs argv; or of the program that has called
   it, if argv is NULL. */
void write_note(char note[HF_NOTE_CAP], char *const *argv);
/* Writes a unique owner for this process: "anna@box:1234:" and 16 random digits. */
void write_owner(char owner[HF_OWNER_CAP]);
/* Writes an owner without the random digits of write_owner. */
void show_owner(const char *owner, char *to, size_t cap);
/* Returns 1 if the process that the note names has ended, but a process that it started still holds
   the lock. */
int is_carried(const hf_party_info *p);
/* Writes a holder as "anna@box pid 1234 (make deploy)". */
void describe(const hf_party_info *p, char *to, size_t cap);
/* Writes a time as "2026-01-31 12:30:00" (UTC). */
void show_time(int64_t us, char *to, size_t cap);
/* Writes a time span as "1h02m" or "3.5s"; "-": as long as the holder's process lives. */
void show_left(int64_t ms, char *to, size_t cap);
/* Lines to be sorted by key. */
struct lines {
    char **line; /* "KEY\0whole line" */
    size_t n, cap;
};
/* Adds a line. Returns 0, or nonzero if there is no memory. */
int collect_line(struct lines *lines, const char *key, const char *line);
/* Sorts and prints the lines, and frees them. */
void print_lines(struct lines *lines);

/* ---- json.c ---- */

const char *mode_name(enum hf_mode mode); /* "exclusive" */

/* Returns one JSON document on one line, with its newline, for the caller to free; NULL: out of
   memory. */
char *json_info(const hf_info *info);
char *json_damaged(const char *key, const char *why);
char *json_fields(const char *format, ...);

/* ---- output.c: writes to standard error without blocking ---- */

/* Queues the text for a thread that writes it, and waits for that only while the descriptor takes
   text. `unless`: for a line on the terminal that is replaced later: the line isn't queued if
   *unless is set, or if older text isn't written yet. `shown` (atomic; NULL: none) is set to 1 if
   the text was queued or written. Returns 1 then. Any thread may call this. */
int output_add(const char *text, size_t n, const int *unless, int *shown);
/* Sets *stopped. When this returns, each output_add with it as `unless` has set its `shown`, or
   will queue nothing. */
void output_stop(int *stopped);
/* Waits up to 300 ms for queued text to be written, before this process ends. */
void output_end(void);
/* Starts a thread that gets no signals. Returns 0 or -1. */
int start_thread(pthread_t *ret, void *(*body)(void *arg), void *arg);

/* ---- ending.c: releases locks and closes the store in limited time ---- */

enum {
    LOST_END_MS = 800,    /* for all that is left to do after a lock was lost */
    IDLE_CLOSE_MS = 2000, /* for closing a handle that holds no lock */
    GIVE_BACK_MS = 7000 /* for the release of the locks: a little more than its requests may take */
};
/* Runs `body` in a thread, and waits for it. Returns 1: it is done; 0: it still runs after
   limit_ms, and the caller may only call leave_now. */
int done_within(int64_t limit_ms, void (*body)(void *arg), void *arg);
/* Runs `body` in a thread until it is done or an end signal comes. Call block_signals before.
   Returns: 0: it is done; -1: no thread could be started, and nothing was done; otherwise the
   signal. If `body` still runs then, it gets more_ms more; after that the caller may only call
   leave_now. */
int done_or_signal(void (*body)(void *arg), void *arg, int64_t more_ms, int *ret_typed);
/* Ends this process at once, although threads may still run. */
void leave_now(int status) __attribute__((noreturn));
/* Closes the store. If that takes too long, ends this process with the status. */
void close_within(hf *store, int64_t limit_ms, int status);

/* ---- limit.c: the time limit of a wait ---- */

/* How long this process lives at most after its limit has passed, or after a signal. */
enum { LIMIT_END_MS = 1000 };
/* Starts a limit of more than 0, which covers the opening of the store and the wait. */
void limit_begin(int64_t wait_ms);
/* Returns what is left of the limit; HF_FOREVER: there is no limit. */
int64_t limit_left_ms(void);
/* This process's end: the time at which it ends at the latest. Sets it to `ms` from now, unless it
   is earlier already. */
void limit_end_in(int64_t ms);
/* Removes the end. */
void limit_no_end(void);
/* Returns the time left until the end; INT64_MAX: no end is set. */
int64_t limit_end_left_ms(void);
/* Returns a timeout for poll: most_ms (-1: none), or the time until the end if that is less. */
int limit_poll_ms(int most_ms);
/* Runs `body` in a thread, and waits for it until the end. Returns 1 if it is done; 0: the caller
   may only call leave_now. */
int done_by_end(void (*body)(void *arg), void *arg);

/* ---- live.c: the live line, one line on the terminal that is replaced and removed again ---- */

/* Returns 1 if stderr is a terminal, and this process is in its foreground. */
int live_possible(void);
/* Returns how many columns of a terminal the UTF-8 text takes. */
size_t columns_of(const char *text);
/* Shows the live line, in place of the one before, unless *unless is set (NULL: in any case); see
   output_stop. */
void live_show(const int *unless, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Removes the live line. */
void live_erase(void);
/* Shows in the live line what takes long, after a second, until progress_end. progress_count adds a
   number to it. */
void progress_begin(const char *what);
void progress_count(uint64_t n);
void progress_end(void);

/* ---- get.c: from options to locks ---- */

struct want {
    char *const *keys;
    size_t n;
    hf_options options;
    int once;
    int64_t keep_ms;
    const char *note; /* of the request: finds its place in the queue */
    int verbose, quiet, busy_status;
    int64_t max_hold_ms; /* 0: none; counts from the first grant */
};
struct got {
    hf_lock *locks[KEYS_CAP]; /* in the order of the keys; with once: locks[0] is NULL if the event
                                 is done */
    size_t n;
    hf_once once;
    int64_t first_us; /* the local time of the first grant; 0: none yet */
    int status;       /* if there are no locks: the exit status */
};
/* Returns the local time at which --max-hold passes for the locks in `got`; INT64_MAX: never. */
int64_t max_hold_ends_us(const struct want *want, const struct got *got);
/* Acquires all locks, or none. Returns 0; -1: no lock is held, the reason was printed, and
   ret->status is the exit status. */
int get_locks(hf *store, const struct want *want, struct got *ret);
/* Releases locks under which no command was run, until the end (limit.c) at most. */
void give_up_all(struct got *got);

/* ---- waiting.c: the holders in the way ---- */

struct looking {
    const char *note; /* of this process's request */
    char holder[400], since[40];
    int64_t left_ms;                /* of the holder's lease */
    size_t holders, waiters, place; /* place: of this process's request in the queue, from 1; 0: it
                                       isn't there */
    const hf_options *options;      /* of this process's request; NULL: `shut_out` isn't wanted */
    int own;                        /* 1: a `holdfast run` holds the key under which this process
                                       runs */
    int shut_out;                   /* 1: as long as that run holds the key, it can't be granted to
                                       this process, or to a waiter, behind which it would wait */
};
/* Fills *ret for the first of the keys that is held or waited for; or for this one, if `only` isn't
   NULL. Returns the key; NULL: none is. */
const char *find_busy(hf *store, const struct want *want, const char *only, struct looking *ret);
/* Returns 1 if the store shows that an outer run, under which this process runs, holds one of the
   keys. */
int held_outside(hf *store, const struct want *want);
/* Returns the first key for which a wait would never end, because of an outer run's grant; NULL:
   none. */
const char *waited_for_in_vain(hf *store, const struct want *want);
/* Writes the mark of an owner, a hash that follows the tokens of this owner in HOLDFAST_OUTER. */
void owner_mark(const char *owner, char *to, size_t cap);
/* Shows the holder of `key`, one of the keys, in the live line, by a thread that reads the store,
   until waiting_line_end. `want` must live until waiting_line_join. */
void waiting_line_begin(hf *store, const struct want *want, const char *key);
/* Removes the line at once. The thread may still wait for the store. */
void waiting_line_end(void);
/* Returns 1 if the thread has ended, or wasn't started; 0: it still waits for the store. */
int waiting_line_ended(void);
/* Waits for the end of the thread. Called before the store is closed. */
void waiting_line_join(void);

/* ---- signals.c ---- */

/* Ignores SIGPIPE and SIGXFSZ: a write to a pipe without a reader, or beyond the limit of a file's
   size (ulimit -f), fails instead of ending this process. restore_signals undoes that for the
   command that is run. */
void let_writes_fail(void);
/* Ends this process by SIGPIPE. Returns if SIGPIPE was ignored when this process began. */
void end_by_broken_pipe(void);
/* Blocks INT, TERM, HUP and QUIT (unless they are ignored), so that they can be read. */
void block_signals(void);
/* Blocks these four, the signals that are passed on to a running command, and SIGCHLD. */
void block_job_signals(void);
/* Restores the signals as they were when this process began, for a command that is executed next.
   May be called after vfork. */
void restore_signals(void);
/* Unblocks the signals, so that they end this process again. */
void unblock_signals(void);
/* Returns a descriptor from which the blocked signals are read; -1: there is none. */
int signals_fd(void);
/* Returns the number of a pending signal of the four, and removes it; 0: none. *ret_typed: 1 if the
   terminal has sent it (Ctrl-C). */
int pending_end_signal(int *ret_typed);
/* Waits for one of the four until until_us (local), after block_job_signals. Returns: its number,
   with *ret_typed as above; 0: none came, or a child changed first. */
int await_end_signal(int64_t until_us, int *ret_typed);
/* If the signal came from the terminal (`typed`), ends this process by it: a shell that sees
   another end goes on with its script. Otherwise returns the exit status 128 + sig. */
int end_by_signal(int sig, int typed);

/* ---- damage.c: a store that is truncated while it is mapped ---- */

/*
 * Installs a handler of SIGBUS, which access to a truncated store raises. Once damage_return() was
 * called:
 *   - In the main thread the handler jumps back to damage_return(), which then returns 1.
 *   - In another thread it makes damage_fd() readable. The main thread must call damage_seen()
 *     within 3 s, and must not call the library any more.
 *
 * Before damage_return() was called, or after the 3 s, the handler kills the process of
 * damage_kills(), and exits with EXIT_DAMAGED.
 */
void watch_for_damage(void);
#define damage_return() sigsetjmp(*damage_jump(), 0)
sigjmp_buf *damage_jump(void);
int damage_fd(void); /* readable: damaged; -1: none */
void damage_seen(void);
/* Names the process that is killed if the main thread doesn't do it in time; 0: none. */
void damage_kills(pid_t pid);

/* ---- the commands ---- */

int run_command(const struct command *, int, char **);
int once_command(const struct command *, int, char **);
int acquire_command(const struct command *, int, char **);
int renew_command(const struct command *, int, char **);
int enter_command(const struct command *, int, char **);
int release_command(const struct command *, int, char **);
int ls_command(const struct command *, int, char **);
int show_command(const struct command *, int, char **);
int watch_command(const struct command *, int, char **);
int break_command(const struct command *, int, char **);
int forget_command(const struct command *, int, char **);
int prune_command(const struct command *, int, char **);
int guard_command(const struct command *, int, char **);
int stores_command(const struct command *, int, char **);
int doctor_command(const struct command *, int, char **);
int bench_command(const struct command *, int, char **);

#endif
