/*
 * options.c - parses command lines: options, times, operands.
 *
 * A command to run may follow the operands in two ways. After "--": "KEY... -- CMD ARG...", with
 * options anywhere before the "--". Or as in flock(1): "KEY CMD ARG..." and "KEY -c 'SHELL
 * COMMAND'", with options before the key only.
 */
#include "job.h"

#include "option_table.h"
#include "refusal.h"

#include <stdlib.h>
#include <string.h>

/* ---- values ---- */

/* Reads digits with at most one decimal point from *text, and moves *text behind them. Returns
   thousandths, rounded up, at most 4e15; -1: there is no such number. */
static int64_t decimal(const char **text)
{
    const char *s = *text;
    const int64_t most = INT64_C(4000000000000);
    int64_t whole = 0, milli = 0, unit = 100;
    int digits = 0, more = 0;
    for (; *s >= '0' && *s <= '9'; s++, digits++) {
        whole = whole * 10 + (*s - '0');
        if (whole > most) whole = most;
    }
    if (*s == '.')
        for (s++; *s >= '0' && *s <= '9'; s++, digits++, unit /= 10) {
            milli += (*s - '0') * unit;
            if (!unit && *s > '0') more = 1;
        }
    *text = s;
    return digits ? whole * 1000 + milli + more : -1;
}

int64_t parse_time(const char *text)
{
    static const struct {
        const char *name;
        int64_t ms;
    } units[] = {{"", 1000}, {"s", 1000}, {"ms", 1}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};
    const int64_t hundred_years = INT64_C(3153600000000);
    int64_t thousandths = decimal(&text);
    for (size_t i = 0; thousandths >= 0 && i < sizeof units / sizeof *units; i++)
        if (!strcmp(text, units[i].name)) {
            int64_t limit = hundred_years * 1000 / units[i].ms;
            return thousandths > limit ? INT64_MAX : (thousandths * units[i].ms + 999) / 1000;
        }
    return -1;
}

/* Reads a number that has digits only, up to max. Returns -1 if it isn't one. */
static int64_t parse_number(const char *text, int64_t max)
{
    int64_t n = 0;
    if (!*text) return -1;
    for (; *text; text++) {
        if (*text < '0' || *text > '9') return -1;
        n = n * 10 + (*text - '0');
        if (n > max) return -1;
    }
    return n;
}

/* Writes a time in the largest unit that leaves no rest. */
static const char *time_text(int64_t ms, char to[32])
{
    if (ms % 86400000 == 0 && ms)
        snprintf(to, 32, "%lldd", (long long)(ms / 86400000));
    else if (ms % 1000 == 0)
        snprintf(to, 32, "%llds", (long long)(ms / 1000));
    else
        snprintf(to, 32, "%lldms", (long long)ms);
    return to;
}

static int take_time(const char *name, const char *text, int64_t least, int64_t most, int64_t *ret)
{
    int64_t ms = parse_time(text);
    if (ms < 0)
        return bad_usage("%s '%s': not a time such as 500ms, 10s, 5m, 1.5h or 7d", name, text);
    char from[32], to[32];
    if (ms < least || ms > most)
        return bad_usage("%s '%s': must be %s to %s", name, text, time_text(least, from),
                         time_text(most, to));
    *ret = ms;
    return 0;
}

static int take_number(const char *name, const char *text, int64_t least, int64_t most,
                       int64_t *ret)
{
    int64_t n = parse_number(text, most);
    if (n < least)
        return bad_usage("%s '%s': must be a number from %lld to %lld", name, text,
                         (long long)least, (long long)most);
    *ret = n;
    return 0;
}

/* ---- parsing ---- */

/* Returns the options for the library, without --max-hold: the library would end the hold while the
   command still runs. child.c stops the command instead. */
hf_options lock_options(const struct options *o)
{
    hf_options to = HF_OPTIONS_INIT;
    to.wait_ms = o->wait_ms;
    to.lease_ms = o->lease_ms;
    to.at_least_ms = o->at_least_ms;
    to.mode = o->mode;
    to.limit = o->limit;
    to.owner = o->owner;
    if (o->at_most_once) to.flags |= HF_AT_MOST_ONCE;
    return to;
}

/* Takes one option, if it is one of a command that runs another or takes a lock. Returns 0, the
   exit status, or 1: it is another option. */
static int lock_option(int c, const char *value, struct options *o)
{
    const int64_t day = 86400000, year = 365 * day;
    int64_t n = 0;
    int rc = 0;
    switch (c) {
    case 'n':
        o->no_wait = 1;
        if (!o->waits) o->wait_ms = 0;
        break;
    case 'w': o->waits = 1; return take_time("-w", value, 0, year, &o->wait_ms);
    case 'v': o->verbose = store_told = 1; break;
    case 'q': o->quiet = store_quiet = 1; break;
    case 's':
    case 'x':
    case 'e':
        o->mode = c == 's' ? HF_SHARED : HF_EXCLUSIVE;
        o->plain_mode = 1;
        break;
    case 'o': o->close_session = 1; break;
    case 'F': o->no_fork = 1; break;
    case 'E':
        rc = take_number("-E", value, 0, 255, &n);
        o->busy_status = (int)n;
        break;
    case O_LIMIT:
        rc = take_number("--limit", value, 1, 1000, &n);
        o->limit = (uint32_t)n;
        o->limited = 1;
        o->mode = HF_LIMITED;
        break;
    case O_OWNER:
        if (!*value || strlen(value) >= HF_OWNER_CAP)
            return bad_usage("--owner: must have 1 to %d bytes", HF_OWNER_CAP - 1);
        o->owner = value;
        break;
    case O_LEASE: return take_time("--lease", value, 100, day, &o->lease_ms);
    case O_MAX_HOLD: return take_time("--max-hold", value, 1, year, &o->max_hold_ms);
    case O_AT_LEAST: return take_time("--at-least", value, 0, day, &o->at_least_ms);
    case O_ON_LOST:
        if (!strcmp(value, "term"))
            o->on_lost = ON_LOST_TERM;
        else if (!strcmp(value, "kill"))
            o->on_lost = ON_LOST_KILL;
        else if (!strcmp(value, "ignore"))
            o->on_lost = ON_LOST_IGNORE;
        else
            return bad_usage("--on-lost '%s': must be term, kill or ignore", value);
        break;
    default: return 1;
    }
    return rc;
}

static int other_option(const struct command *self, unsigned takes, int c, char *value,
                        struct options *o)
{
    const int64_t hundred_years = INT64_C(3153600000000);
    int64_t n = 0;
    int rc = 0;
    switch (c) {
    case 'S': return take_url(value);
    case 'h':
        answer_begin();
        printf("usage: holdfast %s %s\n\n%s\n\n", self->name, self->synopsis, self->about);
        print_options(takes);
        printf("\nman holdfast-%s says more.\n", self->page);
        answer_end();
        return -1;
    case 'V':
        answer_begin();
        printf("holdfast %s\n", hf_version());
        answer_end();
        return -1;
    case 'a': o->all = 1; break;
    case O_JSON: o->json = 1; break;
    case O_AT_MOST_ONCE: o->at_most_once = 1; break;
    case O_KEEP:
        if (!strcmp(value, "forever"))
            o->keep_ms = HF_FOREVER;
        else
            rc = take_time("--keep", value, 1, hundred_years, &o->keep_ms);
        break;
    case O_IDLE: return take_time("--idle", value, 60000, hundred_years, &o->idle_ms);
    case O_TOKEN:
        rc = take_number("--token", value, 1, (INT64_C(1) << 53) - 1, &n);
        o->token = (uint64_t)n;
        break;
    default: break;
    }
    return rc;
}

/* Reports the option that getopt_long has refused. Returns the exit status. */
static int bad_option(int c, char *const *argv, int index, unsigned takes)
{
    const char *word = argv[optind - 1], *meant;
    if (c == ':') return bad_usage("%s needs a value", word);
    if (optopt > 0 && optopt < 256 && index < 0) return bad_usage("unknown option '-%c'", optopt);
    meant = option_like(word, takes);
    return meant ? bad_usage("bad option '%s'; did you mean %s?", word, meant)
                 : bad_usage("bad option '%s'", word);
}

/* Parses options up to argv[end], and collects the operands among them. `stop`: as of option_lists.
 */
static int parse_upto(const struct command *self, unsigned takes, int end, char **argv, int stop,
                      struct options *o)
{
    struct option longs[OPTIONS_CAP];
    char shorts[64];
    option_lists(takes, stop, longs, shorts, sizeof shorts);
    optind = 0; /* glibc: start anew */
    opterr = 0;
    for (int c, index = -1; (c = getopt_long(end, argv, shorts, longs, &index)) != -1; index = -1) {
        int rc;
        if (c == ':' || c == '?') return bad_option(c, argv, index, takes);
        rc = lock_option(c, optarg, o);
        if (rc == 1) rc = other_option(self, takes, c, optarg, o);
        if (rc) return rc;
    }
    o->args = argv + optind;
    o->n_args = end - optind;
    return 0;
}

/* Refuses options that contradict each other. Returns 0 or the exit status. */
static int contradiction(const struct options *o)
{
    if (o->no_wait && o->waits && o->wait_ms)
        return bad_usage("-n doesn't wait, and -w says for how long to: give one of them");
    if (o->limited && o->plain_mode)
        return bad_usage("--limit lets several hold the key, -s any number, -x one: give one of "
                         "them");
    if (o->no_fork && (o->close_session || o->lease_ms || o->max_hold_ms || o->at_least_ms))
        return bad_usage(
            "-F leaves no process that could do -o, --lease, --max-hold or --at-least");
    if (o->max_hold_ms && o->at_least_ms > o->max_hold_ms)
        return bad_usage("--at-least keeps the key for longer than --max-hold lets it be held: "
                         "make --at-least the same or shorter");
    if (o->max_hold_ms && o->on_lost == ON_LOST_IGNORE)
        return bad_usage("--max-hold stops the command after that time, and --on-lost ignore lets "
                         "it go on: give one of them");
    return 0;
}

/* Reads "KEY CMD ARG..." or "KEY -c 'SHELL COMMAND'", as flock(1) does. */
static int flock_style(struct options *o)
{
    static char *shell[4];
    char **rest = o->args + 1;
    int n = o->n_args - 1;
    if (o->n_args < 1) return bad_usage("no key and no command");
    if (n < 1) return bad_usage("no command for '%s'", o->args[0]);
    if (!strcmp(rest[0], "-c") || !strcmp(rest[0], "--command")) {
        if (n != 2) return bad_usage("%s takes exactly one argument, a shell command", rest[0]);
        const char *sh = getenv("SHELL");
        static char dash_c[] = "-c", plain[] = "/bin/sh";
        shell[0] = sh && *sh ? (char *)(uintptr_t)sh : plain;
        shell[1] = dash_c;
        shell[2] = rest[1];
        o->argv = shell;
    } else if (n > 1 && !strcmp(rest[1], "-c") && !find_program(rest[0])) {
        return bad_usage("'%s' is no command; several keys need \"--\" before the command: "
                         "KEY KEY -- sh -c '...'",
                         rest[0]);
    } else if (rest[0][0] == '-') {
        return bad_usage("'%s' after the key: options of holdfast stand before it, and a command "
                         "that begins with '-' after \"--\"",
                         rest[0]);
    } else {
        o->argv = rest;
    }
    o->n_args = 1;
    return 0;
}

static int parse_with_command(const struct command *self, unsigned takes, int argc, char **argv,
                              struct options *o)
{
    int dashes = 1, keys_follow = 0;
    while (dashes < argc && strcmp(argv[dashes], "--")) dashes++;
    int style_of_flock = dashes == argc;
    int rc = parse_upto(self, takes, style_of_flock ? argc : dashes, argv, style_of_flock, o);
    if (rc) return rc;
    if (!style_of_flock && o->n_args == 0) {
        /* A "--" before the keys is for keys that look like options. There may be another one,
           before the command. */
        int first = dashes + 1;
        keys_follow = 1;
        o->args = argv + first;
        o->n_args = argc - first;
        dashes = first;
        if (argc - first > 2 && !strcmp(argv[first], "--") && !strcmp(argv[first + 1], "--"))
            dashes++; /* the middle one of three is the key */
        while (dashes < argc && strcmp(argv[dashes], "--")) dashes++;
        style_of_flock = dashes == argc;
        if (!style_of_flock) o->n_args = dashes - first;
    }
    if (style_of_flock && keys_follow && o->n_args == 1)
        return bad_usage("no key, or no command: there is only '%s'", o->args[0]);
    if (style_of_flock) return flock_style(o);
    if (!o->n_args) return bad_usage("no key");
    o->argv = argv + dashes + 1;
    if (!*o->argv) return bad_usage("no command after \"--\"");
    /* A user of flock(1) may have meant: KEY CMD -- ARG. */
    if (o->n_args > 1 && takes & TAKES_MODE && !o->quiet && find_program(o->args[1]))
        say("'%s' before \"--\" is taken for a key, not for the command", o->args[1]);
    return 0;
}

int parse_options(const struct command *self, unsigned takes, int argc, char **argv,
                  struct options *o)
{
    memset(o, 0, sizeof *o);
    o->wait_ms = HF_FOREVER;
    o->idle_ms = -1;
    o->keep_ms = INT64_C(7) * 86400000;
    o->busy_status = EXIT_BUSY;
    int rc = takes & TAKES_CMD ? parse_with_command(self, takes, argc, argv, o)
                               : parse_upto(self, takes, argc, argv, 0, o);
    if (!rc) rc = contradiction(o);
    if (!rc && self->keyed && o->n_args)
        snprintf(command_about, sizeof command_about, "%s '%s'", self->name, o->args[0]);
    return rc;
}

int want_args(const struct options *o, int least, int most, const char *what)
{
    if (o->n_args < least) return bad_usage("no %s", what);
    if (o->n_args > most) return bad_usage("'%s' is one %s too many", o->args[most], what);
    return 0;
}
