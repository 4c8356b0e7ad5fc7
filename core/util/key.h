/*
 * key.h - texts that come from callers. (hf_key_make says which keys are legal.)
 */
#ifndef HF_KEY_H
#define HF_KEY_H

const char *hf__owner_wrong(const char *owner); /* Returns NULL if the text is a legal owner (or
                                                   NULL: none is named), else what is wrong with it.
                                                   */
void hf__clean_utf8(char *text);                /* what isn't UTF-8 becomes '?' */

#endif
