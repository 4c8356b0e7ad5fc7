/*
 * prune.c - holdfast prune: deletes the rows of keys that were not used for long.
 */
#include "cli.h"

#include <stdlib.h>

int prune_command(const struct command *self, int argc, char **argv)
{
    struct options o;
    hf *store;
    hf_error err;
    uint64_t n = 0;
    int status = parse_options(self, TAKES_IDLE | TAKES_JSON, argc, argv, &o);
    if (!status) status = want_args(&o, 0, 0, "argument");
    if (!status && o.idle_ms < 0) status = bad_usage("--idle is missing: unused for how long");
    if (status) return status < 0 ? finish_output() : status;
    watch_for_damage();
    status = open_to_look(&store);
    if (status) return status;
    progress_begin("pruning");
    int rc = store ? hf_prune(store, o.idle_ms, &n, &err) : 0;
    progress_end();
    hf_close(store);
    if (rc) return failed(&err);
    char done[60];
    snprintf(done, sizeof done, "%llu deleted", (unsigned long long)n);
    char *line = o.json ? json_fields("{s:I}", "deleted", (long long)n) : NULL;
    if (line)
        fputs(line, stdout);
    else
        printf("%s\n", done);
    free(line);
    return finish_output_of(done);
}
