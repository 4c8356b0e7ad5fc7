/*
 * key.h - texts that come from callers. (hf_key_make says which keys are legal.)
 */
#ifndef HF_KEY_H
#define HF_KEY_H

const char *hf__owner_wrong(const char *owner); /* NULL: it may be one (NULL: none is named) */
void hf__clean_utf8(char *text);                /* what isn't UTF-8 becomes '?' */

#endif
