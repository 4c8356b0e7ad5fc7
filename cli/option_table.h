/*
 * option_table.h - every option of the command, once: what it is called, takes and does.
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

/* Writes the options of a command that takes these groups (enum takes), as getopt_long expects
   them. `stop`: the first operand ends them. */
void option_lists(unsigned takes, int stop, struct option longs[OPTIONS_CAP], char *shorts,
                  size_t cap);
/* Prints them, one a line. */
void print_options(unsigned takes);
/* Returns the option, such as "--lease", whose beginning is most like the word; NULL: none is. */
const char *option_like(const char *word, unsigned takes);

#endif
