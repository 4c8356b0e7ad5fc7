/*
 * answered.h - for a driver before a server that answers anything (answers.h): the driver, and what
 * it says.
 */
#ifndef HF_ANSWERED_H
#define HF_ANSWERED_H

#include "answers.h"
#include "said.h"
#include "test.h"

extern const hf_driver *driver;

/* Starts the server and finds the driver. Returns 0, or 1 after it has printed why not. */
int answered_begin(const char *name);
/* Sets one answer to every request; printf fills in its parts. */
void is(int status, const char *form, ...) __attribute__((format(printf, 2, 3)));
/* The text with the server's port for the first PORT in it; good until the next call. */
const char *ported(const char *form);
/* One answer to a read and to a write, and what the driver should return for either. */
struct meaning {
    int status;
    const char *body;
    int read, written; /* codes */
    const char *text;  /* a part of the message of each error */
};
/* Checks each of them. The write is of `row`; NULL: a deletion. */
void answers_mean(hf_store *st, const struct meaning *all, size_t n, const hf_row *row);
/* Opens the driver at the URL, of which PORT is filled in. */
int opens(const char *form, hf_store **ret);

#endif
