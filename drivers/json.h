/*
 * json.h - JSON texts read and written by jansson, also when memory is short. Compiled into each
 * module that uses it.
 */
#ifndef HF_JSON_H
#define HF_JSON_H

#include <jansson.h>

/*
 * The array or object that the text is, as json_loadb would read it with `flags` (JSON_ALLOW_NUL,
 * JSON_REJECT_DUPLICATES), to be json_decref'ed; NULL: it isn't one, or *ret_nomem is 1. What
 * comes back is whole: json_loadb leaves out characters if there is no memory for them.
 */
json_t *hf__json_read(const char *text, size_t len, size_t flags, int *ret_nomem);

/* As json_dumps with JSON_COMPACT, to be freed; NULL: out of memory. It is whole, too: json_dumps
   leaves out names that there is no memory for. */
char *hf__json_text(const json_t *json);

#endif
