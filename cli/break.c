/*
 * break.c - holdfast break: ends the grant with a given token.
 */
#include "cli.h"

/* The grant to be ended, a description of its holder, and what is_carried says of it. */
struct victim {
    uint64_t token;
    char who[400];
    int carried;
};

static int find_victim(void *arg, const hf_info *info)
{
    struct victim *v = arg;
    for (size_t i = 0; i < info->n_holders; i++)
        if (info->parties[i].token == v->token) {
            describe(&info->parties[i], v->who, sizeof v->who);
            v->carried = is_carried(&info->parties[i]);
        }
    return 0;
}

int break_command(const struct command *self, int argc, char **argv)
{
    struct options o;
    hf *store;
    hf_error err;
    int status = parse_options(self, TAKES_TOKEN, argc, argv, &o);
    if (!status) status = want_args(&o, 1, 1, "key");
    if (!status && !o.token)
        status = bad_usage("--token is missing: which grant of '%s' (holdfast show names it)",
                           o.args[0]);
    if (status) return status < 0 ? finish_output() : status;
    watch_for_damage();
    status = open_to_change(o.args[0], &store);
    if (status) return status;
    struct victim v = {.token = o.token};
    (void)hf_peek(store, o.args[0], find_victim, &v, NULL); /* if it fails, no holder is named */
    status = hf_break(store, o.args[0], o.token, &err) ? not_changed(&err) : 0;
    if (!status && *v.who)
        say("'%s': the grant %llu is over; this stops no process: %s: %s", o.args[0],
            (unsigned long long)o.token, v.who,
            v.carried ? "what still runs there goes on without the lock"
                      : "it goes on until it notices");
    hf_close(store);
    return status;
}
