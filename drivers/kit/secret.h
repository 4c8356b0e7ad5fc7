/*
 * secret.h - a credential that is the first line of a file. The file is read again at each connect,
 * so that a new password is used from then on. Compiled into each module that uses it.
 *
 * Thread safety: hf__secret_get by any thread; not beside hf__secret_open or hf__secret_forget.
 * Nothing is allocated.
 */
#ifndef HF_KIT_SECRET_H
#define HF_KIT_SECRET_H

#include "endpoint.h"

enum { HF_SECRET_PATH = 1024, HF_SECRET_CAP = 256 };

struct hf__secret {
    char path[HF_SECRET_PATH]; /* "": there is none */
    char kept[HF_SECRET_CAP];  /* the secret of a file that can be read only once: a pipe,
                                  /dev/fd/63 */
};

/*
 * The rule for every file of a credential: a password, a token, a key, a certificate. If the file
 * can't be read now, but may be readable later, the code is HF_UNAVAILABLE (HF_NOMEM without
 * memory): the file is being replaced, or there is no descriptor left. If the path can't lead to
 * such a file, the code is HF_INVALID: a directory, a named pipe (opening it would wait for a
 * writer; /dev/fd/N may be a pipe), a path with a loop.
 */
int hf__credential_code(int sys); /* returns the code for an errno of open or read */
/* Opens the file and closes it. Returns 0, or the code and the reason, which begins with `what`. */
int hf__credential_check(const char *what, const char *path, char why[HF_KIT_WHY]);
/* Checks all files of a list of {what, path}, which ends with a NULL. A path that is empty or NULL
   is left out. A library that opened the files itself would wait for the writer of a named pipe.
   Returns as hf__credential_check; HF_UNAVAILABLE instead of HF_INVALID if the store was open once
   (`opened`). */
int hf__credentials_check(const char *const (*of)[2], int opened, char why[HF_KIT_WHY]);

/*
 * Returns 1 if libcurl must not be started. libcurl appends the keys of its connections to the file
 * that $SSLKEYLOGFILE names. In a set-user-ID program the caller could choose any file.
 */
int hf__keys_would_be_logged(void);

/* Reads the file for the first time, to check that it can be read. Returns 0; HF_INVALID (the file
   is empty, or its line is too long); or what the rule above says. The reason quotes nothing of the
   file. */
int hf__secret_open(struct hf__secret *s, const char *path, char why[HF_KIT_WHY]);
/* Reads the secret; any thread may call it. Returns 0 and the line without its end; else
   HF_UNAVAILABLE and the reason: while a file is being replaced it may be missing or empty. */
int hf__secret_get(const struct hf__secret *s, char to[HF_SECRET_CAP], char why[HF_KIT_WHY]);
/* Copies the password that is to be used now: that of the file, if there is one; else `given`. As
   hf__secret_get. */
int hf__password_get(const struct hf__secret *s, const char *given, char to[HF_SECRET_CAP],
                     char why[HF_KIT_WHY]);
/* Wipes the secret from memory. */
void hf__secret_forget(struct hf__secret *s);

#endif
