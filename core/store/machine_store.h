/*
 * machine_store.h - finds the store of a program that names none: that of $HOLDFAST_STORE, else the
 * one that the administrator of the machine names for all of its users, else the user's own.
 */
#ifndef HF_MACHINE_STORE_H
#define HF_MACHINE_STORE_H

#include "holdfast.h"

/* The file whose first line is the URL. */
extern const char *hf__machine_file;

/* Reads the URL. *ret is the caller's to free; NULL: there is no such file.
   Returns: 0; HF_INVALID: the file names no store, or one that can't be for all users, or isn't a
   file (a link that leads nowhere, a directory, a pipe); HF_DENIED, HF_UNAVAILABLE, HF_NOMEM: the
   file can't be read. A file that exists is never ignored: a program that used another store would
   not exclude the other programs. */
int hf__machine_url(char **ret, hf_error *err);

/* Finds the URL for a program that names no store. *ret is the caller's to free. *ret_from names
   where the URL is from; NULL: nothing names one, and it is "file:".
   Returns: 0; HF_INVALID: $HOLDFAST_STORE is set and empty, or its path is relative, so that
   programs that should exclude each other would use different stores; HF_NOMEM; or the result of
   hf__machine_url. */
int hf__default_url(char **ret, const char **ret_from, hf_error *err);

#endif
