/*
 * option_table.c - see option_table.h.
 */
#include "option_table.h"

#include "cli.h"

#include <string.h>

static const struct {
    struct option option;
    unsigned takes;    /* which commands have it: one of enum takes; 0: every command */
    const char *value; /* the kind of its value, for help; NULL: none */
    const char *help;  /* NULL: another spelling of the option above */
} table[] = {
    {{"nonblock", no_argument, NULL, 'n'}, TAKES_WAIT, NULL, "don't wait for the key"},
    {{"nb", no_argument, NULL, 'n'}, TAKES_WAIT, NULL, NULL},
    {{"nonblocking", no_argument, NULL, 'n'}, TAKES_WAIT, NULL, NULL},
    {{"wait", required_argument, NULL, 'w'}, TAKES_WAIT, "TIME", "wait for so long at most"},
    {{"timeout", required_argument, NULL, 'w'}, TAKES_WAIT, NULL, NULL},
    {{"conflict-exit-code", required_argument, NULL, 'E'},
     TAKES_WAIT,
     "CODE",
     "exit with this if the key was not obtained (75)"},
    {{"shared", no_argument, NULL, 's'}, TAKES_MODE, NULL, "share the key with others that do so"},
    {{"exclusive", no_argument, NULL, 'x'}, TAKES_MODE, NULL, "hold the key alone (the default)"},
    {{"exclusive", no_argument, NULL, 'e'}, TAKES_MODE, NULL, NULL},
    {{"limit", required_argument, NULL, O_LIMIT}, TAKES_MODE, "N", "let so many hold the key"},
    {{"lease", required_argument, NULL, O_LEASE},
     TAKES_LEASE,
     "TIME",
     "the hold ends so long after its last renewal"},
    {{"max-hold", required_argument, NULL, O_MAX_HOLD},
     TAKES_MAX_HOLD,
     "TIME",
     "stop the command if it holds for longer"},
    {{"at-least", required_argument, NULL, O_AT_LEAST},
     TAKES_AT_LEAST,
     "TIME",
     "others get the key so long after the grant at the earliest"},
    {{"on-lost", required_argument, NULL, O_ON_LOST},
     TAKES_RUN,
     "HOW",
     "what the command gets if the lock is lost: term, kill or ignore"},
    {{"close", no_argument, NULL, 'o'},
     TAKES_RUN,
     NULL,
     "processes that the command leaves don't hold the key"},
    {{"no-fork", no_argument, NULL, 'F'},
     TAKES_NO_FORK,
     NULL,
     "become the command instead of waiting for it (file: only)"},
    {{"keep", required_argument, NULL, O_KEEP},
     TAKES_ONCE,
     "TIME",
     "remember the event for so long, or forever (7d)"},
    {{"at-most-once", no_argument, NULL, O_AT_MOST_ONCE},
     TAKES_ONCE,
     NULL,
     "mark the event before the command runs"},
    {{"owner", required_argument, NULL, O_OWNER}, TAKES_WAIT, "NAME", "whose hold it is"},
    {{"token", required_argument, NULL, O_TOKEN}, TAKES_TOKEN, "N", "the grant that is meant"},
    {{"idle", required_argument, NULL, O_IDLE}, TAKES_IDLE, "TIME", "unused for so long"},
    {{"all", no_argument, NULL, 'a'}, TAKES_ALL, NULL, "free keys, too"},
    {{"json", no_argument, NULL, O_JSON}, TAKES_JSON, NULL, "print JSON"},
    {{"quiet", no_argument, NULL, 'q'}, TAKES_WAIT, NULL, "say nothing if it was not obtained"},
    {{"verbose", no_argument, NULL, 'v'},
     TAKES_WAIT | TAKES_LOOK,
     NULL,
     "say which store it is, and what happens"},
    {{"store", required_argument, NULL, 'S'}, 0, "URL", "the store, or @FILE that names it"},
    {{"version", no_argument, NULL, 'V'}, 0, NULL, "print the version"},
    {{"help", no_argument, NULL, 'h'}, 0, NULL, "print this"},
};
enum { OPTIONS = sizeof table / sizeof *table };
_Static_assert(sizeof table / sizeof *table < (size_t)OPTIONS_CAP,
               "room for all of them, and the end");

static int is_taken(int i, unsigned takes) { return !table[i].takes || table[i].takes & takes; }

void option_lists(unsigned takes, int stop, struct option longs[OPTIONS_CAP], char *shorts,
                  size_t cap)
{
    size_t at = (size_t)snprintf(shorts, cap, "%s:", stop ? "+" : "");
    int n = 0;
    for (int i = 0; i < OPTIONS; i++) {
        const struct option *o = &table[i].option;
        if (!is_taken(i, takes)) continue;
        longs[n++] = *o;
        if (o->val < 256 && !strchr(shorts + stop + 1, o->val))
            at += (size_t)snprintf(shorts + at, cap - at, "%c%s", o->val, o->has_arg ? ":" : "");
    }
    longs[n] = (struct option){NULL, 0, NULL, 0};
}

void print_options(unsigned takes)
{
    for (int i = 0; i < OPTIONS; i++) {
        char name[64], letter[8] = "    ";
        if (!is_taken(i, takes) || !table[i].help) continue;
        const struct option *o = &table[i].option;
        if (o->val < 256) snprintf(letter, sizeof letter, "-%c, ", o->val);
        snprintf(name, sizeof name, "--%s%s%s", o->name, table[i].value ? " " : "",
                 table[i].value ? table[i].value : "");
        printf("  %s%-26s %s\n", letter, name, table[i].help);
    }
    printf("\n  TIME: 500ms, 10s, 5m, 1.5h, 7d; a bare number is seconds\n");
}

const char *option_like(const char *word, unsigned takes)
{
    static char text[32];
    size_t best = 1; /* words with only one letter in common aren't alike */
    int found = -1;
    word += strspn(word, "-");
    for (int i = 0; i < OPTIONS; i++) {
        size_t n = 0;
        while (word[n] && word[n] == table[i].option.name[n]) n++;
        if (n <= best || !is_taken(i, takes)) continue;
        best = n;
        found = i;
    }
    if (found < 0) return NULL;
    snprintf(text, sizeof text, "--%s", table[found].option.name);
    return text;
}
