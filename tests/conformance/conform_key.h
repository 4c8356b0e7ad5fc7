/*
 * conform_key.h - the keys of the conformance suite, as its checks call them.
 */
#ifndef HF_CONFORM_KEY_H
#define HF_CONFORM_KEY_H

#include <string.h>

/* Returns the name that the check uses; a group of keys has one name. */
static inline const char *name_of(const char *key)
{
    const char *name = key + strcspn(key, "/");
    if (*name) name++;
    name += strcspn(name, "/");
    return *name ? name + 1 : key;
}

#endif
