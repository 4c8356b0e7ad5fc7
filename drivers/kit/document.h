/*
 * document.h - a row as one JSON object, for stores of documents or files. Its members are the
 * fields of doc/row.md, without the key. Compiled into each module that uses it.
 *
 * Thread safety: any thread, each with rows and objects of its own.
 */
#ifndef HF_KIT_DOCUMENT_H
#define HF_KIT_DOCUMENT_H

#include "columns.h"

/*
 * Turns a row into a new JSON object. `where` (columns.h) is for the message of an error.
 *
 * Returns:
 *   0           *ret is the caller's, to be json_decref'ed
 *   HF_NOMEM
 *   HF_INVALID  the row can't be written: a text that isn't UTF-8, or an owner that is empty or
 *               reserved
 */
int hf__row_to_document(const hf_row *row, const struct hf__row_reader *where, json_t **ret,
                        hf_error *err);

/*
 * Turns the object that hf__row_to_document has made back into a row, and checks all of it.
 * `document` stays the caller's. `row` is initialized; its old content goes.
 *
 * Returns:
 *   0           *row is the row; empty (rev 0), if `document` is NULL
 *   HF_NOMEM
 *   HF_CORRUPT  it is no row, or one of another format; `err` says what is wrong, *row is empty
 */
int hf__row_from_document(const json_t *document, const struct hf__row_reader *where, hf_row *row,
                          hf_error *err);

#endif
