/*
 * machine_store.h - the store that the administrator of a machine names for all of its users.
 */
#ifndef HF_MACHINE_STORE_H
#define HF_MACHINE_STORE_H

#include "holdfast.h"

/* The file whose first line is the URL. */
extern const char *hf__machine_file;

/* Reads the URL. *ret is the caller's to free; NULL: there is no such file.
   Returns: 0; HF_INVALID: the file names no store, or one that can't be for all users; HF_DENIED:
   the file can't be read. A file that exists is never ignored: a program that used another store
   would not exclude the other programs. */
int hf__machine_url(char **ret, hf_error *err);

#endif
