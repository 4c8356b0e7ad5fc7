/*
 * resp.h - a server that speaks Redis's protocol and answers what the test wants it to, and the
 * driver redis before it.
 */
#ifndef HF_RESP_H
#define HF_RESP_H

#include "fakes/said.h"

#define ID "00112233445566778899aabbccddeeff"
/* The result of TIME within an answer. */
#define CLOCK "*2\r\n$10\r\n1769860800\r\n$2\r\n17\r\n"

/* The reply to a command, and whether the connection ends after it. */
struct resp_rule {
    const char *command, *reply; /* NULL: to any; nothing at all */
    int times;                   /* how often; 0: always */
    int closes;
};

extern const hf_driver *redis;
extern int64_t clock_us;

/* Starts the server and finds the driver, once in a program. Returns 0 if the driver is missing,
   which is printed. */
int resp_begin(void);
/* From now on a command gets the reply of the first rule that fits and isn't used up; if none fits,
   a server's usual reply. The list is copied, its texts aren't. */
void resp_are(const struct resp_rule *list, size_t n);
/* Returns the last argument of the last AUTH; to be freed. */
char *resp_password(void);
int resp_port(void);
/* How many scripts came whole since then. */
int resp_whole(void);
/* HOST in the URL stands for where the server is. The second one has no rules, and must open. */
int resp_opens(const char *form, hf_store **ret);
hf_store *resp_opened(const char *form);
/* Returns the reply to a get: a row in which one field has another value; "": no row. NULL: the
   field is missing. Good for the next three calls. */
const char *resp_row_but(int done, const char *name, const char *value);

#endif
