/*
 * columns.h - the row as named columns (fields) in format 1, for the stores that still write it;
 * kit/columns.h writes format 2.
 *
 * The first holder has columns of its own, which people, triggers and rules can read; further
 * holders and the queue are JSON arrays. Compiled into each module that uses it.
 */
#ifndef HF_COLUMNS_H
#define HF_COLUMNS_H

#include "holdfast_driver.h"
#include "kit/text.h"

enum { HF_FORMAT_1 = 1 };

struct json_t; /* of jansson */

/* The columns after `key`, in the order in which SQL drivers select and write them:
   X(name of the enum, name, is a text). */
#define HF_COLUMNS(X)                 \
    X(FORMAT, "format", 0)            \
    X(REV, "rev", 0)                  \
    X(TOKEN, "token", 0)              \
    X(OWNER, "owner", 1)              \
    X(EXPIRES, "expires_us", 0)       \
    X(ACQUIRED, "acquired_us", 0)     \
    X(LEASE, "lease_ms", 0)           \
    X(MODE, "mode", 0)                \
    X(LIMIT, "limit", 0)              \
    X(NOTE, "note", 1)                \
    X(SESSION, "session", 0)          \
    X(REQUEST, "request", 1)          \
    X(GRANT, "granted", 0)            \
    X(CLAIM, "claim_ms", 0)           \
    X(FLAGS, "flags", 0)              \
    X(BELL, "bell", 0)                \
    X(OTHERS, "others", 1)            \
    X(QUEUE, "queue", 1)              \
    X(DONE, "done_us", 0)             \
    X(KEEP_UNTIL, "keep_until_us", 0) \
    X(DONE_BY, "done_by", 1)          \
    X(RESULT, "result", 1)

enum hf__column {
#define HF_COLUMN(NAME, name, is_text) HF_COL_##NAME,
    HF_COLUMNS(HF_COLUMN)
#undef HF_COLUMN
        HF_COLS
};

extern const char *const hf__column_name[HF_COLS];
extern const uint8_t hf__column_is_text[HF_COLS];
int hf__column_is_list(int column); /* a JSON array of parties */

/* One row as its columns. Texts are borrowed from the row, or from the store. */
struct hf__flat {
    int64_t n[HF_COLS];
    const char *text[HF_COLS];
    size_t len[HF_COLS];
    char request[33];
    char *others, *queue; /* allocated by hf__flatten; NULL: "[]" */
};

/* 0, HF_NOMEM, or HF_INVALID (a text that isn't UTF-8: *ret_why). Free it in every case. */
int hf__flatten(const hf_row *row, struct hf__flat *ret, const char **ret_why);
void hf__flat_free(struct hf__flat *flat);
/* 0, HF_NOMEM, or HF_CORRUPT and what is wrong. `row` is initialized; its old content goes. */
int hf__unflatten(const struct hf__flat *flat, hf_row *row, const char **ret_why);

/* The same with the lists as JSON (NULL: empty), for stores that have them so: their texts aren't
   read. */
int hf__unflatten_lists(const struct hf__flat *flat, const struct json_t *others,
                        const struct json_t *queue, hf_row *row, const char **ret_why);

/* The same for stores that have lists of their own: `others` and `queue` are left alone. The row
   isn't checked yet. Nothing is allocated. */
int hf__flatten_head(const hf_row *row, struct hf__flat *ret, const char **ret_why);
int hf__unflatten_head(const struct hf__flat *flat, hf_row *row, const char **ret_why);

/* How many parties stand in that list (HF_COL_OTHERS, HF_COL_QUEUE) of the row, and the first. */
uint32_t hf__list(const hf_row *row, int col, const hf_party **ret_first);
/* They as a JSON array, to be json_decref'ed. NULL: it failed. */
struct json_t *hf__list_json(const hf_row *row, int col);
/* Why that was: HF_INVALID (a text that isn't UTF-8) or HF_NOMEM. */
int hf__lists_failed(const hf_row *row, const char **ret_why);

/* A party as it stands in the queue's JSON, to be freed, but for the digits of its since_us, which
   belong at *ret_since. NULL: out of memory, or a text that isn't UTF-8. */
char *hf__waiter_json(const hf_party *p, size_t *ret_since);
/* Does it stand at the end of the line? */
int hf__is_last(const hf_row *row, const hf_party *p);

/* The numbers of a party in a list, beside `request`, `owner` and `note`; one that is 0 is left
   out. */
enum { HF_PARTY_NUMBERS = 10 };
struct hf__party_number {
    const char *name;
    int64_t least, most;
};
extern const struct hf__party_number hf__party_number[HF_PARTY_NUMBERS];
void hf__party_numbers(const hf_party *p, int64_t ret[HF_PARTY_NUMBERS]);
void hf__party_set_numbers(hf_party *p, const int64_t n[HF_PARTY_NUMBERS]);

#endif
