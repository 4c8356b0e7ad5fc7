/*
 * store_url.c - finds the store's URL, and opens the store.
 *
 * The URL is that of -S, else of $HOLDFAST_STORE, else the first line of /etc/holdfast/store, else
 * "file:", the default store in the user's state directory.
 */
#include "cli.h"

#include "admin.h"
#include "drivers.h"
#include "machine_store.h"
#include "os.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const char *store_from = "-S";
int store_told, store_quiet;
static int secret_shown; /* 1: the arguments had a URL with a secret */
static int unnamed;      /* 1: nothing names a store, and store_url is the default */

/* Wipes the password of a URL whose authority begins at `user`: up to the last '@', because a
   store's URL has no '@' after the host. In URLs of other programs this may wipe more. */
static int wipe_password(char *user)
{
    int found = 0;
    char *end = user + strcspn(user, " "), *at = end;
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

int wipe_url(char *text)
{
    hf_url url;
    text[hf__url_length(text)] = 0;
    if (hf_url_parse(text, &url, NULL)) {
        int found = wipe_secrets(text);
        size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789+-.");
        text[text[n] == ':' ? n + 1 : 0] = 0;
        return found;
    }
    const char *was = strchr(text, '?'), *is = strchr(url.safe, '?');
    int found = url.password[0] || strcmp(was ? was : "", is ? is : "");
    size_t len = strlen(url.safe);
    if (found && len <= strlen(text)) memcpy(text, url.safe, len + 1);
    return found;
}

/* Makes the text, which is given away, the store's URL; frees the one of an earlier -S. */
static void keep_url(char *url)
{
    static char *kept;
    free(kept);
    store_url = kept = url;
}

/* Takes the URL from the first line of a file ("-": of standard input). Returns 0 or the exit
   status. */
static int url_from_file(const char *name)
{
    FILE *f = !strcmp(name, "-") ? stdin : fopen(name, "re");
    char *line = NULL;
    size_t cap = 0;
    ssize_t n = f ? getline(&line, &cap, f) : -1;
    int why = errno;
    if (f && f != stdin) fclose(f);
    if (n > 0) line[n = (ssize_t)hf__url_length(line)] = 0;
    if (n > 0) {
        keep_url(line);
        return 0;
    }
    free(line);
    return bad_usage("-S @%s: %s", name, f ? "holds no URL" : strerror(why));
}

int take_url(char *arg)
{
    if (!hf__url_length(arg)) return bad_usage("-S: an empty URL");
    if (*arg == '@') return url_from_file(arg + 1);
    char *copy = strdup(arg);
    if (!copy) {
        say("out of memory");
        return EXIT_INTERNAL;
    }
    keep_url(copy);
    size_t len = strlen(arg);
    secret_shown |= wipe_url(arg);
    size_t kept = strlen(arg);
    memset(arg + kept, ' ', len - kept);
    return 0;
}

/* Warns of a password in the arguments, once. Called after all options are parsed, because -q may
   follow the URL. */
static void warn_of_secret(void)
{
    if (secret_shown && !store_quiet)
        say("a password in the arguments can be read by others for a moment; HOLDFAST_STORE or "
            "-S @FILE keep it");
    secret_shown = 0;
}

int find_store(void)
{
    hf_error err;
    char *url;
    const char *from;
    warn_of_secret();
    if (store_url) return 0;
#ifdef HF_STORE_FILE
    hf__machine_file = HF_STORE_FILE;
#endif
    int rc = hf__default_url(&url, &from, &err);
    if (rc) {
        say("%s", err.text);
        return hf_code_exit_status(rc);
    }
    unnamed = !from;
    store_from = from ? from : "the default";
    store_url = url;
    return 0;
}

int store_is_default(void) { return unnamed; }

static int is_missing(const hf_error *err, unsigned flags)
{
    return flags & HF_OPEN_EXISTING && err->code == HF_UNAVAILABLE && err->sys == ENOENT;
}

int may_pass(const hf_error *err)
{
    if (err->code == HF_UNAVAILABLE && err->sys == EBUSY) return 1;
    return (err->code == HF_UNAVAILABLE || err->code == HF_UNKNOWN) && !err->sys;
}

static char absent[sizeof((hf_error *)0)->text]; /* why the default store can't be opened */

enum { QUICK_MS = 2000, USUAL_MS = 5000, LEAST_MS = 1000 };

/* Returns how long one request may take: 1 s at least, even with -n or a shorter limit, so that a
   server far away can answer. Such limits are meant for other holders of the key. */
static int64_t request_ms(int64_t wait_ms)
{
    int64_t ms = !wait_ms ? QUICK_MS : wait_ms > 0 && wait_ms < USUAL_MS ? wait_ms : USUAL_MS;
    return ms < LEAST_MS ? LEAST_MS : ms;
}

/* Prints which store was opened, if -v asks for that. Returns 0. */
static int opened(hf *store)
{
    if (store_told) say("the store is %s (%s)", hf_store_url(store), store_from);
    /* `acquire` doesn't close its handle. This pointer keeps a leak checker from reporting that. */
    static hf *volatile opened;
    opened = store;
    (void)opened;
    return 0;
}

/* Returns 1 if the URL is the one that a `holdfast run` around this command has passed on, without
   a password that the store may want. */
static int may_lack_password(const hf_error *err)
{
    hf_url url;
    char path[2];
    if (err->code != HF_DENIED || strcmp(store_from, "HOLDFAST_STORE") || !getenv("HOLDFAST_OWNER"))
        return 0;
    if (hf_url_parse(store_url, &url, NULL) || url.password[0]) return 0;
    return url.host[0] || url.user[0] ||
           hf_url_get(&url, "socket", path, sizeof path) != HF_UNSUPPORTED;
}

/* Leaves scheme, host and path of a URL that was refused: a user's name may be a password that
   stands in its place, and a misspelt option may have a secret. */
static void wipe_doubtful(char *url)
{
    hf_url parsed;
    int is_url = !hf_url_parse(url, &parsed, NULL);
    wipe_url(url);
    if (!is_url) return;
    url[strcspn(url, "?")] = 0;
    char *host = strstr(url, "://");
    if (!host) return;
    host += 3;
    char *at = memrchr(host, '@', strcspn(host, "/"));
    if (at) memmove(host, at + 1, strlen(at));
}

/* Returns " (store URL, named by -S)", for messages. */
static const char *which_store(void)
{
    static char *text;
    char *shown = strdup(store_url);
    if (shown) wipe_doubtful(shown);
    free(text);
    if (asprintf(&text, " (store %s, %s%s)", shown && *shown ? shown : "not shown",
                 unnamed ? "" : "named by ", store_from) < 0)
        text = NULL;
    free(shown);
    return text ? text : "";
}

const char *unreached_store(const hf_error *err)
{
    return err->code == HF_UNAVAILABLE && may_pass(err) ? which_store() : "";
}

/* Prints that the store can't be opened: for what, why, which store it is, and what the state is.
 */
static int not_opened(const hf_error *err)
{
    say("%s: %s%s%s%s%s", command_about, err->text, which_store(), command_undone ? "; " : "",
        command_undone ? command_undone : "",
        may_lack_password(err)
            ? "; the 'holdfast run' around this command passes on no password: "
              "name a file with the URL (-S @FILE), or with the password (?passfile=FILE)"
            : "");
    advise(err->code);
    return hf_code_exit_status(err->code);
}

/* Opens the store. Returns 0; -1: the default store doesn't exist; or the exit status, with the
   reason printed. */
static int open_with(unsigned flags, hf **ret)
{
    hf_open_options o = HF_OPEN_OPTIONS_INIT;
    hf_error err;
    int status = find_store();
    if (status) return status;
    o.flags = flags;
    o.owner = store_owner;
    o.io_timeout_ms = USUAL_MS;
    int rc = hf_open(store_url, &o, ret, &err);
    if (rc && is_missing(&err, flags) && store_is_default()) {
        snprintf(absent, sizeof absent, "%s", err.text);
        return -1;
    }
    return rc ? not_opened(&err) : opened(*ret);
}

int open_at_once(hf **ret) { return open_with(0, ret); }

/* Sleeps before another attempt: twice as long each time, up to 1 s, and by a random part, so that
   not all processes ask at the same time. */
static void pause_before(int attempt)
{
    enum { FIRST_MS = 50, MOST_MS = 1000 };
    int64_t most_ms = attempt < 5 ? FIRST_MS << attempt : MOST_MS, left_ms = limit_left_ms();
    uint32_t r;
    hf__random(&r, sizeof r);
    int64_t ms = most_ms / 2 + (int64_t)(r % (uint32_t)most_ms) / 2;
    if (left_ms != HF_FOREVER && left_ms < ms) ms = left_ms;
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

static int open_store(const char *note, int64_t wait_ms, hf **ret)
{
    hf_open_options o = HF_OPEN_OPTIONS_INIT;
    hf_error err;
    int status = find_store(), rc;
    if (status) return status;
    o.note = note;
    o.owner = store_owner;
    limit_begin(wait_ms);
    int64_t start_us = hf__local_us();
    int64_t until_us = start_us + (wait_ms == HF_FOREVER ? USUAL_MS : wait_ms) * 1000;
    for (int attempt = 0;; attempt++) {
        int64_t left_ms = (until_us - hf__local_us() + 999) / 1000;
        /* Without a limit, the requests of the wait that follows have their usual time limit. */
        o.io_timeout_ms = request_ms(wait_ms > 0 ? (left_ms > 1 ? left_ms : 1) : wait_ms);
        rc = hf_open(store_url, &o, ret, &err);
        /* A server that says that it is full, or isn't ready yet, can be reached. */
        if (rc && err.sys == EBUSY && wait_ms == HF_FOREVER)
            until_us = hf__local_us() + USUAL_MS * 1000;
        if (!rc || !may_pass(&err) || hf__local_us() >= until_us) break;
        if (!attempt && store_told) say("%s; it is tried again", err.text);
        live_show(NULL, "waiting for the store: %s", err.text);
        pause_before(attempt);
        if (hf__local_us() >= until_us) break;
    }
    live_erase();
    return rc ? not_opened(&err) : opened(*ret);
}

int open_to_lock(const char *note, int64_t wait_ms, hf **ret)
{
    int status = find_store();
    if (status) return status;
    if (!strncmp(store_url, "mem:", 4))
        return bad_usage(
            "the store is mem: (%s), which is in this process alone: it would exclude no "
            "other process; name a store that they can open, such as file:",
            store_from);
    return open_store(note, wait_ms, ret);
}

int open_to_change(const char *key, hf **ret)
{
    int status = open_with(HF_OPEN_EXISTING, ret);
    if (status >= 0) return status;
    say("%s '%s': the default store doesn't exist, so nothing is held: %s", command_name, key,
        absent);
    return EXIT_LOST;
}

static void say_setting(void *arg, int ok, const char *text)
{
    (void)arg;
    say("%s%s", ok ? "" : "BAD: ", text);
}

int open_to_look(hf **ret)
{
    hf_error err;
    *ret = NULL;
    int status = open_with(HF_OPEN_EXISTING, ret);
    if (!status && store_told && hf__inspect(*ret, say_setting, NULL, &err)) say("%s", err.text);
    static int told; /* `watch` looks again and again */
    if (status < 0 && !told++)
        say("%s: %s (the default), so nothing is held", command_name, absent);
    return status < 0 ? 0 : status;
}
