/*
 * credentials.h - firestore: reads credentials files.
 */
#ifndef HF_FIRESTORE_CREDENTIALS_H
#define HF_FIRESTORE_CREDENTIALS_H

#include "auth.h"

/* Replaces *to by a copy of the text. Returns 0 or HF_NOMEM. */
int hf__fs_set(char **to, const char *text);
/* Reads a whole file, and ends it by a NUL. Returns NULL if it fails; errno says why. */
char *hf__fs_read_file(const char *path);
/* Reads the credentials in a file. If the file can be read more than once, its path is kept. */
int hf__fs_open_credentials(struct hf__fs_auth *a, const char *path, hf_error *err);
/* Reads the file again, because its key may have been replaced. If the file is missing or
   incomplete, it may just be being replaced: that is HF_UNAVAILABLE. The caller holds the mutex. */
int hf__fs_read_credentials_again(struct hf__fs_auth *a, hf_error *err);
/* Wipes and frees what was read from the file. */
void hf__fs_forget_credentials(struct hf__fs_auth *a);

#endif
