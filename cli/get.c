/*
 * get.c - acquires the locks of a command: by one attempt, or by waiting. A thread of the library
 * waits, so that the main thread can handle signals, and show the holder on a terminal.
 */
#include "job.h"

#include "admin.h"
#include "holdfast_driver.h"
#include "os.h"
#include "refusal.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

struct waiting { /* the wait for one key */
    hf_lock *lock;
    hf_error err;
    int code, done_fd;
};

/* Makes one attempt to acquire all locks. Returns as hf_acquire_all with wait_ms 0. */
static int try(hf *store, const struct want *want, struct got *ret, hf_error *err)
{
    hf_options o = want->options;
    o.wait_ms = 0;
    if (want->once) {
        int rc = hf_once_begin(store, want->keys[0], want->keep_ms, &o, &ret->once, err);
        if (!rc) ret->locks[0] = ret->once.lock;
        return rc;
    }
    if (want->n == 1) return hf_acquire(store, want->keys[0], &o, &ret->locks[0], err);
    return hf_acquire_all(store, (const char *const *)want->keys, want->n, &o, ret->locks, err);
}

/* What the thread of an attempt uses. Static, because that thread may still run when this process
   ends. */
static struct asking {
    hf *store;
    const struct want *want;
    struct got *got;
    int code;
    hf_error err;
    struct looking l;
    const char *only; /* the key that was waited for; NULL: all were tried at once */
    const char *key;
    int is_done; /* 1: the attempt has ended (atomic) */
} asking;

static void try_body(void *arg)
{
    struct asking *a = arg;
    a->code = try(a->store, a->want, a->got, &a->err);
    __atomic_store_n(&a->is_done, 1, __ATOMIC_SEQ_CST);
}

static void look_body(void *arg)
{
    struct asking *a = arg;
    a->key = find_busy(a->store, a->want, a->only, &a->l);
}

static void release_body(void *arg) { release_all(arg); }

/* Prints that the store hasn't done in time what it was asked for (it doesn't answer, or refuses
   again and again), and may have granted the key, or may grant it later. */
static void say_unknown(const char *key)
{
    waiting_line_end();
    say("acquire '%s': given up, but the store hasn't confirmed that; if it has granted the "
        "lock, or still grants it, the lock expires by itself",
        key);
}

static void leave_unknown(const char *key)
{
    say_unknown(key);
    leave_now(hf_code_exit_status(HF_UNKNOWN));
}

/* Makes one attempt, before a wait without a limit. It ends when the store has answered; after a
   signal (*ret_sig, *ret_typed) it gets LIMIT_END_MS more. */
static void try_unlimited(const struct want *want, int *ret_sig, int *ret_typed)
{
    int sig = done_or_signal(try_body, &asking, LIMIT_END_MS, ret_typed);
    if (sig < 0) try_body(&asking);
    if (sig > 0 && !__atomic_load_n(&asking.is_done, __ATOMIC_SEQ_CST)) {
        say_unknown(want->keys[0]);
        leave_now(end_by_signal(sig, *ret_typed));
    }
    *ret_sig = sig > 0 ? sig : 0;
}

/* Makes one attempt. Without a wait on a store that has a server, the attempt ends after QUICK_MS
   and LIMIT_END_MS, or at the end that limit.c has noted if that is earlier. */
static int try_in_time(hf *store, const struct want *want, struct got *ret, int *ret_sig,
                       int *ret_typed, hf_error *err)
{
    enum { QUICK_MS = 2000 };
    if (hf_session_fd(store) >= 0) return try(store, want, ret, err);
    asking = (struct asking){.store = store, .want = want, .got = ret};
    if (want->options.wait_ms != 0) {
        try_unlimited(want, ret_sig, ret_typed);
    } else {
        limit_end_in(QUICK_MS + LIMIT_END_MS);
        if (!done_by_end(try_body, &asking)) leave_unknown(want->keys[0]);
    }
    *err = asking.err;
    return asking.code;
}

/* Notes the result of a wait. Runs on a thread of the library. */
static void acquired(void *arg, int code, hf_lock *lock, const hf_error *err)
{
    struct waiting *w = arg;
    uint64_t one = 1;
    w->lock = lock;
    w->code = code;
    if (err) w->err = *err;
    while (write(w->done_fd, &one, sizeof one) < 0 && errno == EINTR) continue;
}

/* ---- reasons for which no lock is obtained ---- */

int64_t max_hold_ends_us(const struct want *want, const struct got *got)
{
    return want->max_hold_ms && got->first_us ? got->first_us + want->max_hold_ms * 1000
                                              : INT64_MAX;
}

/* Notes the exit status if no lock is obtained (0 is possible, by -E). Returns -1. */
static int without(struct got *got, int status)
{
    got->status = status;
    return -1;
}

/* Reports that --max-hold has passed while some keys were held and others were waited for: status
   76. */
static int held_too_long(const struct want *want, struct got *got)
{
    size_t first = 0;
    while (first + 1 < want->n && !got->locks[first]) first++;
    waiting_line_end();
    say("'%s' was obtained, but --max-hold passed while other keys were waited for",
        want->keys[first]);
    return without(got, EXIT_LOST);
}

/* Reports why no lock is obtained. key: the one that was waited for; NULL: all were tried at once.
 */
static int not_got(hf *store, const struct want *want, const char *key, const hf_error *err,
                   struct got *got)
{
    int code = err->code;
    if (code != HF_BUSY && code != HF_TIMEOUT) {
        say("%s%s; %s", err->text, unreached_store(err),
            code == HF_UNKNOWN ? "if the store has granted the lock, or still grants it, the lock "
                                 "expires by itself"
                               : command_undone);
        advise(code);
        return without(got, hf_code_exit_status(code));
    }
    if (hf__local_us() >= max_hold_ends_us(want, got)) return held_too_long(want, got);
    if (want->quiet) return without(got, want->busy_status);
    waiting_line_end();
    const char *how = code == HF_BUSY ? "busy" : "not obtained in time";
    asking = (struct asking){.store = store, .want = want, .only = key};
    if (done_by_end(look_body, &asking) && asking.key && asking.l.holders)
        say("'%s': %s, held by %s since %s UTC", asking.key, how, asking.l.holder, asking.l.since);
    else
        say("'%s': %s", key ? key : want->keys[0], how);
    advise(code);
    return without(got, want->busy_status);
}

/* Returns 1 if this process runs under a `holdfast run`, and would wait without a limit. */
static int is_nested(const struct want *want)
{
    return want->options.wait_ms == HF_FOREVER &&
           (getenv("HOLDFAST_TOKEN") || getenv("HOLDFAST_OUTER"));
}

/* Refuses to wait without a limit for a key that an outer run holds, under which this process runs:
   the wait would never end. */
static int waits_for_itself(hf *store, const struct want *want, struct got *got)
{
    const char *key = is_nested(want) ? waited_for_in_vain(store, want) : NULL;
    if (!key) return 0;
    say("'%s' is held by the command that this one runs under: it would wait for itself", key);
    return without(got, hf_code_exit_status(HF_RECURSIVE));
}

/* ---- waiting ---- */

enum { DAMAGED = -1, MUTE = -2 };

/* Waits for the end of the wait for a key. Returns 0: the library has reported a result; the number
   of a signal that came first; DAMAGED: the store is damaged; MUTE: the store hasn't answered by
   the end (limit.c). */
static int wait_for(const struct waiting *w, hf *store, const struct want *want, const char *key,
                    int *ret_typed)
{
    struct pollfd fds[3] = {
        {w->done_fd, POLLIN, 0}, {signals_fd(), POLLIN, 0}, {damage_fd(), POLLIN, 0}};
    int sig = 0;
    waiting_line_begin(store, want, key);
    while (!sig) {
        int mute = !limit_end_left_ms(); /* read before poll: a grant that came in time counts */
        int n = poll(fds, 3, limit_poll_ms(fds[1].fd < 0 ? 250 : -1));
        if (fds[1].fd < 0) sig = pending_end_signal(ret_typed);
        if (n > 0 && fds[0].revents) break;
        if (!n && mute && !sig) sig = MUTE;
        if (n > 0 && fds[2].revents) sig = DAMAGED;
        struct signalfd_siginfo si;
        if (n > 0 && fds[1].revents && read(fds[1].fd, &si, sizeof si) == (ssize_t)sizeof si) {
            sig = (int)si.ssi_signo;
            *ret_typed = si.ssi_code == SI_KERNEL;
        }
    }
    close(fds[1].fd);
    if (sig) waiting_line_end();
    return sig;
}

struct ending_wait {
    hf_wait *wait;
    const struct waiting *w;
    int code; /* nonzero: the request or its grant may still be in the store: see `err` */
    hf_error err;
};

/* Withdraws the request after a signal, or releases what was granted meanwhile. */
static void end_wait(void *arg)
{
    struct ending_wait *e = arg;
    hf_wait_free(e->wait);
    e->err = e->w->err;
    e->code = e->w->code == HF_UNKNOWN ? HF_UNKNOWN : hf__give_up(e->w->lock, &e->err);
}

/* Ends the wait after a signal, by the end (limit.c) at the latest. */
static int interrupted(hf_wait *wait, const char *key, const struct waiting *w, int sig, int typed,
                       struct got *got)
{
    static struct ending_wait e;
    /* From here on a second signal ends this process at once. */
    refuse(128 + sig);
    unblock_signals();
    e = (struct ending_wait){.wait = wait, .w = w};
    if (!done_by_end(end_wait, &e)) {
        say_unknown(key);
        leave_now(end_by_signal(sig, typed));
    }
    if (e.code) say("%s", e.err.text);
    close(w->done_fd);
    return without(got, end_by_signal(sig, typed));
}

/* Waits for one key in the queue. Returns 0 with the lock in *ret. */
static int wait_for_key(hf *store, const struct want *want, const char *key, int64_t wait_ms,
                        struct got *got, hf_lock **ret)
{
    /* static: a thread of the library may still use it after damage_return() */
    static struct waiting w;
    hf_options o = want->options;
    hf_wait *wait;
    int typed = 0;
    w = (struct waiting){.done_fd = eventfd(0, EFD_CLOEXEC)};
    o.wait_ms = wait_ms;
    if (w.done_fd < 0) {
        say("acquire '%s': make a descriptor: %s; %s", key, strerror(errno), command_undone);
        return without(got, EXIT_INTERNAL);
    }
    int rc = want->once ? hf_once_start(store, key, want->keep_ms, &o, &got->once, acquired, &w,
                                        &wait, &w.err)
                        : hf_acquire_start(store, key, &o, acquired, &w, &wait, &w.err);
    int sig = rc ? 0 : wait_for(&w, store, want, key, &typed);
    if (sig == MUTE) leave_unknown(key);
    if (sig == DAMAGED) {
        damage_seen();
        exit(refused(damaged_job()));
    }
    if (sig > 0 && hf_session_fd(store) < 0) limit_end_in(LIMIT_END_MS);
    if (sig > 0) return interrupted(wait, key, &w, sig, typed, got);
    if (!rc) hf_wait_free(wait);
    close(w.done_fd);
    *ret = w.lock;
    if (!rc) rc = w.code;
    return rc ? not_got(store, want, key, &w.err, got) : 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(**(char *const *const *)a, **(char *const *const *)b);
}

static int wait_in_line(hf *store, const struct want *want, struct got *ret)
{
    char *const *order[KEYS_CAP];
    hf_error err;
    int rc = 0;
    /* Sorts the keys as hf_acquire_all does, so that no two processes wait for each other in a
       circle. */
    for (size_t i = 0; i < want->n; i++) order[i] = &want->keys[i];
    qsort(order, want->n, sizeof *order, by_name);
    for (size_t i = 1; i < want->n && !rc; i++)
        if (!strcmp(*order[i - 1], *order[i]))
            rc = without(ret, bad_usage("'%s' is named twice", *order[i]));
    for (size_t i = 0; i < want->n && !rc; i++) {
        int64_t wait_ms = limit_left_ms(), until_us = max_hold_ends_us(want, ret);
        if (until_us != INT64_MAX) {
            int64_t held_ms = (until_us - hf__local_us() + 999) / 1000;
            if (held_ms < 0) held_ms = 0;
            if (wait_ms == HF_FOREVER || held_ms < wait_ms) wait_ms = held_ms;
        }
        if (wait_ms == 0) wait_ms = 1;
        hf_lock **lock = &ret->locks[order[i] - want->keys];
        rc = wait_for_key(store, want, *order[i], wait_ms, ret, lock);
        if (!rc && !ret->first_us) ret->first_us = hf__local_us();
    }
    waiting_line_end();
    if (!rc && want->n > 1 && hf__local_us() >= max_hold_ends_us(want, ret))
        rc = held_too_long(want, ret);
    for (size_t i = 0; i < want->n && !rc && want->n > 1; i++)
        if (hf_left_ms(ret->locks[i]) <= 0) {
            int why = hf_lost_reason(ret->locks[i], &err);
            say("the lock on '%s' was lost while waiting for others: %s", want->keys[i],
                why ? err.text : "too late");
            rc = without(ret, EXIT_LOST);
        }
    return rc;
}

static void tell_time(const struct want *want, int got, int64_t since_us)
{
    double seconds = (double)(hf__local_us() - since_us) / 1e6;
    if (!want->verbose) return;
    if (got)
        say("getting lock took %.6f seconds", seconds);
    else
        say("failed to get lock after %.6f seconds", seconds);
}

void give_up_all(struct got *got)
{
    size_t n = 0;
    for (size_t i = 0; i < got->n; i++) n += got->locks[i] != NULL;
    if (n && !done_by_end(release_body, got))
        say("releasing what was acquired: not confirmed by the store in time; it may stay held "
            "until its lease ends");
}

/* Returns 1 if a wait follows an attempt with this result: the keys are busy; or the store has a
   server that hasn't answered, after which a wait goes on. */
static int waits_after(int code, const struct want *want, int local)
{
    int away = code == HF_UNAVAILABLE || code == HF_UNKNOWN || code == HF_LOST;
    return want->options.wait_ms != 0 && (code == HF_BUSY || (away && !local));
}

int get_locks(hf *store, const struct want *want, struct got *ret)
{
    hf_error err;
    int sig = 0, typed = 0, code = HF_BUSY, rc = 0, local = hf_session_fd(store) >= 0;
    int64_t started = hf__local_us();
    memset(ret, 0, sizeof *ret);
    ret->n = want->n;
    if (local || want->options.wait_ms == HF_FOREVER) limit_no_end();
    /* A local store answers at once: no thread is needed to try. What an outer run holds may be
       free beside it. */
    int tries =
        local || want->options.wait_ms == 0 || (is_nested(want) && held_outside(store, want));
    if (tries) code = try_in_time(store, want, ret, &sig, &typed, &err);
    if (!code) {
        ret->first_us = hf__local_us();
    } else if (!sig && waits_after(code, want, local)) {
        rc = tries ? waits_for_itself(store, want, ret) : 0;
        if (!rc) rc = wait_in_line(store, want, ret);
    } else if (!sig) {
        rc = not_got(store, want, NULL, &err, ret);
    }
    tell_time(want, !rc && !sig, started);
    if (!rc && !sig) sig = pending_end_signal(&typed);
    if (sig && !local) limit_end_in(LIMIT_END_MS);
    if (sig) rc = without(ret, end_by_signal(sig, typed));
    if (rc)
        give_up_all(ret);
    else
        limit_no_end();
    return rc;
}
