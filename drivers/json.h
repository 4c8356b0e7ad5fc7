/*
 * json.h - JSON texts read and written by jansson, also when memory is short. Compiled into each
 * module that uses it.
 *
 * Thread safety: any thread, each with JSON of its own.
 */
#ifndef HF_JSON_H
#define HF_JSON_H

#include <jansson.h>

/*
 * Reads the text as json_loadb would with `flags` (JSON_ALLOW_NUL, JSON_REJECT_DUPLICATES). Returns
 * the array or object, to be json_decref'ed. NULL: the text is neither; or memory ran out, and
 * *ret_nomem is 1. The result is always whole, whereas json_loadb leaves out characters if there is
 * no memory for them.
 */
json_t *hf__json_read(const char *text, size_t len, size_t flags, int *ret_nomem);

/*
 * Reads the JSON that a file in the directory `dir` (AT_FDCWD: the current one) holds. Members of
 * one name are refused.
 *
 * Returns:
 *   0        *ret is a new array or object, to be json_decref'ed
 *   EBADMSG  the file holds something else
 *   another errno: ENOENT, if there is no such file. *ret is NULL then
 */
int hf__json_load(int dir, const char *file, json_t **ret);

/* Writes as json_dumps does with JSON_COMPACT. Returns the text, to be freed; NULL: out of memory.
   The text is always whole, whereas json_dumps leaves out names that there is no memory for. */
char *hf__json_text(const json_t *json);

#endif
