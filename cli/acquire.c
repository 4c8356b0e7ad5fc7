/*
 * acquire.c - holdfast acquire, renew, enter, release: for scripts, with grants that outlive the
 * process that makes them.
 *
 * After a success `acquire` doesn't close the handle, because closing would release the grants.
 */
#include "cli.h"

#include "refusal.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    WRITTEN_MS = 200
}; /* how long the text of the grants may take to be written after a signal */

static void print_in_quotes(FILE *to, const char *text)
{
    for (; *text; text++)
        if (*text == '\'')
            fputs("'\\''", to);
        else
            putc(*text, to);
}

/* Prints the grants as text for the shell's `eval`. */
static void print_grants(FILE *to, const struct got *got)
{
    fputs("HOLDFAST_KEY='", to);
    for (size_t i = 0; i < got->n; i++) {
        if (i) putc(' ', to);
        print_in_quotes(to, hf_key(got->locks[i]));
    }
    fputs("'\nHOLDFAST_TOKEN='", to);
    for (size_t i = 0; i < got->n; i++)
        fprintf(to, "%s%llu", i ? " " : "", (unsigned long long)hf_token(got->locks[i]));
    fputs("'\nHOLDFAST_OWNER='", to);
    print_in_quotes(to, hf_owner(got->locks[0]));
    fputs("'\n", to);
}

static void print_grant_json(FILE *to, const hf_lock *lock)
{
    char *line = json_fields("{s:s, s:b, s:I, s:s, s:I}", "key", hf_key(lock), "held", 1, "token",
                             (long long)hf_token(lock), "owner", hf_owner(lock), "left_ms",
                             (long long)hf_left_ms(lock));
    if (line) fputs(line, to);
    free(line);
}

/* What the thread uses that writes the grants to stdout. Static, because that thread may still run
   when this process ends. */
static struct {
    char *text;
    size_t n;
    int error;
    /* begun: set by whichever comes first: the writer that begins, or the main thread after a
       signal, which keeps the writer from beginning. */
    _Atomic int begun, written;
} printed;

static void write_printed(void *arg)
{
    (void)arg;
    if (atomic_exchange(&printed.begun, 1)) return;
    printed.error = write_out(printed.text, printed.n);
    atomic_store(&printed.written, 1);
}

/* Returns 1 if the refusal (refusal.c) may be printed after a signal: the grants' text is either
   written or will never be, and stdout takes text. */
static int may_refuse(void)
{
    struct pollfd out = {STDOUT_FILENO, POLLOUT, 0};
    int is_next = !atomic_exchange(&printed.begun, 1) || atomic_load(&printed.written);
    return is_next && poll(&out, 1, 0) > 0 && out.revents & POLLOUT;
}

/* Prints the grants. If a signal comes before they are printed, or they can't be written, releases
   them: no program would know of them. Returns the exit status. */
static int tell(struct got *got, int json, int local)
{
    static const char gone[] = "what was acquired is given back";
    int typed = 0;
    FILE *to = open_memstream(&printed.text, &printed.n);
    for (size_t i = 0; to && json && i < got->n; i++) print_grant_json(to, got->locks[i]);
    if (to && !json) print_grants(to, got);
    if (!to || fclose(to)) {
        if (!local) limit_end_in(LIMIT_END_MS);
        say("acquire: out of memory; %s", gone);
        give_up_all(got);
        return EXIT_INTERNAL;
    }
    int sig = done_or_signal(write_printed, NULL, WRITTEN_MS, &typed);
    if (sig < 0) { /* no thread: writes here, where a full pipe blocks and no signal interrupts */
        write_printed(NULL);
        sig = 0;
    }
    if (!sig || !may_refuse()) refuse_end();
    if (!sig && !printed.error && !finish_output_of(gone)) return 0;
    if (!local) limit_end_in(LIMIT_END_MS);
    if (!sig && printed.error) (void)output_failed(printed.error, gone);
    give_up_all(got);
    if (sig) leave_now(end_by_signal(sig, typed));
    return EXIT_INTERNAL;
}

static int acquire(const struct command *self, int argc, char **argv)
{
    static struct options o;
    static struct got got;
    static struct want want; /* static: a thread may still use it */
    hf *store;
    char note[HF_NOTE_CAP];
    unsigned takes = TAKES_WAIT | TAKES_MODE | TAKES_LEASE | TAKES_JSON;
    int status = parse_options(self, takes, argc, argv, &o);
    if (!status) status = want_args(&o, 1, KEYS_CAP, "key");
    if (!status && !o.lease_ms) status = bad_usage("--lease is missing: how long to hold");
    if (status) return status < 0 ? finish_output() : status;
    write_note(note, NULL);
    watch_for_damage();
    status = open_to_lock(note, o.wait_ms, &store);
    if (status) return status;
    block_signals();
    want = (struct want){o.args,    (size_t)o.n_args, lock_options(&o), 0, 0, note,
                         o.verbose, o.quiet,          o.busy_status,    0};
    want.options.flags |= HF_DETACHED;
    if (get_locks(store, &want, &got)) {
        refused(got.status);
        close_within(store, IDLE_CLOSE_MS, got.status);
        return got.status;
    }
    status = tell(&got, o.json, hf_session_fd(store) >= 0);
    /* The shell waits for the end of this process, while the lease runs. */
    if (!waiting_line_ended()) leave_now(status);
    return status;
}

int acquire_command(const struct command *self, int argc, char **argv)
{
    return refused(acquire(self, argc, argv));
}

/* Opens the store, and adopts the grant of the key and token in the arguments. Returns 0; or the
   exit status (-1: help was printed). */
static int adopt(const struct command *self, unsigned more, int most, int argc, char **argv,
                 struct options *o, hf **ret_store, hf_lock **ret)
{
    hf_error err;
    int status = parse_options(self, TAKES_TOKEN | more, argc, argv, o);
    if (!status) status = want_args(o, 1, most, "operand");
    if (!status && !o->token)
        status = bad_usage("--token is missing: which grant of '%s'", o->args[0]);
    if (status) return status;
    watch_for_damage();
    status = open_to_change(o->args[0], ret_store);
    if (status) return status;
    if (!hf_adopt(*ret_store, o->args[0], o->token, ret, &err)) return 0;
    /* The message names the subcommand instead of "adopt". */
    static const char how[] = "adopt '";
    if (strncmp(err.text, how, sizeof how - 1)) return not_changed(&err);
    say("%s '%s", self->name, err.text + sizeof how - 1);
    return hf_code_exit_status(err.code);
}

int renew_command(const struct command *self, int argc, char **argv)
{
    struct options o;
    hf *store;
    hf_lock *lock;
    hf_error err;
    int status = adopt(self, TAKES_LEASE | TAKES_JSON, 1, argc, argv, &o, &store, &lock);
    if (status) return status < 0 ? finish_output() : status;
    if (hf_renew(lock, o.lease_ms, &err)) return not_changed(&err);
    if (o.json) print_grant_json(stdout, lock);
    hf_close(store); /* an adopted grant is not released */
    return finish_output_of("the grant was renewed");
}

int enter_command(const struct command *self, int argc, char **argv)
{
    struct options o;
    hf *store;
    hf_lock *lock;
    hf_error err;
    int status = adopt(self, 0, 2, argc, argv, &o, &store, &lock);
    if (status) return status < 0 ? finish_output() : status;
    status = hf_enter(lock, o.n_args > 1 ? o.args[1] : NULL, &err) ? failed(&err) : 0;
    hf_close(store); /* an adopted grant is not released */
    return status;
}

int release_command(const struct command *self, int argc, char **argv)
{
    struct options o;
    hf *store;
    hf_lock *lock;
    hf_error err;
    int status = adopt(self, 0, 1, argc, argv, &o, &store, &lock);
    if (status) return status < 0 ? finish_output() : status;
    status = hf_release(lock, &err) ? failed(&err) : 0;
    hf_close(store);
    return status;
}
