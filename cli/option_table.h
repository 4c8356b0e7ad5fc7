/*
 * option_table.h - the table of all options: names, values, help, and which commands have them.
 */
#ifndef HF_OPTION_TABLE_H
#define HF_OPTION_TABLE_H

#include <getopt.h>
#include <stddef.h>

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

enum { OPTIONS_CAP = 40 };

/* Fills the lists for getopt_long with the options of the groups `takes` (enum takes). `stop`: the
   first operand ends the options. */
void option_lists(unsigned takes, int stop, struct option longs[OPTIONS_CAP], char *shorts,
                  size_t cap);
/* Prints the help of these options, a line for each. */
void print_options(unsigned takes);
/* Returns the option, such as "--lease", that has most first letters in common with the word; NULL:
   none has two. */
const char *option_like(const char *word, unsigned takes);

#endif
