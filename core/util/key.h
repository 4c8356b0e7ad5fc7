/*
 * key.h - checks of texts that come from callers. (hf_key_make checks keys.)
 */
#ifndef HF_KEY_H
#define HF_KEY_H

/* Returns what is wrong with the name of an owner. NULL: it is legal, or `owner` is NULL. */
const char *hf__owner_wrong(const char *owner);
/* Replaces each byte that isn't part of valid UTF-8 by '?'. */
void hf__clean_utf8(char *text);

#endif
