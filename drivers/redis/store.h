/*
 * store.h - redis: what the driver's files share.
 */
#ifndef HF_REDIS_STORE_H
#define HF_REDIS_STORE_H

#include "addresses.h"
#include "kit/columns.h"
#include "kit/links.h"
#include "kit/subscriber.h"
#include "link.h"

/* HF_RD_NAME_CAP: room for the name of a row or of a channel. */
enum { HF_RD_NAME_CAP = HF_RD_PREFIX_CAP + HF_KEY_CAP + HF_RD_DB_CAP, HF_RD_ARGS = 11 + HF_FIELDS };

/*
 * The names of channels. All databases of a server share its channels, so the name ends with the
 * database's number, unless that is 0:
 *
 *     PREFIX KEY            a key          PREFIX KEY \t DB            in another database than 0
 *     PREFIX \t ADDRESS     an address     PREFIX \t ADDRESS \t DB     in another database than 0
 *
 * No two keys, addresses or databases share a channel: prefixes and keys have no control
 * characters, keys aren't empty, and an address is longer than any DB. That matters because what a
 * message says of a row is believed.
 */

struct hf_store {
    struct hf__rd_how how;
    struct hf__links links;
    struct hf__rd_link link[HF_LINKS];
    /* Used by one thread at a time (hf_notify_ops); but `payload` reads `sub` in any thread, under
       the mutex of `sub`. */
    struct hf__rd_link listener;
    struct hf__sub sub;
    int64_t retry_at_us;
    uint64_t events;
    int wake_fd;
};

/* The words of a call. */
struct hf__rd_args {
    int n;
    const char *text[HF_RD_ARGS];
    size_t len[HF_RD_ARGS];
};

/* calls.c */
extern const struct hf__link_kind hf__rd_link_kind;
/* Begins the arguments of a call with the row's name, which is written into `name`. */
void hf__rd_call_args(struct hf__rd_args *a, const hf_store *st, const hf_rowkey *key,
                      char name[HF_RD_NAME_CAP]);
void hf__rd_arg(struct hf__rd_args *a, const char *text, size_t len);
void hf__rd_arg_text(struct hf__rd_args *a, const char *text);
/* Adds a call of a script by its hash, or with its text (`whole`) if the server doesn't know it. */
void hf__rd_put_call(const hf_store *st, const struct hf__rd_link *link, enum hf__rd_script which,
                     int whole, struct hf__rd_args *a, struct hf__rd_batch *batch);
/* Runs a script; `ambiguous` is the code if no reply comes. Returns 0 with *ret, to be freed. */
int hf__rd_ask(hf_store *st, enum hf__rd_script which, struct hf__rd_args *a, int ambiguous,
               redisReply **ret, const char *what, const hf_rowkey *key, hf_error *err);
/* Fills in the error for an error reply. Returns its code. */
int hf__rd_complain(struct hf__rd_link *link, const redisReply *r, const char *what,
                    const char *key, hf_error *err);
int hf__rd_is_error(const redisReply *r, const char *word);
/* Returns 1 if the reply is {done, clock, ...}. */
int hf__rd_shaped(const redisReply *r);
/* Returns `done` of such a reply, or 1 for a clock alone. */
int hf__rd_done(const redisReply *r);
int64_t hf__rd_clock_of(const redisReply *r);

/* The greatest length of a message that names only a holder: hf__rd_word. */
enum { HF_RD_WORD_CAP = 33 + 4 * 21 };
#define HF_RD_SAID_MOST 1024 /* a message has at most so many bytes of a row; in scripts, too */

/* Returns 0 if the script's reply, and the reply to WAIT (NULL: WAIT wasn't sent), show that the
   call was carried out; else the error. `ambiguous`: the code if they don't show whether it was. */
int hf__rd_verdict(const hf_store *st, struct hf__rd_link *link, enum hf__rd_script which,
                   const redisReply *r, const redisReply *wait, int ambiguous, const char *what,
                   const char *key, hf_error *err);

/* A replace as a call: its arguments, and the memory that they point to. */
struct hf__rd_replace {
    struct hf__rd_args args;
    struct hf__fields fields;
    char name[HF_RD_NAME_CAP], room[HF_FIELDS][24], seen[24];
    char word[HF_RD_WORD_CAP], addresses[HF_ADDRESSES_CAP];
};
/* redis.c: makes the call. The caller clears it, even if this fails. */
int hf__rd_replace_make(struct hf__rd_replace *s, const hf_store *st, const hf_rowkey *key,
                        uint64_t seen, const hf_row *row, hf_error *err);
void hf__rd_replace_clear(struct hf__rd_replace *s);
/* Reads the reply to a replace. Returns 0, HF_CONFLICT or an error. */
int hf__rd_replace_end(const hf_rowkey *key, const redisReply *r, hf_row *cur,
                       int64_t *ret_clock_us, hf_error *err);

/* facts.c */
int hf__rd_inspect(hf_store *st, void (*say)(void *arg, int ok, const char *text), void *to,
                   hf_error *err);

/* replace_many.c: see kit/links.h. */
size_t hf__rd_replace_some(hf_store *st, void *link, hf_replace *item, size_t n, int64_t until_us);

/* redis.c: reads a number from a text. Returns 0 if the text isn't one. */
int hf__rd_number(const redisReply *r, int64_t *ret);
/* Reads a row from the texts of its fields; NULL: the field is missing. `by` names the driver, verb
   and key for the error (NULL: no error is filled in). */
int hf__rd_row_of(const char *const text[], const size_t len[], hf_row *row,
                  const struct hf__row_reader *by, hf_error *err);
/* Reads the row from a reply {done, clock, whether there is a row, fields}; rev 0: there is no
   row. */
int hf__rd_decode(const redisReply *r, hf_row *row, const char *what, const char *key,
                  hf_error *err);

/* list.c */
int hf__rd_scan(hf_store *st, const char *prefix,
                int (*see)(void *arg, const hf_rowkey *, hf_row *), void *arg,
                int64_t *ret_clock_us, hf_error *err);

/* notify.c */
extern const hf_notify_ops hf__rd_notify;
/* Reads the row, or its holder, from the text of a message, which a NUL follows. Returns 1; 0: the
   text has neither. */
int hf__rd_read_word(const char *said, size_t len, hf_row *row);
/* Writes the text that a write publishes, and returns its length. For a short row it is "*": the
   script then publishes the whole row, made of its last arguments. Otherwise, if the row's only
   holder was a waiter that hasn't claimed the key, it names that holder and its end. Otherwise it
   is "". */
size_t hf__rd_word(const hf_row *row, const struct hf__rd_args *a, char to[HF_RD_WORD_CAP]);

/* options.c: fills in st->how from the URL. */
int hf__rd_options(hf_store *st, const hf_url *url, hf_error *err);
/* The fields whose values a script gets: a bit for each field. */
extern const uint32_t hf__rd_fields_of_replace, hf__rd_fields_of_acquire;
/* Makes the texts of the scripts. */
int hf__rd_scripts(struct hf__rd_how *how);

#endif
