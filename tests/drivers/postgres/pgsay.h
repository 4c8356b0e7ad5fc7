/*
 * pgsay.h - a server that speaks PostgreSQL's protocol and answers what the test wants it to, and
 * the driver postgres before it.
 */
#ifndef HF_PGSAY_H
#define HF_PGSAY_H

#include "fakes/said.h"

/*
 * What is said to a statement that has this part; "connect": to a new connection; "prepare":
 * to a statement that gets a name.
 *   "a|b|~"     a row of these columns, ~ a null; further rows behind a newline; "": none
 *   "!CODE why" an error with this SQLSTATE; "!why" one without
 *   "?"         nothing, for ever
 *   "."         nothing, and the connection ends
 *   "@WORD@..." a notification of WORD, and then that
 */
struct pg_rule {
    const char *part, *reply;
    int times; /* how often; 0: always */
};

extern const hf_driver *pg;
extern int64_t clock_us;

/* Starts the server and finds the driver, once in a program. Returns 0 if the driver is missing,
   which is printed. */
int pg_begin(void);
/* From now on a statement gets the reply of the first rule that fits and isn't used up; if none
   fits, a server's usual reply. The list is copied, its texts aren't. */
void pg_are(const struct pg_rule *list, size_t n);
/* How many statements with this part came since then. */
int pg_asked(const char *part);
/* From now on nothing is read that comes. */
void pg_stops(void);
/* Notifies all connections of this. */
void pg_notifies(const char *word);
/* Ends all connections of now. */
void pg_cuts(void);
/* HOST in the URL stands for where the server is. The second one has no rules, and must open. */
int pg_opens(const char *form, int64_t io_ms, hf_store **ret);
hf_store *pg_opened(const char *form);
/* Returns a row as the reply to a statement has it: `before` stands before the columns, of which
   one has another value. Good for the next three calls. */
const char *pg_row_but(const char *before, const char *name, const char *value);

#endif
