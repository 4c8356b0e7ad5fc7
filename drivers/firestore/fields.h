/*
 * fields.h - firestore: a row as the fields of a document; times as Firestore writes them.
 */
#ifndef HF_FIRESTORE_FIELDS_H
#define HF_FIRESTORE_FIELDS_H

#include "kit/columns.h"

/* Returns the row as `fields` of a document. NULL: *ret_rc is HF_NOMEM or HF_INVALID, *ret_why the
   reason. */
json_t *hf__fs_fields(const char *key, const hf_row *row, int *ret_rc, const char **ret_why);
/* Reads a row from `fields`. `by` names the verb and the key for the error. `row` is initialized.
   Returns 0, HF_NOMEM or HF_CORRUPT. */
int hf__fs_row(const json_t *fields, const struct hf__row_reader *by, hf_row *row, hf_error *err);
/* Returns the key that the document names; NULL: the document is no lock. */
const char *hf__fs_key_of(const json_t *fields);
/* Returns the names of all fields, for an update mask. NULL: out of memory. */
json_t *hf__fs_field_names(void);

enum { HF_FS_TIME_CAP = 40 };
/* Reads a time such as "2026-01-31T12:00:00.123456Z", in µs since 1970. Returns -1 if it isn't
   one. */
int64_t hf__fs_time(const json_t *text);
void hf__fs_time_text(int64_t us, char ret[HF_FS_TIME_CAP]);

#endif
