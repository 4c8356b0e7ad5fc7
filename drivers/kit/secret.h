/*
 * secret.h - a credential that stands in a file: the first line of it. The file is read again at
 * each connect, so a password that is rotated is used from then on. Compiled into each module that
 * uses it.
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
    char kept[HF_SECRET_CAP];  /* of what can be read only once: a pipe, /dev/fd/63 */
};

/* Reads the file for the first time, to know whether it can be read. Returns 0, or HF_INVALID (no
   such file, nothing in it, a line that is too long) and the reason, which quotes nothing of it. */
int hf__secret_open(struct hf__secret *s, const char *path, char why[HF_KIT_WHY]);
/* Any thread. Returns 0 and the line without its end; else HF_UNAVAILABLE and the reason: while a
   file is being replaced it may be missing or empty, and later it may be there. */
int hf__secret_get(const struct hf__secret *s, char to[HF_SECRET_CAP], char why[HF_KIT_WHY]);
/* Wipes what is known of the secret. */
void hf__secret_forget(struct hf__secret *s);

#endif
