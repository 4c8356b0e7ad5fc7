/*
 * once.c - holdfast once: runs a command for an event, unless the event is marked as done.
 */
#include "job.h"

#include "os.h"

enum {
    RETRY_US = 250000,
    MARKED_MS = 5000 /* after a signal: how long the marking of an event that has run may take */
};

static int already_done(const char *key, const hf_once *done, int quiet)
{
    char when[40], by[HF_OWNER_CAP];
    show_time(done->done_us, when, sizeof when);
    show_owner(done->owner, by, sizeof by);
    if (!quiet)
        say("'%s' was done %s UTC by %s%s%s", key, when, by, *done->result ? ": " : "",
            done->result);
    return 0;
}

/* Returns the local time at which the lease ends; 0: it has ended, or there is no lease, and the
   hold ends with this process. */
static int64_t lease_end_us(hf_lock *lock)
{
    int64_t left_ms = hf_left_ms(lock);
    return left_ms <= 0 || left_ms == INT64_MAX ? 0 : hf__local_us() + left_ms * 1000;
}

static int is_away(int rc) { return rc == HF_UNAVAILABLE || rc == HF_UNKNOWN; }

/*
 * Repeats a release that the store didn't answer, every RETRY_US until the lease ends. Otherwise
 * the key would stay held until then, and no client could run the event. `rc` and *err: of the
 * first attempt. A signal ends the repetitions (*ret_sig; *ret_typed: as of pending_end_signal).
 * Returns: 0: the lock is released; otherwise the error, also if the lease has ended meanwhile.
 */
static int keep_giving_back(hf *store, const char *key, uint64_t token, int64_t until_us, int rc,
                            int *ret_sig, int *ret_typed, hf_error *err)
{
    hf_error first = *err;
    progress_begin("releasing the key");
    while (is_away(rc) && hf__local_us() < until_us) {
        hf_lock *lock;
        *ret_sig = await_end_signal(hf__local_us() + RETRY_US, ret_typed);
        if (*ret_sig) break;
        rc = hf_adopt(store, key, token, &lock, err);
        if (!rc) rc = hf_release(lock, err);
    }
    progress_end();
    if (rc != HF_LOST) return rc;
    /* LOST before the lease has ended: an earlier release, whose reply was lost, was carried out.
     */
    if (hf__local_us() < until_us) return 0;
    *err = first;
    return first.code;
}

struct marking {
    hf_lock *lock;
    int64_t keep_ms;
    hf_error *err;
    int rc;
    int is_done; /* atomic */
};

static void mark_body(void *arg)
{
    struct marking *m = arg;
    m->rc = hf_once_finish(m->lock, "exit 0", m->keep_ms, m->err);
    __atomic_store_n(&m->is_done, 1, __ATOMIC_SEQ_CST);
}

/* Marks the event as done (hf_once_finish, which tries again while the hold lasts if the store
   doesn't answer). After a signal it may take MARKED_MS more. *ret_sig: the signal. Returns the
   result of hf_once_finish. */
static int mark(hf *store, const char *key, hf_lock *lock, int64_t keep_ms, int *ret_sig,
                int *ret_typed, hf_error *err)
{
    static struct marking m; /* static, as `own`: the thread may still use them */
    static hf_error own;
    int sig = -1;
    m = (struct marking){lock, keep_ms, &own, 0, 0};
    if (hf_session_fd(store) < 0) sig = done_or_signal(mark_body, &m, MARKED_MS, ret_typed);
    if (sig < 0) mark_body(&m);
    if (sig > 0 && !__atomic_load_n(&m.is_done, __ATOMIC_SEQ_CST)) {
        say("once '%s': given up; the event may not be marked as done, and may run again", key);
        leave_now(128 + sig);
    }
    *ret_sig = sig > 0 ? sig : 0;
    *err = own;
    return m.rc;
}

/* Marks the event as done if the command has succeeded; otherwise releases the lock for another
   attempt. */
static int conclude(hf *store, const struct options *o, hf_lock *lock, const struct job_end *end)
{
    hf_error err;
    uint64_t token = hf_token(lock);
    int64_t until_us = lease_end_us(lock);
    int marks = end->success && !end->lost && !end->overtime && !o->at_most_once;
    int sig = 0, typed = 0;
    int rc = marks ? mark(store, o->args[0], lock, o->keep_ms, &sig, &typed, &err)
                   : hf_release(lock, &err);
    if (!rc) return end->status;
    int status = marks ? failed(&err) : end->status;
    if (rc == HF_LOST)
        return marks || end->lost || o->on_lost == ON_LOST_IGNORE ? status : failed(&err);
    if (!sig) rc = keep_giving_back(store, o->args[0], token, until_us, rc, &sig, &typed, &err);
    if (rc && !marks) say("%s", err.text);
    return sig ? end_by_signal(sig, typed) : status;
}

struct concluding {
    hf *store;
    const struct options *o;
    hf_lock *lock;
    const struct job_end *end;
    int status;
};

static void conclude_lost(void *arg)
{
    struct concluding *c = arg;
    c->status = conclude(c->store, c->o, c->lock, c->end);
}

/* Calls conclude; if the lock was lost, for LOST_END_MS at most. Returns the exit status. */
static int finish(hf *store, const struct options *o, hf_lock *lock, const struct job_end *end)
{
    static struct concluding c; /* static: the thread may still use it */
    if (!end->lost || hf_session_fd(store) >= 0) return conclude(store, o, lock, end);
    limit_end_in(LOST_END_MS); /* for the close, too */
    c = (struct concluding){store, o, lock, end, end->status};
    if (!done_within(LOST_END_MS, conclude_lost, &c)) leave_now(end->status);
    return c.status;
}

int once_command(const struct command *self, int argc, char **argv)
{
    static struct options o; /* static: used after a jump to damage_return() */
    static struct got got;
    static struct job_end end;
    static hf *store;
    char note[HF_NOTE_CAP], owner[HF_OWNER_CAP];
    unsigned takes = TAKES_WAIT | TAKES_LEASE | TAKES_MAX_HOLD | TAKES_RUN | TAKES_ONCE | TAKES_CMD;
    int status = parse_options(self, takes, argc, argv, &o);
    if (!status) status = want_args(&o, 1, 1, "key");
    if (status) return status < 0 ? finish_output() : status;
    write_note(note, o.argv);
    write_owner(owner); /* the marker of the event keeps this owner */
    store_owner = owner;
    watch_for_damage();
    if (damage_return()) return damaged_job();
    status = open_to_lock(note, o.wait_ms, &store);
    if (status) return status;
    block_signals();
    static struct want want; /* static: a thread may still use it */
    want = (struct want){
        o.args,       1, lock_options(&o), 1, o.keep_ms, note, o.verbose, o.quiet, o.busy_status,
        o.max_hold_ms};
    if (get_locks(store, &want, &got)) {
        status = got.status;
    } else if (!got.locks[0]) {
        status = already_done(o.args[0], &got.once, o.quiet);
    } else {
        run_holding(store, &got, &o, max_hold_ends_us(&want, &got), &end);
        if (end.damaged || end.left) return end.status;
        status = finish(store, &o, got.locks[0], &end);
        keeper_dismiss();
        if (end.typed_int) status = end_by_signal(SIGINT, 1);
    }
    close_within(store, IDLE_CLOSE_MS, status);
    return status;
}
