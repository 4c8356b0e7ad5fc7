/*
 * main.c - the command `holdfast`: finds and runs the subcommand, and prints messages.
 */
#include "cli.h"

#include "holdfast_driver.h"
#include "os.h"
#include "refusal.h"
#include "shown.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *store_url;
const char *store_owner;
const char *command_name = "", *command_undone;
char command_about[HF_KEY_CAP + 16];

static const char not_run[] = "nothing was acquired, and nothing was executed";

static const struct command commands[] = {
    {"run",
     "[-n | -w TIME] [-s | --limit N] [--lease TIME] [--max-hold TIME] [--at-least TIME]\n"
     "           [-E CODE] [--owner NAME] [--on-lost term|kill|ignore] [-o] [-q] [-v]\n"
     "           KEY... -- CMD ARG...\n"
     "       holdfast run [OPTION...] KEY CMD ARG...\n"
     "       holdfast run [OPTION...] KEY -c 'SHELL COMMAND'",
     "run a command while holding keys", "run", run_command, 1, not_run},
    {"once",
     "[--keep TIME] [--at-most-once] [--lease TIME] [-n | -w TIME] [-E CODE]\n"
     "           [--owner NAME] [--max-hold TIME] [--on-lost term|kill|ignore] [-o] [-q] [-v]\n"
     "           KEY -- CMD ARG...",
     "run a command once per event, remembered", "once", once_command, 1, not_run},
    {"acquire",
     "[-n | -w TIME] [-s | --limit N] [-E CODE] [-q] [-v] [--json]\n"
     "           [--owner NAME] KEY... --lease TIME",
     "take keys for a time, for scripts", "acquire", acquire_command, 1, "nothing was acquired"},
    {"renew", "KEY --token N [--lease TIME] [--json]", "extend a grant", "acquire", renew_command,
     1, "the lease was not extended"},
    {"enter", "KEY --token N [FENCE]", "show a token to the guard of the data", "guard",
     enter_command, 1, "the token was not shown"},
    {"release", "KEY --token N", "give a grant back", "acquire", release_command, 1,
     "the grant was not given back"},
    {"ls", "[--all] [--json] [-v] [PREFIX]", "list what is held or waited for", "ls", ls_command, 0,
     NULL},
    {"show", "[--json] [-v] KEY", "show one key: holders and waiters", "ls", show_command, 1, NULL},
    {"watch", "[--json] [-v] [PREFIX]", "show changes as they happen", "ls", watch_command, 0,
     NULL},
    {"break", "KEY --token N", "end one grant, named by its token", "break", break_command, 1,
     "the grant was not ended"},
    {"forget", "KEY", "let an event that is done run again", "once", forget_command, 1,
     "the mark was not removed"},
    {"prune", "--idle TIME [--json]", "delete keys that were not used for long", "prune",
     prune_command, 0, "nothing was deleted"},
    {"guard",
     "postgres [TABLE --key-column COLUMN] [--schema NAME] [--key-prefix TEXT]\n"
     "           [--locks TABLE] [--locks-schema NAME] [--elsewhere] [--undo]\n"
     "       holdfast guard mariadb [TABLE --key-column COLUMN] [--key-prefix TEXT]\n"
     "           [--locks TABLE] [--elsewhere] [--undo]\n"
     "       holdfast guard sqlite [TABLE --key-column COLUMN] [--key-prefix TEXT]\n"
     "           [--locks TABLE] [--elsewhere] [--undo]\n"
     "       holdfast guard firestore --lock COLLECTION --data COLLECTION [--owner CLAIM]\n"
     "           [--key-prefix TEXT] [--token-field NAME] [--max-lease TIME]\n"
     "       holdfast guard redis [--key-prefix TEXT | --elsewhere]\n"
     "       holdfast guard mongodb COLLECTION [--token-field NAME]",
     "print what makes a database refuse a stale writer", "guard", guard_command, 0, NULL},
    {"stores", "[--json]", "name the kinds of store there are", "doctor", stores_command, 0, NULL},
    {"doctor", "[--json] [URL]", "prove a store before it is trusted", "doctor", doctor_command, 0,
     NULL},
    {"bench", "[--json] [URL]", "measure a store against flock(2)", "doctor", bench_command, 0,
     NULL},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

__attribute__((format(printf, 1, 0))) static void say_args(const char *format, va_list args,
                                                           const char *end)
{
    char line[1024];
    vsnprintf(line, sizeof line, format, args);
    char shown[1024];
    hf__show_text(line, shown, sizeof shown);
    live_erase();
    char whole[1152];
    int n = snprintf(whole, sizeof whole, "holdfast: %s%s\n", shown, end);
    refuse_reason(shown);
    output_add(whole, (size_t)n, NULL, NULL);
}

void say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say_args(format, args, "");
    va_end(args);
}

int bad_usage(const char *format, ...)
{
    char end[64];
    va_list args;
    va_start(args, format);
    snprintf(end, sizeof end, " (see: holdfast %s%s--help)", command_name,
             *command_name ? " " : "");
    say_args(format, args, end);
    va_end(args);
    return EXIT_USAGE;
}

void advise(int code)
{
    if (store_told) say("%s; %s", hf_code_state(code), hf_code_action(code));
}

int failed(const hf_error *err)
{
    say("%s%s", err->text, unreached_store(err));
    advise(err->code);
    return hf_code_exit_status(err->code);
}

int not_changed(const hf_error *err)
{
    if (err->code == HF_LOST) return failed(err); /* it names the command and the key already */
    int sure = err->code != HF_UNKNOWN && command_undone;
    say("%s: %s%s%s%s", command_about, err->text, unreached_store(err), sure ? "; " : "",
        sure ? command_undone : "");
    advise(err->code);
    return hf_code_exit_status(err->code);
}

int output_failed(int error, const char *state)
{
    if (error == EPIPE && !state) end_by_broken_pipe();
    say("writing to standard output: %s%s%s", strerror(error), state ? "; " : "",
        state ? state : "");
    return EXIT_INTERNAL;
}

int finish_output_of(const char *state)
{
    if (!fflush(stdout) && !ferror(stdout) && !fclose(stdout)) return 0;
    return output_failed(errno, state);
}

int finish_output(void) { return finish_output_of(NULL); }

int write_out(const char *text, size_t n)
{
    struct pollfd out = {STDOUT_FILENO, POLLOUT, 0};
    while (n) {
        ssize_t done = write(STDOUT_FILENO, text, n);
        if (done < 0 && errno == EAGAIN) poll(&out, 1, -1);
        if (done < 0 && errno != EAGAIN && errno != EINTR) return errno;
        if (done <= 0) continue;
        text += done;
        n -= (size_t)done;
    }
    return 0;
}

static void list_commands(FILE *to)
{
    fprintf(to, "usage: holdfast [-S URL] COMMAND [OPTION...] [ARG...]\n\n");
    for (int i = 0; i < COMMANDS; i++)
        fprintf(to, "  %-9s %s\n", commands[i].name, commands[i].about);
    fprintf(to, "\n"
                "  -S URL     the store: file:/path, redis://host, ... or @FILE that names it;\n"
                "             default: $HOLDFAST_STORE, else the first line of\n"
                "             /etc/holdfast/store, or else file: in your state directory\n"
                "  TIME       500ms, 10s, 5m, 1.5h, 7d; a bare number is seconds\n\n"
                "holdfast COMMAND --help says more; so does man holdfast.\n");
}

static const struct command *find(const char *name)
{
    for (int i = 0; i < COMMANDS; i++)
        if (!strcmp(commands[i].name, name)) return &commands[i];
    return NULL;
}

enum { WORD_CAP = 16 };

/* Returns how many letters have to be added, left out, changed or swapped with their neighbour to
   make one word of the other. Both are shorter than WORD_CAP. */
static size_t distance(const char *a, const char *b)
{
    size_t row[WORD_CAP + 1][WORD_CAP + 1], n = strlen(a), m = strlen(b);
    for (size_t i = 0; i <= n; i++) row[i][0] = i;
    for (size_t j = 0; j <= m; j++) row[0][j] = j;
    for (size_t i = 1; i <= n; i++)
        for (size_t j = 1; j <= m; j++) {
            size_t least = row[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (row[i - 1][j] + 1 < least) least = row[i - 1][j] + 1;
            if (row[i][j - 1] + 1 < least) least = row[i][j - 1] + 1;
            int swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && row[i - 2][j - 2] + 1 < least) least = row[i - 2][j - 2] + 1;
            row[i][j] = least;
        }
    return row[n][m];
}

/* Returns the subcommand that is most like a mistyped word, of whose letters up to a third may be
   wrong; NULL: none. */
static const struct command *command_like(const char *word)
{
    const struct command *found = NULL;
    size_t best = WORD_CAP, len = strlen(word);
    char small[WORD_CAP];
    for (size_t i = 0; i <= len && len < WORD_CAP; i++) small[i] = (char)tolower((uint8_t)word[i]);
    for (int i = 0; i < COMMANDS && len < WORD_CAP; i++) {
        size_t n = distance(small, commands[i].name);
        if (n * 3 > strlen(commands[i].name) || n >= best) continue;
        best = n;
        found = &commands[i];
    }
    return found;
}

/* Takes the URL of a -S before the subcommand. Refuses the name of a subcommand: in `-S $URL run`
   with an empty variable "run" would be taken for the URL. */
static int take_url_before_command(char *arg)
{
    if (find(arg))
        return bad_usage("-S '%s': this is a command and no URL; was an empty variable meant to "
                         "name the store?",
                         arg);
    return take_url(arg);
}

static int asks_help(const char *word) { return !strcmp(word, "--help") || !strcmp(word, "-h"); }

static int asks_version(const char *word)
{
    return !strcmp(word, "--version") || !strcmp(word, "-V");
}

/* Reads the options before the subcommand. *ret_at: the subcommand's index. Returns 0; -1: help was
   printed; or the exit status. */
static int leading_options(int argc, char **argv, int *ret_at)
{
    int i = 1, status = 0;
    for (; i < argc && argv[i][0] == '-' && !status; i++) {
        char *a = argv[i];
        if (asks_help(a) || asks_version(a)) {
            answer_begin();
            if (asks_help(a))
                list_commands(stdout);
            else
                printf("holdfast %s\n", hf_version());
            answer_end();
            return -1;
        }
        if (!strcmp(a, "-S") || !strcmp(a, "--store")) {
            if (i + 1 >= argc) return bad_usage("%s needs a URL", a);
            status = take_url_before_command(argv[++i]);
        } else if (!strncmp(a, "-S", 2)) {
            status = take_url(a + 2);
        } else if (!strncmp(a, "--store=", 8)) {
            status = take_url(a + 8);
        } else {
            return bad_usage("unknown option '%s' before the command", a);
        }
    }
    *ret_at = i;
    return status;
}

/* Occupies the standard descriptors that the caller has closed (hf_low_hold), for as long as this
   process lives; otherwise the store's file would get such a number. Reads and writes on them fail
   as on a closed one, and the command doesn't inherit them. Returns 0 or the exit status. */
static int keep_standard_descriptors(void)
{
    hf_low_hold();
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0) {
            say("descriptor %d is closed, and nothing can be opened in its place: %s", fd,
                strerror(errno));
            return EXIT_INTERNAL;
        }
    return 0;
}

/* Returns 1 if the subcommand is meant to be `acquire`, even if the arguments are wrong. In `-S
   $URL acquire KEY` with an empty variable "acquire" is the value of -S. */
static int wants_grants(int argc, char **argv)
{
    int at = 1, asks = 0;
    for (; at < argc && argv[at][0] == '-'; at++) {
        asks |= asks_help(argv[at]) || asks_version(argv[at]);
        if (at + 1 >= argc || (strcmp(argv[at], "-S") && strcmp(argv[at], "--store"))) continue;
        if (!strcmp(argv[++at], "acquire")) return 1;
    }
    if (at >= argc) return !asks; /* that word may come from an empty variable, too */
    const struct command *command = find(argv[at]);
    if (!command) command = command_like(argv[at]);
    if (command && command->run == acquire_command) return 1;
    for (; !command && at < argc; at++)
        if (strcasestr(argv[at], "acquire")) return 1;
    return 0;
}

static int unknown_command(const char *word)
{
    const struct command *like = command_like(word);
    return refused(like ? bad_usage("unknown command '%s'; did you mean %s?", word, like->name)
                        : bad_usage("unknown command '%s'", word));
}

int main(int argc, char **argv)
{
    int at = 0;
    atexit(output_end);
    let_writes_fail();
    if (wants_grants(argc, argv)) refuse_begin(argc, argv);
    int status = keep_standard_descriptors();
    if (status) return refused(status);
    status = leading_options(argc, argv, &at);
    if (status) return status < 0 ? finish_output() : refused(status);
    if (at >= argc) {
        list_commands(stderr);
        return refused(EXIT_USAGE);
    }
    if (!strcmp(argv[at], "help")) {
        const char *what = at + 1 < argc ? argv[at + 1] : "help";
        const struct command *about = find(what);
        if (!about && strcmp(what, "help")) return unknown_command(what);
        if (at + 2 < argc) return refused(bad_usage("help: one command at a time"));
        refuse_end();
        char *help[] = {argv[at], (char[]){"--help"}, NULL};
        if (about) return about->run(about, 2, help);
        list_commands(stdout);
        return finish_output();
    }
    const struct command *command = find(argv[at]);
    if (!command) return unknown_command(argv[at]);
    command_name = command->name;
    command_undone = command->undone;
    snprintf(command_about, sizeof command_about, "%s", command->name);
    return command->run(command, argc - at, argv + at);
}
