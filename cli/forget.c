/*
 * forget.c - holdfast forget: removes the marker of an event that is done: it may run again.
 */
#include "cli.h"

int forget_command(const struct command *self, int argc, char **argv)
{
    struct options o;
    hf *store;
    hf_error err;
    int status = parse_options(self, 0, argc, argv, &o);
    if (!status) status = want_args(&o, 1, 1, "key");
    if (status) return status < 0 ? finish_output() : status;
    watch_for_damage();
    status = open_to_change(o.args[0], &store);
    if (status) return status;
    status = hf_forget(store, o.args[0], &err) ? not_changed(&err) : 0;
    hf_close(store);
    return status;
}
