/*
 * key.h - the check of an owner's name. (hf_key_make checks keys.)
 */
#ifndef HF_KEY_H
#define HF_KEY_H

/* Returns what is wrong with the name of an owner. NULL: it is legal, or `owner` is NULL. */
const char *hf__owner_wrong(const char *owner);

#endif
