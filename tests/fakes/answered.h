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

/* Begins the server, finds the driver. 0, or 1: it has said why not. */
int answered_begin(const char *name);
/* One answer, with parts that printf fills in, to all that is asked. */
void is(int status, const char *form, ...) __attribute__((format(printf, 2, 3)));
/* The text with the server's port for the first PORT in it; good until the next call. */
const char *ported(const char *form);
/* One answer to a read and to a write, and what the driver makes of either. */
struct meaning {
    int status;
    const char *body;
    int read, written; /* codes */
    const char *text;  /* in the message of each error */
};
/* Each of them has to be so. The write is of `row`; NULL: a removal. */
void answers_mean(hf_store *st, const struct meaning *all, size_t n, const hf_row *row);
/* Opens the driver at the URL, of which PORT is filled in. */
int opens(const char *form, hf_store **ret);

#endif
