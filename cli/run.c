/*
 * run.c - holdfast run: holds keys while a command runs.
 */
#include "job.h"

#include "admin.h"
#include "os.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Returns the keys, tokens or owners of the locks as "a b c"; one owner if it is the same for all.
 */
static char *joined(const struct got *got, const char *(*what)(const hf_lock *, char *))
{
    char scratch[32];
    size_t len = 1, at = 0;
    for (size_t i = 0; i < got->n; i++) len += strlen(what(got->locks[i], scratch)) + 1;
    char *to = malloc(len);
    for (size_t i = 0; to && i < got->n; i++)
        at +=
            (size_t)snprintf(to + at, len - at, "%s%s", i ? " " : "", what(got->locks[i], scratch));
    return to;
}

static const char *key_of(const hf_lock *lock, char *scratch)
{
    (void)scratch;
    return hf_key(lock);
}

static const char *token_of(const hf_lock *lock, char *scratch)
{
    snprintf(scratch, 32, "%llu", (unsigned long long)hf_token(lock));
    return scratch;
}

/* Variables with secrets for this process's own use of the store (see doc/stores). They are removed
   from the command's environment. */
static const char *const secrets[] = {"FIRESTORE_ID_TOKEN"};

/* Returns the value of HOLDFAST_OUTER for the command: the tokens of all outer runs, under which
   this process runs; NULL: there are none, or no memory. */
static char *outer_tokens(void)
{
    const char *outer = getenv("HOLDFAST_OUTER"), *inner = getenv("HOLDFAST_TOKEN");
    const char *owner = getenv("HOLDFAST_OWNER");
    char mark[20] = "", *all = outer ? strdup(outer) : NULL;
    if (owner) owner_mark(owner, mark, sizeof mark);
    for (inner = inner ? inner : ""; *(inner += strspn(inner, " ")); inner += strcspn(inner, " ")) {
        char *before = all;
        if (asprintf(&all, "%s%s%.*s%s", before ? before : "", before && *before ? " " : "",
                     (int)strcspn(inner, " "), inner, mark) < 0)
            all = NULL;
        free(before);
        if (!all) break;
    }
    return all;
}

/* Sets the variables HOLDFAST_* for the command, in place of all inherited ones of that name. */
static int set_environment(const hf *store, const struct got *got)
{
    char *outer = outer_tokens();
    char *keys = joined(got, key_of), *tokens = joined(got, token_of);
    const char *const pairs[][2] = {{"HOLDFAST_KEY", keys},
                                    {"HOLDFAST_TOKEN", tokens},
                                    {"HOLDFAST_OWNER", hf_owner(got->locks[0])},
                                    {"HOLDFAST_STORE", hf_store_url(store)}};
    int bad = !keys || !tokens || unsetenv("HOLDFAST_OUTER") ||
              (outer && setenv("HOLDFAST_OUTER", outer, 1));
    for (size_t i = 0; i < 4 && !bad; i++)
        bad = unsetenv(pairs[i][0]) || setenv(pairs[i][0], pairs[i][1], 1);
    for (size_t i = 0; i < sizeof secrets / sizeof *secrets && !bad; i++)
        bad = unsetenv(secrets[i]);
    free(outer);
    free(keys);
    free(tokens);
    return bad;
}

/* Releases locks that weren't used. */
void release_all(const struct got *got)
{
    hf_error err;
    for (size_t i = got->n; i-- > 0;)
        if (hf__give_up(got->locks[i], &err)) say("%s", err.text);
}

struct holding { /* the locks to release */
    hf *store;
    const struct got *got;
    const struct options *o;
    int quiet;       /* 1: don't print that a lock is lost: that was printed, or is ignored */
    int lost;        /* 1: a release has found a lock lost (atomic) */
    const char *key; /* of the lock that is being released (atomic) */
};

/* Releases all locks. Reports a lock that turns out to be lost, unless `quiet`. */
static void give_back(void *arg)
{
    struct holding *h = arg;
    hf_error err;
    for (size_t i = h->got->n; i-- > 0;) {
        __atomic_store_n(&h->key, h->o->args[i], __ATOMIC_RELAXED);
        int rc = hf_release(h->got->locks[i], &err);
        if (!rc || h->quiet) continue;
        say("%s", err.text);
        if (rc == HF_LOST) __atomic_store_n(&h->lost, 1, __ATOMIC_RELAXED);
    }
}

/* Returns 1 if the holder has lost all of the locks. */
static int all_lost(const struct got *got)
{
    size_t i = 0;
    while (i < got->n && hf_left_ms(got->locks[i]) <= 0) i++;
    return i == got->n;
}

/* Returns how long the release of the locks may take: no longer than their leases last, which then
   end by themselves. After a loss only LOST_END_MS, because the store may still not answer. A lock
   that was handed over ends with its claim timeout until its claim is stored, which may happen
   while the release waits; so for a young hold the whole lease counts. */
static int64_t give_back_ms(const struct got *got, const struct options *o, int64_t held_ms,
                            int lost)
{
    int64_t lease_ms = o->lease_ms ? o->lease_ms : 3 * GIVE_BACK_MS; /* at least */
    int64_t most_ms = held_ms < lease_ms / 3 ? lease_ms : 0;
    if (lost) return LOST_END_MS;
    if (o->max_hold_ms) return GIVE_BACK_MS; /* --max-hold may pass before the lease ends */
    for (size_t i = 0; i < got->n; i++) {
        int64_t left_ms = hf_left_ms(got->locks[i]);
        if (left_ms > most_ms) most_ms = left_ms;
    }
    if (most_ms < LOST_END_MS) return LOST_END_MS;
    return most_ms < GIVE_BACK_MS ? most_ms : GIVE_BACK_MS;
}

/* Releases the locks, unless processes go on holding. If that takes too long, ends this process. */
static void finish(hf *store, const struct got *got, const struct options *o, int64_t got_us,
                   struct job_end *end)
{
    static struct holding h; /* static: the thread may still use it */
    int ignores = o->on_lost == ON_LOST_IGNORE, lost = end->lost || (ignores && all_lost(got));
    h = (struct holding){store, got, o, end->lost || ignores, 0, ""};
    int done = 1;
    if (lost) limit_end_in(LOST_END_MS); /* for the close, too */
    if (hf_session_fd(store) >= 0)
        give_back(&h);
    else
        done = done_within(give_back_ms(got, o, (hf__local_us() - got_us) / 1000, lost), give_back,
                           &h);
    if (__atomic_load_n(&h.lost, __ATOMIC_RELAXED)) end->status = EXIT_LOST;
    if (done) return;
    if (!h.quiet)
        say("release '%s': not confirmed by the store in time; the lock may stay held until its "
            "lease ends",
            __atomic_load_n(&h.key, __ATOMIC_RELAXED));
    leave_now(end->status);
}

int become_command(hf *store, const struct got *got, char **argv)
{
    if (!set_environment(store, got)) return exec_holding(store, argv);
    say("%s: out of memory; %s", command_about, not_executed);
    return EXIT_INTERNAL;
}

/* Returns the state for not_started, if the command can't be started. */
static const char *unstarted(const struct options *o)
{
    if (o->at_most_once) return "nothing was executed, and the event stays marked as done";
    if (o->at_least_ms)
        return "nothing was executed, and the lock is kept until --at-least has passed";
    return not_executed;
}

int run_holding(hf *store, const struct got *got, const struct options *o, int64_t stop_at_us,
                struct job_end *end)
{
    struct job job = {o->argv,          store,       got->locks, got->n,      o->on_lost,
                      o->close_session, o->lease_ms, stop_at_us, unstarted(o)};
    memset(end, 0, sizeof *end);
    if (set_environment(store, got)) {
        say("%s: out of memory; %s", command_about, job.unstarted);
        end->status = EXIT_INTERNAL;
        return end->status;
    }
    if (o->verbose) say("executing %s", o->argv[0]);
    run_job(&job, end);
    return end->status;
}

/* Returns 1 if processes that the command left behind go on holding, as under flock(1): they have
   the hold's descriptor open, and the hold ends with the last of them. Before --at-least has
   passed, waits for their end or for that time: a release now would end the hold at that time,
   although the processes may go on. */
static int stays_held(const struct options *o, int64_t got_us, const struct job_end *end,
                      int *ret_sig, int *ret_typed)
{
    int64_t until_us = got_us + o->at_least_ms * 1000;
    if (!end->kept || o->max_hold_ms) return 0;
    while (!*ret_sig && hf__local_us() < until_us) {
        pid_t pid;
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) continue;
        if (pid < 0) return 0;
        *ret_sig = await_end_signal(until_us, ret_typed);
    }
    return 1;
}

int run_command(const struct command *self, int argc, char **argv)
{
    static struct options o; /* static: used after a jump to damage_return() */
    static struct got got;
    static struct job_end end;
    static hf *store;
    char note[HF_NOTE_CAP];
    unsigned takes = TAKES_WAIT | TAKES_MODE | TAKES_LEASE | TAKES_MAX_HOLD | TAKES_AT_LEAST |
                     TAKES_RUN | TAKES_NO_FORK | TAKES_CMD;
    int status = parse_options(self, takes, argc, argv, &o);
    if (!status) status = want_args(&o, 1, KEYS_CAP, "key");
    if (status) return status < 0 ? finish_output() : status;
    write_note(note, o.argv);
    watch_for_damage();
    if (damage_return()) return damaged_job();
    status = open_to_lock(note, o.wait_ms, &store);
    if (status) return status;
    if (o.no_fork && hf_session_fd(store) < 0) {
        hf_close(store);
        return bad_usage("-F: this store doesn't tell whether a process lives; without -F its hold "
                         "is renewed beside the command");
    }
    block_signals();
    static struct want want; /* static: a thread may still use it */
    want = (struct want){o.args,  (size_t)o.n_args, lock_options(&o), 0, 0, note, o.verbose,
                         o.quiet, o.busy_status,    o.max_hold_ms};
    if (get_locks(store, &want, &got)) {
        status = got.status;
    } else if (o.no_fork) {
        if (o.verbose) say("executing %s", o.argv[0]);
        status = become_command(store, &got, o.argv);
        release_all(&got);
    } else {
        int64_t got_us = hf__local_us();
        status = run_holding(store, &got, &o, max_hold_ends_us(&want, &got), &end);
        if (end.damaged || end.left) return status;
        int sig = end.typed_int ? SIGINT : 0, typed = end.typed_int;
        if (stays_held(&o, got_us, &end, &sig, &typed))
            return sig ? end_by_signal(sig, typed) : status;
        finish(store, &got, &o, got_us, &end);
        keeper_dismiss();
        status = end.typed_int ? end_by_signal(SIGINT, 1) : end.status;
    }
    close_within(store, IDLE_CLOSE_MS, status);
    return status;
}
