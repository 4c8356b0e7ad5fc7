/*
 * watch.c - holdfast watch: prints keys whose holders or waiters change, until a signal.
 */
#include "cli.h"

#include "admin.h"
#include "os.h"
#include "port.h"
#include "shown.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct watching {
    const struct options *o;
    hf *store;        /* NULL: the store doesn't exist yet */
    int broken;       /* errno of a write that failed; 0: none */
    int looked, away; /* 1: a look has succeeded; the last look failed, and that was printed */
    int status;
};

static void print_change(FILE *to, const hf_info *info)
{
    char who[400], when[40], key[HF_KEY_CAP];
    hf__show_text(info->key, key, sizeof key);
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

/* Checks stdout without writing. Returns 0; or an errno: text can't be written any more. */
static int output_error(void)
{
    struct pollfd out = {STDOUT_FILENO, 0, 0};
    if (poll(&out, 1, 0) <= 0) return 0;
    return out.revents & POLLNVAL ? EBADF : out.revents & POLLERR ? EPIPE : 0;
}

/* Writes the line of one key, without a buffer. */
static void tell(struct watching *w, const hf_info *info)
{
    char *line = w->o->json ? json_info(info) : NULL;
    size_t n = line ? strlen(line) : 0;
    FILE *to = w->o->json ? NULL : open_memstream(&line, &n);
    if (to) print_change(to, info);
    if (to ? fclose(to) != 0 : !line)
        w->broken = ENOMEM;
    else
        w->broken = write_out(line, n);
    free(line);
}

static int see(void *arg, const hf_info *info)
{
    struct watching *w = arg;
    w->looked = 1;
    if (w->away) say("watch: the store answers again");
    w->away = 0;
    if (info) tell(w, info);
    if (!info) w->broken = output_error();
    return w->broken;
}

/* Called after a look that failed. Returns 0 if the watch goes on: the store has answered before,
   and the failure may pass. */
static int look_failed(void *arg, const hf_error *why)
{
    struct watching *w = arg;
    char since[40];
    if (!w->looked || !may_pass(why)) return 1;
    w->broken = output_error();
    if (w->broken) return 1;
    if (w->away) return 0;
    w->away = 1;
    show_time(hf__day_us(), since, sizeof since);
    say("watch: the store doesn't answer since %s UTC; the watch goes on: %s", since, why->text);
    return 0;
}

/* Waits until the default store exists, which the first lock makes. Returns 0, with w->store (NULL:
   the watch is over); or the exit status. */
static int await_store(struct watching *w)
{
    enum { LOOK_US = 250000 };
    int status = 0;
    while (!w->store && !status && !see(w, NULL)) {
        hf__pause(LOOK_US);
        status = open_to_look(&w->store);
    }
    return status;
}

/* Watches until an error; only a signal ends it otherwise. */
static void watch(void *arg)
{
    struct watching *w = arg;
    hf_error err;
    w->status = await_store(w);
    if (w->status) return;
    const char *prefix = w->o->n_args ? w->o->args[0] : "";
    int rc = w->store ? hf__watch(w->store, prefix, see, look_failed, w, &err) : 0;
    hf_close(w->store);
    if (rc && !w->broken) {
        w->status = failed(&err);
    } else {
        w->status = output_failed(w->broken, NULL);
    }
}

/* Runs the watch in a thread of its own, so that signals work even if the store doesn't answer or
   the reader takes nothing. */
int watch_command(const struct command *self, int argc, char **argv)
{
    static struct options o;
    static struct watching w; /* static: the thread may still use it */
    int typed = 0, status = parse_options(self, TAKES_JSON | TAKES_LOOK, argc, argv, &o);
    if (!status) status = want_args(&o, 0, 1, "prefix");
    if (status) return status < 0 ? finish_output() : status;
    w.o = &o;
    watch_for_damage();
    status = open_to_look(&w.store);
    if (status) return status;
    block_signals();
    int sig = done_or_signal(watch, &w, 0, &typed);
    if (sig < 0) { /* no thread: watches here, and a signal ends this process */
        unblock_signals();
        watch(&w);
        sig = 0;
    }
    if (sig) leave_now(end_by_signal(sig, typed));
    return w.status;
}
