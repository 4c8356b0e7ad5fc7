/*
 * once.c - holdfast once: a command that runs once per event, by whoever comes first.
 */
#include "cli.h"

#include <string.h>

static int already_done(const char *key, const hf_once *done, int quiet)
{
    char when[40];
    show_time(done->done_us, when, sizeof when);
    if (!quiet)
        say("'%s' was done %s UTC by %s%s%s", key, when, done->owner, *done->result ? ": " : "",
            done->result);
    return 0;
}

/* The mark is made only by a command that ended well; another attempt may do better. */
static int conclude(const struct options *o, hf_lock *lock, const struct job_end *end)
{
    hf_error err;
    if (end->success && !end->lost && !o->at_most_once) {
        int rc = hf_once_finish(lock, "exit 0", o->keep_ms, &err);
        return rc ? failed(&err) : 0;
    }
    int rc = hf_release(lock, &err);
    if (rc == HF_LOST && !end->lost && o->on_lost != ON_LOST_IGNORE) return failed(&err);
    return end->status;
}

int once_command(const struct command *self, int argc, char **argv)
{
    static struct options o; /* static: they are read after damage_return() */
    static struct got got;
    static struct job_end end;
    static hf *store;
    char note[HF_NOTE_CAP];
    unsigned takes = TAKES_WAIT | TAKES_LEASE | TAKES_MAX_HOLD | TAKES_RUN | TAKES_ONCE | TAKES_CMD;
    int status = parse_options(self, takes, argc, argv, &o);
    if (!status) status = want_args(&o, 1, 1, "key");
    if (status) return status < 0 ? finish_output() : status;
    write_note(note, o.argv);
    watch_for_damage();
    if (damage_return()) return damaged_job();
    status = open_store(note, o.wait_ms, &store);
    if (status) return status;
    block_signals();
    struct want want = {o.args,    1,       lock_options(&o), 1, o.keep_ms, note,
                        o.verbose, o.quiet, o.busy_status};
    if (get_locks(store, &want, &got)) {
        status = got.status;
    } else if (!got.locks[0]) {
        status = already_done(o.args[0], &got.once, o.quiet);
    } else {
        run_holding(store, &got, &o, &end);
        if (end.damaged || end.left) return end.status;
        status = conclude(&o, got.locks[0], &end);
        if (end.typed_int) status = end_by_signal(SIGINT, 1);
    }
    hf_close(store);
    return status;
}
