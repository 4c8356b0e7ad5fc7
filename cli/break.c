/*
 * break.c - holdfast break: ends the grant that its token names, and no other.
 */
#include "cli.h"

int break_command(const struct command *self, int argc, char **argv)
{
    struct options o;
    hf *store;
    hf_error err;
    int status = parse_options(self, TAKES_TOKEN, argc, argv, &o);
    if (!status) status = want_args(&o, 1, 1, "key");
    if (!status && !o.token)
        status = bad_usage("no --token: which grant of '%s' (holdfast show names it)", o.args[0]);
    if (status) return status < 0 ? finish_output() : status;
    watch_for_damage();
    status = open_store(NULL, HF_FOREVER, &store);
    if (status) return status;
    status = hf_break(store, o.args[0], o.token, &err) ? failed(&err) : 0;
    hf_close(store);
    return status;
}
