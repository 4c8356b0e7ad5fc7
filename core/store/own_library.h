/*
 * own_library.h - where this code was loaded from.
 */
#ifndef HF_OWN_LIBRARY_H
#define HF_OWN_LIBRARY_H

#include <stddef.h>

/* Returns the path of the shared library that this code is in; NULL: it is linked into the
   program. */
const char *hf__own_library(void);
/* Writes the path of the program. "" in a set-user-id program, or if it isn't known. */
void hf__own_program(char *to, size_t cap);

#endif
