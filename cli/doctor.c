/*
 * doctor.c - holdfast doctor: proves a store before it is trusted.
 *
 * First what the driver itself sees of its settings, then the conformance suite, which races real
 * writers on keys of its own; at the end, in words, what a store of this kind promises and what
 * not. It makes no store, and leaves nothing in one: where the space of deleted rows stays a
 * store's, the suite runs on another one beside it, which is removed again.
 */
#include "cli.h"

#include "conform.h"
#include "drivers.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { IO_TIMEOUT_MS = 5000 };

struct examining {
    const struct options *o;
    int bad, done, refused, absent;
    hf_caps caps;  /* of the store */
    char why[512]; /* the first that is bad */
};

/* A check; `why`: what is wrong, NULL: nothing. */
static void tell(struct examining *e, const char *text, const char *why)
{
    char shown[512];
    int ok = !why;
    if (!ok && !e->bad++) show_text(why, e->why, sizeof e->why);
    e->done++;
    if (e->o->json) {
        char *line = json_fields("{s:s, s:b}", "check", text, "ok", ok);
        if (line) fputs(line, stdout);
        free(line);
    } else {
        show_text(text, shown, sizeof shown);
        live_erase();
        printf("%s  %s\n", ok ? "ok  " : "BAD ", shown);
    }
    fflush(stdout);
    live_show(NULL, "examining: %d checks done", e->done);
}

/* Of a setting: the text says what is wrong with it, if anything is. */
static void tell_setting(void *arg, int ok, const char *text) { tell(arg, text, ok ? NULL : text); }

static void tell_promise(void *arg, const char *promise, const char *why)
{
    char text[600];
    snprintf(text, sizeof text, "%s%s%s", promise, why ? ": " : "", why ? why : "");
    tell(arg, text, why);
}

static void say_words(const char *mark, const char *words) { printf("  %s %s\n", mark, words); }

/* What can be said of the kind of store, given that all of the above is true. */
static void say_promises(const hf_driver *drv, const hf_caps *caps, const hf_url *url)
{
    char line[160];
    printf("\n%s promises:\n", url->safe);
    say_words("+",
              "one holder at a time by key (or as many as asked for), with tokens that only grow");
    if (caps->liveness)
        say_words("+",
                  "a hold lasts as long as its process, whatever the clock says, and ends with it");
    else
        say_words("+",
                  "a hold is a lease, 30 s unless asked otherwise, renewed while its process runs");
    if (!caps->queues)
        say_words("-", "no line: whoever looks at the right moment is next");
    else {
        snprintf(line, sizeof line, "first come, first served, %u in line; beyond that they poll",
                 caps->queue_cap);
        say_words("+", line);
    }
    if (caps->local || caps->notify) {
        say_words("+", "who waits is woken when its turn comes");
    } else {
        snprintf(line, sizeof line, "who waits looks about every %u ms",
                 caps->poll_ms ? caps->poll_ms : 250);
        say_words("-", line);
    }
    if (drv->sync) say_words("+", "the mark of a done event is on disk before the call returns");
    printf("and does not promise:\n");
    if (!strcmp(drv->name, "mem"))
        say_words("-", "anything between processes: it is the memory of one");
    if (!strcmp(drv->name, "file"))
        say_words("-", "anything between machines: it is the memory of one");
    if (!caps->liveness) {
        say_words("-", "that a dead holder's key is free before its lease is over");
        if (!caps->sessions)
            say_words("-", "anything for a lease while the store's own clock is set back or forth");
    }
    say_words("-",
              "that a holder which was paused does nothing late: let the data refuse old tokens");
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

/* Where the trial is on another store: what is in this one. */
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
    if (rc == HF_CORRUPT)
        tell_setting(e, 0, err->text);
    else if (!rc)
        tell_setting(e, !r.damaged, text);
    return rc == HF_CORRUPT ? 0 : rc;
}

/* The driver's own look at its settings; a store that it refuses for what it is, is told as a check
   that failed. 0 or the exit status. */
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
    e->refused = rc == HF_UNSUPPORTED;
    if (e->refused) tell_setting(e, 0, err.text);
    if (rc && st) drv->close(st);
    if (rc) return e->refused ? 0 : failed(&err);
    rc = drv->inspect ? drv->inspect(st, tell_setting, e, &err) : 0;
    if (!rc && drv->scratch) rc = read_all(drv, st, e, &err);
    drv->close(st);
    return rc ? failed(&err) : 0;
}

/* ---- a store for the trial ---- */

static const hf_driver *scratch_driver;
static hf_url scratch_url;

static void discard(void)
{
    if (scratch_driver) scratch_driver->discard(&scratch_url);
}

static void discard_and_end(int sig)
{
    discard();
    signal(sig, SIG_DFL);
    raise(sig);
}

/* Whatever ends this process, but for SIGKILL, takes it away. Forked writers are killed by it. */
static void discard_at_end(const hf_driver *drv)
{
    static const int enders[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};
    scratch_driver = drv;
    for (size_t i = 0; i < sizeof enders / sizeof *enders; i++) {
        struct sigaction now, to = {.sa_handler = discard_and_end};
        if (!sigaction(enders[i], NULL, &now) && now.sa_handler == SIG_DFL)
            sigaction(enders[i], &to, NULL);
    }
}

/* Made once: a writer that isn't killed yet when the store is taken away doesn't make it anew.
   Signals wait meanwhile, or a store that is half made would be left. */
static void make_scratch(const hf_driver *drv)
{
    hf_store *st;
    hf_caps caps;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int rc = hf__open_store(drv, &scratch_url, IO_TIMEOUT_MS, &st, &caps, NULL);
    if (st) drv->close(st);
    scratch_url.existing = !rc; /* what failed is tried again by the trial, which says so */
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Races writers on the store, or on one of its kind beside it. */
static void try_it(const hf_driver *drv, const hf_url *url, struct examining *e)
{
    char text[sizeof scratch_url.safe + 200];
    hf_error err;
    const char *lacks = !drv->get ? "get" : !drv->replace ? "replace" : !drv->scan ? "scan" : NULL;
    if (lacks) {
        snprintf(text, sizeof text, "the driver has no '%s'", lacks);
        tell_setting(e, 0, text);
        return;
    }
    int rc = drv->scratch ? drv->scratch(url, &scratch_url, &err) : HF_UNSUPPORTED;
    if (!rc) {
        snprintf(text, sizeof text, "tried on a store of its kind beside it, removed again: %s",
                 scratch_url.safe);
        tell_setting(e, 1, text);
        discard_at_end(drv);
        make_scratch(drv);
    } else if (drv->scratch && (rc != HF_DENIED || e->absent)) {
        tell_setting(e, 0, err.text);
        return;
    } else if (drv->scratch) {
        snprintf(text, sizeof text, "tried in the store itself, which grows by it: %s", err.text);
        tell_setting(e, 1, text);
    }
    hf__conform(drv, rc ? url : &scratch_url, tell_promise, e);
    if (!rc) discard();
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
    const char *text = store_url ? store_url : getenv("HOLDFAST_STORE");
    if (hf_url_parse(store_is_default() ? "file:" : text, &url, &err)) return failed(&err);
    const hf_driver *drv = hf__driver(url.scheme, &err);
    if (!drv || (drv->resolve && drv->resolve(&url, &err))) return failed(&err);
    watch_for_damage();
    struct examining e = {.o = &o};
    url.existing = 1;
    status = inspect(drv, &url, &e);
    if (!status && !e.refused) try_it(drv, &url, &e);
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
