/*
 * options.c - what the subcommands share of their command lines: options, times, the store.
 *
 * Operands and a command to run may be told apart in two ways: "KEY... -- CMD ARG...", where
 * options may stand anywhere before the "--", and as flock(1) has it, "KEY CMD ARG..." and "KEY -c
 * 'SHELL COMMAND'", where options end at the key.
 */
#include "cli.h"

#include "drivers.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum long_only {
    O_LIMIT = 256,
    O_LEASE,
    O_MAX_HOLD,
    O_AT_LEAST,
    O_OWNER,
    O_ON_LOST,
    O_KEEP,
    O_AT_MOST_ONCE,
    O_TOKEN,
    O_IDLE,
    O_JSON
};

static const struct {
    struct option option;
    unsigned takes; /* 0: every command */
} known[] = {
    {{"store", required_argument, NULL, 'S'}, 0},
    {{"help", no_argument, NULL, 'h'}, 0},
    {{"nonblock", no_argument, NULL, 'n'}, TAKES_WAIT},
    {{"nb", no_argument, NULL, 'n'}, TAKES_WAIT},
    {{"wait", required_argument, NULL, 'w'}, TAKES_WAIT},
    {{"timeout", required_argument, NULL, 'w'}, TAKES_WAIT},
    {{"conflict-exit-code", required_argument, NULL, 'E'}, TAKES_WAIT},
    {{"verbose", no_argument, NULL, 'v'}, TAKES_WAIT},
    {{"quiet", no_argument, NULL, 'q'}, TAKES_WAIT},
    {{"owner", required_argument, NULL, O_OWNER}, TAKES_WAIT},
    {{"shared", no_argument, NULL, 's'}, TAKES_MODE},
    {{"exclusive", no_argument, NULL, 'x'}, TAKES_MODE},
    {{"limit", required_argument, NULL, O_LIMIT}, TAKES_MODE},
    {{"lease", required_argument, NULL, O_LEASE}, TAKES_LEASE},
    {{"max-hold", required_argument, NULL, O_MAX_HOLD}, TAKES_MAX_HOLD},
    {{"at-least", required_argument, NULL, O_AT_LEAST}, TAKES_AT_LEAST},
    {{"on-lost", required_argument, NULL, O_ON_LOST}, TAKES_RUN},
    {{"close", no_argument, NULL, 'o'}, TAKES_RUN},
    {{"keep", required_argument, NULL, O_KEEP}, TAKES_ONCE},
    {{"at-most-once", no_argument, NULL, O_AT_MOST_ONCE}, TAKES_ONCE},
    {{"token", required_argument, NULL, O_TOKEN}, TAKES_TOKEN},
    {{"idle", required_argument, NULL, O_IDLE}, TAKES_IDLE},
    {{"all", no_argument, NULL, 'a'}, TAKES_ALL},
    {{"json", no_argument, NULL, O_JSON}, TAKES_JSON},
};
enum { KNOWN = sizeof known / sizeof *known };

static const struct {
    const char *spec;
    unsigned takes;
} letters[] = {
    {"S:h", 0}, {"nw:E:vq", TAKES_WAIT}, {"sxe", TAKES_MODE}, {"o", TAKES_RUN}, {"a", TAKES_ALL}};
enum { LETTERS = sizeof letters / sizeof *letters };

/* ---- values ---- */

/* Digits with at most one point in them, as thousandths rounded up (at most 4e15); -1 if they
   aren't. */
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

/* A number of digits alone, up to max; -1 if it is none. */
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

/* In the largest unit that leaves no rest. */
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

/* ---- the store ---- */

/* The password in the userinfo of a URL at `user`. */
static int wipe_password(char *user)
{
    int found = 0;
    char *end = user + strcspn(user, "/?# \"'"), *at = end;
    while (at > user && *at != '@') at--;
    char *colon = at > user ? memchr(user, ':', (size_t)(at - user)) : NULL;
    for (char *s = colon ? colon + 1 : at; s < at; s++, found = 1) *s = '*';
    return found;
}

int wipe_secrets(char *text)
{
    int found = 0;
    for (char *s = text; (s = strstr(s, "://"));) found |= wipe_password(s += 3);
    for (char *s = strchr(text, '?'); s; s = strpbrk(s + 1, "?&;")) {
        size_t name = strcspn(s + 1, "=&; ");
        if (s[1 + name] != '=') continue;
        char *value = s + 2 + name;
        size_t len = strcspn(value, "&; \"'");
        if (!len || !hf__url_secret(s + 1, name, value, len)) continue;
        memset(value, '*', len);
        found = 1;
    }
    return found;
}

/* The first line of a file, "-": of standard input. */
static int url_from_file(const char *name)
{
    FILE *f = !strcmp(name, "-") ? stdin : fopen(name, "re");
    char *line = NULL;
    size_t cap = 0;
    ssize_t n = f ? getline(&line, &cap, f) : -1;
    int why = errno;
    if (f && f != stdin) fclose(f);
    while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r')) line[--n] = 0;
    if (n > 0) {
        store_url = line;
        return 0;
    }
    free(line);
    return bad_usage("-S @%s: %s", name, f ? "holds no URL" : strerror(why));
}

int take_url(char *arg)
{
    if (!*arg) return bad_usage("-S: an empty URL");
    if (*arg == '@') return url_from_file(arg + 1);
    store_url = strdup(arg);
    if (!store_url) {
        say("out of memory");
        return EXIT_INTERNAL;
    }
    if (wipe_secrets(arg))
        say("a password in the arguments can be read by others for a moment; HOLDFAST_STORE or "
            "-S @FILE keep it");
    return 0;
}

int store_is_default(void)
{
    const char *named = store_url ? store_url : getenv("HOLDFAST_STORE");
    return !named || !*named;
}

static int is_missing(const hf_error *err, unsigned flags)
{
    return flags & HF_OPEN_EXISTING && err->code == HF_UNAVAILABLE && err->sys == ENOENT;
}

/* 0 or why not, which has been said; but for -1: the default store isn't there. */
static int open_with(const char *note, int64_t wait_ms, unsigned flags, hf **ret)
{
    enum { QUICK_MS = 2000, USUAL_MS = 5000, LEAST_MS = 1000 };
    hf_open_options o = HF_OPEN_OPTIONS_INIT;
    hf_error err;
    o.note = note;
    o.flags = flags;
    o.owner = store_owner;
    /* "At once" still leaves a far server the time to answer, and so does a limit of 50 ms: it is
       for the others who hold the key. */
    o.io_timeout_ms = wait_ms == 0                        ? QUICK_MS
                      : wait_ms > 0 && wait_ms < USUAL_MS ? wait_ms
                                                          : USUAL_MS;
    if (o.io_timeout_ms < LEAST_MS) o.io_timeout_ms = LEAST_MS;
    int rc = hf_open(store_url, &o, ret, &err);
    if (rc && is_missing(&err, flags) && store_is_default()) return -1;
    if (rc) return failed(&err);
    /* Some commands end without closing it, which would give back what they hold for others: known
       here, it isn't lost memory. */
    static hf *volatile opened;
    opened = *ret;
    (void)opened;
    return 0;
}

int open_store(const char *note, int64_t wait_ms, hf **ret)
{
    return open_with(note, wait_ms, 0, ret);
}

int open_to_look(hf **ret)
{
    *ret = NULL;
    int status = open_with(NULL, HF_FOREVER, HF_OPEN_EXISTING, ret);
    return status < 0 ? 0 : status;
}

hf_options lock_options(const struct options *o)
{
    hf_options to = HF_OPTIONS_INIT;
    to.wait_ms = o->wait_ms;
    to.lease_ms = o->lease_ms;
    to.max_hold_ms = o->max_hold_ms;
    to.at_least_ms = o->at_least_ms;
    to.mode = o->mode;
    to.limit = o->limit;
    to.owner = o->owner;
    if (o->at_most_once) to.flags |= HF_AT_MOST_ONCE;
    return to;
}

/* ---- parsing ---- */

/* One option of a command that runs something, or takes a lock. 0, status, or 1: not of these. */
static int lock_option(int c, const char *value, struct options *o)
{
    const int64_t day = 86400000, year = 365 * day;
    int64_t n = 0;
    int rc = 0;
    switch (c) {
    case 'n': o->wait_ms = 0; break;
    case 'w': return take_time("-w", value, 0, year, &o->wait_ms);
    case 'v': o->verbose = 1; break;
    case 'q': o->quiet = 1; break;
    case 's':
        o->mode = HF_SHARED;
        o->limit = 0;
        break;
    case 'x':
    case 'e':
        o->mode = HF_EXCLUSIVE;
        o->limit = 0;
        break;
    case 'o': o->close_session = 1; break;
    case 'E':
        rc = take_number("-E", value, 0, 255, &n);
        o->busy_status = (int)n;
        break;
    case O_LIMIT:
        rc = take_number("--limit", value, 1, 1000, &n);
        o->limit = (uint32_t)n;
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

static int other_option(const struct command *self, int c, char *value, struct options *o)
{
    const int64_t hundred_years = INT64_C(3153600000000);
    int64_t n = 0;
    int rc = 0;
    switch (c) {
    case 'S': return take_url(value);
    case 'h':
        printf("usage: holdfast %s %s\n\n%s; see man holdfast-%s\n", self->name, self->synopsis,
               self->about, self->page);
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

/* Parses options up to `end`, gathering the operands that stand among them. */
static int parse_upto(const struct command *self, unsigned takes, int end, char **argv, int stop,
                      struct options *o)
{
    struct option longs[KNOWN + 1];
    char shorts[64];
    int n = 0, at = snprintf(shorts, sizeof shorts, "%s:", stop ? "+" : "");
    for (int i = 0; i < KNOWN; i++)
        if (!known[i].takes || known[i].takes & takes) longs[n++] = known[i].option;
    longs[n] = (struct option){NULL, 0, NULL, 0};
    for (int i = 0; i < LETTERS; i++)
        if (!letters[i].takes || letters[i].takes & takes)
            at += snprintf(shorts + at, sizeof shorts - (size_t)at, "%s", letters[i].spec);
    optind = 0; /* glibc: start anew */
    opterr = 0;
    for (int c; (c = getopt_long(end, argv, shorts, longs, NULL)) != -1;) {
        int rc;
        if (c == ':') return bad_usage("%s needs a value", argv[optind - 1]);
        if (c == '?' && optopt > 0 && optopt < 256)
            return bad_usage("unknown option '-%c'", optopt);
        if (c == '?') return bad_usage("bad option '%s'", argv[optind - 1]);
        rc = lock_option(c, optarg, o);
        if (rc == 1) rc = other_option(self, c, optarg, o);
        if (rc) return rc;
    }
    o->args = argv + optind;
    o->n_args = end - optind;
    return 0;
}

/* Could this word be a command? */
static int is_program(const char *word)
{
    const char *path = getenv("PATH");
    char at[4096];
    struct stat s;
    if (strchr(word, '/')) return !stat(word, &s) && S_ISREG(s.st_mode) && !access(word, X_OK);
    for (; path && *path; path += strcspn(path, ":"), path += *path == ':') {
        int n = (int)strcspn(path, ":");
        int len = snprintf(at, sizeof at, "%.*s/%s", n, path, word);
        if (n && len < (int)sizeof at && !stat(at, &s) && S_ISREG(s.st_mode) && !access(at, X_OK))
            return 1;
    }
    return 0;
}

/* "KEY CMD ARG..." or "KEY -c 'SHELL COMMAND'", as flock(1) has them. */
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
        /* "--" before the keys, for keys that look like options; there may be a second one. */
        int first = dashes + 1;
        keys_follow = 1;
        o->args = argv + first;
        o->n_args = argc - first;
        for (dashes = first; dashes < argc && strcmp(argv[dashes], "--");) dashes++;
        style_of_flock = dashes == argc;
        if (!style_of_flock) o->n_args = dashes - first;
    }
    if (style_of_flock && keys_follow && o->n_args == 1)
        return bad_usage("no key, or no command: there is only '%s'", o->args[0]);
    if (style_of_flock) return flock_style(o);
    if (!o->n_args) return bad_usage("no key");
    o->argv = argv + dashes + 1;
    if (!*o->argv) return bad_usage("no command after \"--\"");
    /* Who comes from flock(1) may mean a "--" of the command's own. */
    if (o->n_args > 1 && takes & TAKES_MODE && !o->quiet && is_program(o->args[1]))
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
    if (takes & TAKES_CMD) return parse_with_command(self, takes, argc, argv, o);
    return parse_upto(self, takes, argc, argv, 0, o);
}

int want_args(const struct options *o, int least, int most, const char *what)
{
    if (o->n_args < least) return bad_usage("no %s", what);
    if (o->n_args > most) return bad_usage("'%s' is one %s too many", o->args[most], what);
    return 0;
}
