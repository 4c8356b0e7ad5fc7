/*
 * stores.c - holdfast stores: the kinds of store that this installation can use.
 */
#include "cli.h"

#include "drivers.h"
#include "promises.h"
#include "shown.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const hf_caps none;

/* Prints a line on stdout, in which text that may harm a terminal is changed (hf__show_text). */
__attribute__((format(printf, 1, 2))) static void print_shown(const char *format, ...)
{
    char *line;
    va_list args;
    va_start(args, format);
    int n = vasprintf(&line, format, args);
    va_end(args);
    if (n < 0) return;
    hf__show_text(line, line, (size_t)n + 1);
    puts(line);
    free(line);
}

struct lists {
    json_t *promises, *lacks;
};

static void add_promise(void *arg, enum promise is, const char *words)
{
    const struct lists *l = arg;
    json_array_append_new(is == PROMISED ? l->promises : l->lacks, json_string(words));
}

static void see(void *arg, const char *scheme, const hf_driver *driver, const char *path,
                const char *why)
{
    const struct options *o = arg;
    if (o->json) {
        const hf_caps *caps = driver ? &driver->caps : &none;
        struct lists l = {json_array(), json_array()};
        if (driver) store_promises(driver, caps, add_promise, &l);
        char *line = json_fields(
            "{s:s, s:b, s:s?, s:s?, s:s?, s:b, s:b, s:b, s:o, s:o}", "scheme", scheme, "usable",
            driver != NULL, "about", driver ? driver->about : NULL, "path", path, "why",
            driver ? NULL : why, "sessions", caps->liveness != NULL, "queued", caps->queues != 0,
            "woken", caps->local || caps->notify, "promises", l.promises, "lacks", l.lacks);
        if (line) fputs(line, stdout);
        free(line);
    } else if (driver) {
        print_shown("%-10s %s%s%s%s", scheme, driver->about, path ? " (" : "", path ? path : "",
                    path ? ")" : "");
    } else {
        print_shown("%-10s cannot be used: %s", scheme, why ? why : "?");
    }
}

int stores_command(const struct command *self, int argc, char **argv)
{
    struct options o;
    int status = parse_options(self, TAKES_JSON, argc, argv, &o);
    if (!status) status = want_args(&o, 0, 0, "argument");
    if (status) return status < 0 ? finish_output() : status;
    status = find_store();
    if (status) return status;
    hf__drivers(see, &o);
    char *url = strdup(store_url);
    if (url) wipe_url(url);
    if (url && !o.json) {
        putchar('\n');
        print_shown("Without -S the store is %s (%s).",
                    *url ? url : "a URL that can't be parsed, and isn't shown", store_from);
    }
    free(url);
    return finish_output();
}
