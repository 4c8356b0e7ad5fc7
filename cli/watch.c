/*
 * watch.c - holdfast watch: what changes, as it is noticed, until interrupted.
 */
#include "cli.h"

#include "admin.h"
#include "os.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct watching {
    const struct options *o;
    int sig, typed, broken; /* broken: errno of a write that failed */
    int looked, away;       /* a look has succeeded; the last one failed, which was said */
};

static void print_change(FILE *to, const hf_info *info)
{
    char who[400], when[40], key[HF_KEY_CAP];
    show_text(info->key, key, sizeof key);
    show_time(info->now_us, when, sizeof when);
    fprintf(to, "%s  %s: ", when, key);
    if (info->n_holders) {
        describe(&info->parties[0], who, sizeof who);
        fprintf(to, "held by %s, token %llu", who, (unsigned long long)info->parties[0].token);
        if (info->n_holders > 1) fprintf(to, " and %zu more", info->n_holders - 1);
    } else {
        fprintf(to, "%s", info->done_us ? "done" : "free");
    }
    if (info->n_waiters) fprintf(to, ", %zu waiting", info->n_waiters);
    putc('\n', to);
}

/* Has whoever reads our output gone away? A watcher may have nothing to write for long. */
static int reader_gone(void)
{
    struct pollfd out = {STDOUT_FILENO, 0, 0};
    return poll(&out, 1, 0) > 0 && out.revents & (POLLERR | POLLNVAL);
}

/* Each line is written at once: who reads them wants to know now. */
static void tell(struct watching *w, const hf_info *info)
{
    char *line = w->o->json ? json_info(info) : NULL;
    size_t n = line ? strlen(line) : 0;
    FILE *to = w->o->json ? NULL : open_memstream(&line, &n);
    if (to) print_change(to, info);
    if (to ? fclose(to) != 0 : !line)
        w->broken = ENOMEM;
    else
        w->sig = print_or_signal(line, n, &w->broken, &w->typed);
}

static int see(void *arg, const hf_info *info)
{
    struct watching *w = arg;
    w->looked = 1;
    if (w->away) say("watch: the store answers again");
    w->away = 0;
    if (info) tell(w, info);
    if (!info && reader_gone()) w->broken = EPIPE;
    if (!w->sig) w->sig = pending_end_signal(&w->typed);
    return w->sig || w->broken;
}

/* A look failed. 0: the next one may succeed: a store that has answered once may be away for a
   while without ending the watch. */
static int look_failed(void *arg, const hf_error *why)
{
    struct watching *w = arg;
    char since[40];
    if (!w->looked || !may_pass(why)) return 1;
    w->sig = pending_end_signal(&w->typed);
    if (!w->sig && reader_gone()) w->broken = EPIPE;
    if (w->sig || w->broken) return 1;
    if (w->away) return 0;
    w->away = 1;
    show_time(hf__day_us(), since, sizeof since);
    say("watch: the store doesn't answer since %s UTC; the watch goes on: %s", since, why->text);
    return 0;
}

/* The default store comes with the first lock. 0; then *store is NULL if the watch is over. */
static int await_store(struct watching *w, hf **store)
{
    enum { LOOK_MS = 250 };
    int status = 0;
    while (!*store && !status && !see(w, NULL)) {
        int64_t until_us = hf__local_us() + LOOK_MS * 1000;
        w->sig = await_end_signal(until_us, &w->typed);
        if (w->sig) break;
        status = open_to_look(store);
    }
    return status;
}

int watch_command(const struct command *self, int argc, char **argv)
{
    struct options o;
    hf *store;
    hf_error err;
    int status = parse_options(self, TAKES_JSON | TAKES_LOOK, argc, argv, &o);
    if (!status) status = want_args(&o, 0, 1, "prefix");
    if (status) return status < 0 ? finish_output() : status;
    struct watching w = {.o = &o};
    watch_for_damage();
    status = open_to_look(&store);
    if (status) return status;
    block_signals();
    status = await_store(&w, &store);
    if (status) return status;
    const char *prefix = o.n_args ? o.args[0] : "";
    int rc = store ? hf__watch(store, prefix, see, look_failed, &w, &err) : 0;
    hf_close(store);
    if (rc && !w.sig && !w.broken) return failed(&err);
    if (w.sig) return end_by_signal(w.sig, w.typed);
    say("writing to standard output: %s", strerror(w.broken));
    return EXIT_INTERNAL;
}
