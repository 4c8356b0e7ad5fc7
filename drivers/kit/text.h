/*
 * text.h - small texts that drivers share: request ids, UTF-8, keys in few characters, SQL names,
 * the options of a URL. Compiled into each module that uses it.
 *
 * Thread safety: any thread. Nothing is allocated.
 */
#ifndef HF_KIT_TEXT_H
#define HF_KIT_TEXT_H

#include "holdfast_driver.h"

/* Writes a request id as 32 hex digits and a NUL. */
void hf__put_id(char to[33], const uint8_t id[16]);
/* Returns 1 and the id if the text is 32 hex digits in small letters; else 0. */
int hf__read_id(const char *text, size_t len, uint8_t ret[16]);
/* Returns 1 if the text is UTF-8 (jansson accepts it); else 0. */
int hf__is_utf8(const char *text, size_t len);

/* A key as a text of certain characters only: every other byte is written as `mark` and two hex
   digits in capitals. hf__put_marked writes one such byte, and returns where it ends.
   hf__read_marked reads a whole text. Returns 1, with the key; 0: it is no such text, has a NUL, or
   is longer than a key may be. */
char *hf__put_marked(char *to, char mark, char byte);
int hf__read_marked(const char *from, char mark, char to[HF_KEY_CAP], uint32_t *ret_len);

/* Writes NAME as an SQL identifier between two of `quote`; `cap` of 160 is enough for every legal
   one. Returns 0, or HF_INVALID: not 1 to 63 bytes of UTF-8 without control characters. */
int hf__quote_name(const char *name, char quote, char *ret, size_t cap);
/* Writes the name of the parameter at *at in a URL's query, and goes on to the next. Returns 1; 0:
   there is none. */
int hf__next_option(const char **at, char *ret, size_t cap);
/* Returns the first parameter of the URL's query that isn't one of `known` (which ends with NULL),
   or NULL if there is none. */
const char *hf__unknown_option(const hf_url *url, const char *const *known, char *ret, size_t cap);

#endif
