/*
 * doctor.c - holdfast doctor: checks whether locks are safe on a store.
 *
 * It lets the driver inspect the store's settings, then runs the conformance suite, which races
 * real writers on keys of its own, and at the end prints what a store of this kind promises and
 * what it doesn't. doctor doesn't make the store that it is asked about, and leaves nothing in
 * it. If that store keeps the space of deleted rows, doctor makes a scratch store beside it, runs
 * the suite there, and removes the scratch store again.
 */
#include "cli.h"

#include "conform.h"
#include "drivers.h"
#include "port.h"
#include "promises.h"
#include "shown.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { IO_TIMEOUT_MS = 5000, LATE_US = 1000000 };

struct examining {
    const struct options *o;
    int bad, done, refused, absent;
    hf_caps caps;  /* of the store */
    char why[512]; /* the reason of the first failed check */
};

/* Prints the result of a check. `why`: what is wrong; NULL: it passed. */
static void tell(struct examining *e, const char *text, const char *why)
{
    char shown[512];
    int ok = !why;
    if (!ok && !e->bad++) hf__show_text(why, e->why, sizeof e->why);
    e->done++;
    if (e->o->json) {
        char *line = json_fields("{s:s, s:b}", "check", text, "ok", ok);
        if (line) fputs(line, stdout);
        free(line);
    } else {
        hf__show_text(text, shown, sizeof shown);
        live_erase();
        printf("%s  %s\n", ok ? "ok  " : "BAD ", shown);
    }
    /* What the trial has written is removed by the janitor. */
    if (fflush(stdout) && errno == EPIPE) end_by_broken_pipe();
    live_show(NULL, "examining: %d checks done", e->done);
}

/* Prints the result for a setting. If `ok` is 0, the text says what is wrong with it. */
static void tell_setting(void *arg, int ok, const char *text) { tell(arg, text, ok ? NULL : text); }

static void tell_promise(void *arg, const char *promise, const char *why)
{
    char text[600];
    snprintf(text, sizeof text, "%s%s%s", promise, why ? ": " : "", why ? why : "");
    tell(arg, text, why);
}

static void say_promise(void *arg, enum promise is, const char *words)
{
    enum promise *before = arg;
    if (is == NOT_PROMISED && *before != is) printf("and does not promise:\n");
    *before = is;
    printf("  %s %s\n", is == PROMISED ? "+" : "-", words);
}

/* Prints what this kind of store promises, after all checks have passed. */
static void say_promises(const hf_driver *drv, const hf_caps *caps, const hf_url *url)
{
    enum promise before = PROMISED;
    printf("\n%s promises:\n", url->safe);
    store_promises(drv, caps, say_promise, &before);
}

struct reading {
    uint64_t keys, damaged;
};

static int read_one(void *arg, const hf_rowkey *key, hf_row *row)
{
    struct reading *r = arg;
    (void)key;
    r->keys++;
    r->damaged += !row;
    return 0;
}

/* Reads all rows of the store that doctor is asked about, and reports whether some are damaged.
   Called if the trial runs on a scratch store, which has none of these rows. */
static int read_all(const hf_driver *drv, hf_store *st, struct examining *e, hf_error *err)
{
    struct reading r = {0, 0};
    int64_t clock_us = 0;
    char text[120];
    int rc = drv->scan(st, "", read_one, &r, &clock_us, err);
    snprintf(text, sizeof text, "%llu of the rows of %llu keys are damaged",
             (unsigned long long)r.damaged, (unsigned long long)r.keys);
    if (!rc && !r.damaged)
        snprintf(text, sizeof text, "the rows of all %llu keys can be read",
                 (unsigned long long)r.keys);
    if (!rc) tell_setting(e, !r.damaged, text);
    return rc;
}

#define NO_VERDICT "the store is neither proved nor refuted"

/* Reports why the examination can't go on. Returns the exit status. */
static int give_up(const hf_error *err)
{
    say("doctor: %s%s", err->text, err->sys == ENOENT ? "" : "; " NO_VERDICT);
    return hf_code_exit_status(err->code);
}

/* Lets the driver check the store's settings. If the driver refuses the store for one of them, or
   finds it damaged, that is a failed check. Returns 0 or the exit status. */
static int inspect(const hf_driver *drv, const hf_url *url, struct examining *e)
{
    hf_store *st;
    hf_error err;
    int rc = hf__open_store(drv, url, IO_TIMEOUT_MS, &st, &e->caps, &err);
    e->absent = rc == HF_UNAVAILABLE && err.sys == ENOENT && store_is_default();
    if (e->absent) {
        tell_setting(e, 1, err.text);
        return 0;
    }
    e->refused = rc == HF_UNSUPPORTED || rc == HF_CORRUPT;
    if (e->refused) tell_setting(e, 0, err.text);
    if (rc && st) drv->close(st);
    if (rc) return e->refused ? 0 : give_up(&err);
    rc = drv->inspect ? drv->inspect(st, tell_setting, e, &err) : 0;
    if (!rc && drv->scratch) rc = read_all(drv, st, e, &err);
    drv->close(st);
    e->refused = rc == HF_CORRUPT;
    if (e->refused) tell_setting(e, 0, err.text);
    return rc && !e->refused ? give_up(&err) : 0;
}

/* ---- the trial, and what is left of it ---- */

/* A run of the suite, in memory that this process and the janitor share. */
struct trial {
    const hf_driver *drv;
    hf_url url;
    char prefix[HF_CONFORM_PREFIX_CAP];
    int scratch_rc; /* the result of the driver's `scratch`, with its error */
    hf_error scratch_error;
    int beside;     /* 1: `url` names a scratch store, which is removed at the end */
    int janitor_fd; /* the pipe by which the janitor learns that all other processes have ended */
    pid_t janitor;  /* its process; only the doctor writes this */
};

/* Removes all rows of the trial, several times: a write that a killed process had sent may arrive
   late. */
static int remove_all(const struct trial *t, hf_error *err)
{
    if (t->beside) {
        t->drv->discard(&t->url);
        return 0;
    }
    int rc = hf__conform_sweep(t->drv, &t->url, t->prefix, err);
    if (rc) return rc;
    hf__pause(LATE_US);
    return hf__conform_sweep(t->drv, &t->url, t->prefix, err);
}

/* Runs the janitor: a process that removes what the trial has written, however the doctor ends. It
   first makes the scratch store, so that it knows of it in any case. Then it waits until the pipe
   `fd` is closed: until the doctor and all its writers, each of which has the pipe open, have
   ended. */
static void janitor_main(struct trial *t, const hf_url *url, int fd, int made_fd)
{
    static const int enders[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    hf_error err = {0, 0, ""};
    char nothing_is_left;
    ssize_t n;
    for (size_t i = 0; i < sizeof enders / sizeof *enders; i++) signal(enders[i], SIG_IGN);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int std = 0; std < 2 && null >= 0; std++) dup2(null, std);
    t->scratch_rc =
        t->drv->scratch ? t->drv->scratch(url, &t->url, &t->scratch_error) : HF_UNSUPPORTED;
    t->beside = !t->scratch_rc;
    if (!t->beside) t->url = *url;
    (void)!write(made_fd, "", 1); /* for the doctor, which waits for this byte if it still runs */
    close(made_fd);
    while ((n = read(fd, &nothing_is_left, 1)) < 0 && errno == EINTR) continue;
    if (n != 1 && remove_all(t, &err))
        say("doctor: what was written below '%s' in %s is left there: %s; a doctor that is run an "
            "hour later removes it",
            t->prefix, t->url.safe, err.text);
    _exit(0);
}

/* Starts the janitor, and waits until it has made the scratch store, or failed to. Returns 0 or the
   error. */
static int start_janitor(struct trial *t, const hf_url *url, hf_error *err)
{
    int fd[2], made[2];
    char byte;
    ssize_t n;
    if (pipe2(fd, O_CLOEXEC))
        return hf_fail(err, HF_UNAVAILABLE, errno, "pipe: %s", strerror(errno));
    if (pipe2(made, O_CLOEXEC)) {
        hf_fail(err, HF_UNAVAILABLE, errno, "pipe: %s", strerror(errno));
        close(fd[0]);
        close(fd[1]);
        return HF_UNAVAILABLE;
    }
    t->janitor_fd = fd[1];
    pid_t pid = fork();
    if (!pid) {
        close(fd[1]);
        close(made[0]);
        janitor_main(t, url, fd[0], made[1]);
    }
    int sys = errno;
    t->janitor = pid;
    close(fd[0]);
    close(made[1]);
    while ((n = pid > 0 ? read(made[0], &byte, 1) : 0) < 0 && errno == EINTR) continue;
    close(made[0]);
    if (n == 1) return 0;
    close(fd[1]);
    if (pid > 0) waitpid(pid, NULL, 0);
    if (t->beside) t->drv->discard(&t->url);
    return pid > 0
               ? hf_fail(err, HF_UNAVAILABLE, 0, "the process that removes the trial was killed")
               : hf_fail(err, HF_UNAVAILABLE, sys, "fork: %s", strerror(sys));
}

static void dismiss_janitor(struct trial *t, int nothing_is_left)
{
    if (nothing_is_left) (void)!write(t->janitor_fd, "", 1);
    close(t->janitor_fd);
    while (waitpid(t->janitor, NULL, 0) < 0 && errno == EINTR) continue;
}

/* Prepares the trial, on the store of the URL or on a scratch store. The caller has blocked all
   signals. Returns: 0: `t` names the store, and has a janitor; negative: an error. */
static int prepare(struct trial *t, const hf_url *url, const struct examining *e, hf_error *err)
{
    int rc = start_janitor(t, url, err);
    if (rc || !t->drv->scratch || !t->scratch_rc) return rc;
    if (t->scratch_rc == HF_DENIED && !e->absent) return 0;
    dismiss_janitor(t, 1);
    *err = t->scratch_error;
    return t->scratch_rc;
}

static void tell_where(const struct trial *t, struct examining *e)
{
    char text[sizeof t->url.safe + 200];
    if (!t->drv->scratch) return;
    snprintf(text, sizeof text, "%s: %s",
             t->beside ? "tried on a store of its kind beside it, removed again"
                       : "tried in the store itself, which grows by it",
             t->beside ? t->url.safe : t->scratch_error.text);
    tell_setting(e, 1, text);
}

/* Makes the scratch store by opening it, and lets later openings make none: a writer that still
   runs when the store is removed must not make it again. Returns 0 or the error. */
static int make_beside(struct trial *t, hf_error *err)
{
    hf_store *st;
    hf_caps caps;
    int rc = hf__open_store(t->drv, &t->url, IO_TIMEOUT_MS, &st, &caps, err);
    if (st) t->drv->close(st);
    t->url.existing = 1;
    return rc;
}

/* Runs the conformance suite. Returns 0 or the exit status. */
static int try_it(const hf_driver *drv, const hf_url *url, struct examining *e)
{
    hf_error err;
    char text[120];
    const char *lacks = !drv->get ? "get" : !drv->replace ? "replace" : !drv->scan ? "scan" : NULL;
    if (lacks) {
        snprintf(text, sizeof text, "the driver has no '%s'", lacks);
        tell_setting(e, 0, text);
        return 0;
    }
    struct trial *t =
        mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (t == MAP_FAILED) {
        hf_fail(&err, HF_NOMEM, errno, "map memory: %s", strerror(errno));
        return give_up(&err);
    }
    t->drv = drv;
    sigset_t all, before;
    sigfillset(&all);
    hf__conform_prefix(t->prefix);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int rc = prepare(t, url, e, &err);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc) return give_up(&err);
    int not_made = t->beside ? make_beside(t, &err) : 0;
    if (!not_made) tell_where(t, e);
    if (!not_made) rc = hf__conform(drv, &t->url, t->prefix, tell_promise, e, &err);
    if (t->beside) drv->discard(&t->url);
    dismiss_janitor(t, t->beside || !rc);
    if (not_made == HF_UNSUPPORTED) tell_setting(e, 0, err.text);
    if (not_made) return not_made == HF_UNSUPPORTED ? 0 : give_up(&err);
    if (rc >= 0) return 0;
    say("doctor: the trial of %s was cut short, and " NO_VERDICT ": %s; run it again", t->url.safe,
        err.text);
    return hf_code_exit_status(err.code);
}

int doctor_command(const struct command *self, int argc, char **argv)
{
    struct options o;
    hf_url url;
    hf_error err;
    int status = parse_options(self, TAKES_JSON, argc, argv, &o);
    if (!status) status = want_args(&o, 0, 1, "URL");
    if (!status && o.n_args) status = take_url(o.args[0]);
    if (!status) status = find_store();
    if (status) return status < 0 ? finish_output() : status;
    if (hf_url_parse(store_url, &url, &err)) return give_up(&err);
    const hf_driver *drv = hf__driver(url.scheme, &err);
    if (!drv || hf__resolve_url(drv, &url, &err)) return give_up(&err);
    watch_for_damage();
    struct examining e = {.o = &o};
    url.existing = 1;
    status = inspect(drv, &url, &e);
    if (!status && !e.refused) status = try_it(drv, &url, &e);
    live_erase();
    if (status) return status;
    if (o.json) {
        char *line = json_fields("{s:s, s:b, s:i, s:i, s:s?}", "store", url.safe, "safe", !e.bad,
                                 "checks", e.done, "bad", e.bad, "why", e.bad ? e.why : NULL);
        if (line) fputs(line, stdout);
        free(line);
    } else if (e.bad) {
        printf("\n%s: not safe, because %s\n%d of %d checks failed: do not trust it\n", url.safe,
               e.why, e.bad, e.done);
    } else {
        say_promises(drv, &e.caps, &url);
    }
    status = finish_output();
    return status ? status : e.bad ? EXIT_DAMAGED : 0;
}
