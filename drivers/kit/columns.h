/*
 * columns.h - a row as named fields, format 2: columns of a table, fields of a hash or a document.
 * doc/row.md is the specification. Compiled into each module that uses it.
 *
 * A plain exclusive hold has eleven fields: its key, and those of HF_FIELDS that are numbers or
 * texts. `more`, `queue` and `done` are JSON, and are empty unless they are needed.
 *
 * To write a row, a store that keeps JSON as text (SQL, Redis) asks for HF_JSON_TEXT:
 *
 *     struct hf__fields f;
 *     int rc = hf__put_fields(row, HF_JSON_TEXT, &f, &why);
 *     for (int i = 0; !rc && i < HF_FIELDS; i++)
 *         if (hf__field[i].kind == HF_NUMBER) write(hf__field[i].name, f.n[i]);
 *         else write(hf__field[i].name, f.text[i], f.len[i]);          "" if it is empty
 *     hf__free_fields(&f);
 *
 * A store of documents asks for HF_JSON_TREE. f.json[i] is then the value of `more` (an object),
 * `queue` (an array) or `done` (an object). NULL: the field isn't written, and if an earlier write
 * has left one, it must be removed. The JSON consists of objects, arrays, texts and whole numbers
 * of 64 bits (keep_until_us may be INT64_MAX). So one recursive function can turn all of it into
 * the store's own values, and another one can turn it back.
 *
 * To read a row, begin with `struct hf__fields f = HF_NO_FIELDS`. For each field that is there,
 * call hf__got_number, hf__got_text or hf__got_json; hf__got_other if its type is wrong. Then
 *
 *     rc = hf__read_fields(&f, HF_JSON_TREE, row, &why);
 *     if (rc) rc = hf__fields_refused(&where, &f, rc, why, err);
 *     hf__free_fields(&f);
 *
 * hf__read_fields accepts that `more`, `queue` or `done` is missing, refuses a row of another
 * format, and checks the whole row. hf__fields_refused makes the message of the error, the same on
 * all stores. hf__format_refused is for a store whose table, as `open` finds, has format 1. Texts
 * are borrowed: from the row until it changes, or from the store's reply.
 *
 * Thread safety: any thread, each with rows and fields of its own. Times are in microseconds, by
 * the store's clock; lease_ms is in milliseconds.
 */
#ifndef HF_KIT_COLUMNS_H
#define HF_KIT_COLUMNS_H

#include "holdfast_driver.h"

#include <jansson.h>

enum hf__field_kind { HF_NUMBER, HF_TEXT, HF_JSON };

/* The fields behind `key`, in the order in which they are written: X(name of the enum, name, kind).
 */
#define HF_FIELDS_OF_A_ROW(X)             \
    X(FORMAT, "format", HF_NUMBER)        \
    X(REV, "rev", HF_NUMBER)              \
    X(TOKEN, "token", HF_NUMBER)          \
    X(OWNER, "owner", HF_TEXT)            \
    X(EXPIRES, "expires_us", HF_NUMBER)   \
    X(ACQUIRED, "acquired_us", HF_NUMBER) \
    X(LEASE, "lease_ms", HF_NUMBER)       \
    X(REQUEST, "request", HF_TEXT)        \
    X(NOTE, "note", HF_TEXT)              \
    X(MORE, "more", HF_JSON)              \
    X(QUEUE, "queue", HF_JSON)            \
    X(DONE, "done", HF_JSON)

enum hf__field_number {
#define HF_FIELD(NAME, name, kind) HF_FIELD_##NAME,
    HF_FIELDS_OF_A_ROW(HF_FIELD)
#undef HF_FIELD
        HF_FIELDS
};

extern const struct hf__field_type {
    const char *name;
    enum hf__field_kind kind;
} hf__field[HF_FIELDS];

struct hf__fields {
    int64_t n[HF_FIELDS];        /* the values of numbers */
    const char *text[HF_FIELDS]; /* texts, and JSON as text; borrowed */
    size_t len[HF_FIELDS];       /* the lengths of `text` */
    json_t *json[HF_FIELDS];     /* JSON as trees; NULL: empty */
    unsigned got, wrong;         /* of a row that is read, a bit for each field. got: it was found;
                                    wrong: its value has another type */
    char request[33];            /* of a row that is written: text[HF_FIELD_REQUEST] points to it */
    char *made[HF_FIELDS];       /* the texts that hf__put_fields has allocated */
};
#define HF_NO_FIELDS \
    {                \
        .got = 0     \
    }

enum hf__json_as { HF_JSON_TEXT, HF_JSON_TREE };

/*
 * Turns a row into fields. The caller frees them by hf__free_fields, even if this fails.
 *
 * Returns:
 *   0
 *   HF_NOMEM    *ret_why says so
 *   HF_INVALID  the row can't be written: a text isn't UTF-8, or an owner is empty or reserved
 */
int hf__put_fields(const hf_row *row, enum hf__json_as as, struct hf__fields *ret,
                   const char **ret_why);
/* Frees what the fields own: texts that were made, and trees. *f may be used for another row. */
void hf__free_fields(struct hf__fields *f);

/* These note a field that a store has read. JSON as text is passed to hf__got_text. A tree that is
   passed to hf__got_json belongs to the fields from then on (NULL: there was no memory for it). */
static inline void hf__got_number(struct hf__fields *f, int i, int64_t n)
{
    f->n[i] = n;
    f->got |= 1u << i;
}
static inline void hf__got_text(struct hf__fields *f, int i, const char *text, size_t len)
{
    f->text[i] = text;
    f->len[i] = len;
    f->got |= 1u << i;
}
static inline void hf__got_json(struct hf__fields *f, int i, json_t *json)
{
    if (f->json[i]) json_decref(f->json[i]);
    f->json[i] = json;
    f->got |= 1u << i;
}
static inline void hf__got_other(struct hf__fields *f, int i) { f->wrong |= 1u << i; }
/* Returns the number of the field of that name, or -1. */
int hf__field_of(const char *name);

/*
 * Turns fields that were read into a row. `row` is initialized; its old content goes.
 *
 * Returns:
 *   0
 *   HF_NOMEM
 *   HF_CORRUPT  *ret_why says what is wrong (constant text); the row is empty
 */
int hf__read_fields(struct hf__fields *f, enum hf__json_as as, hf_row *row, const char **ret_why);

/* Returns the result of a write that the server has carried out, if reading the row in its reply
   has returned `rc`: HF_UNKNOWN instead of HF_NOMEM, which would mean that nothing was written. */
static inline int hf__done_but(int rc, hf_error *err)
{
    if (rc != HF_NOMEM) return rc;
    if (err) err->code = HF_UNKNOWN;
    return HF_UNKNOWN;
}

/* For messages about a row: the driver's name, the verb, the key, and the command with which a
   person empties the store, such as "DROP TABLE x". */
struct hf__row_reader {
    const char *store, *what, *key, *empty;
};
/* Fills in the error for a row that hf__read_fields has refused with `rc`. Returns rc. */
int hf__fields_refused(const struct hf__row_reader *where, const struct hf__fields *f, int rc,
                       const char *why, hf_error *err);
/* Fills in the error for a store whose rows have another format. Returns HF_CORRUPT. */
int hf__format_refused(const struct hf__row_reader *where, int64_t format, hf_error *err);

#endif
