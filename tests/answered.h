/*
 * answered.h - for a driver before a server that answers anything (answers.h): the driver, and what
 * it says.
 */
#ifndef HF_ANSWERED_H
#define HF_ANSWERED_H

#include "answers.h"
#include "drivers.h"
#include "test.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

extern const hf_driver *driver;
extern hf_rowkey key; /* "k" */
extern hf_error err;  /* of the last operation */

/* Begins the server, finds the driver. 0, or 1: it has said why not. */
int answered_begin(const char *name);
/* One answer, with parts that printf fills in, to all that is asked. */
void is(int status, const char *form, ...) __attribute__((format(printf, 2, 3)));
/* The text with the server's port for the first PORT in it; good until the next call. */
const char *ported(const char *form);
/* Opens the driver at the URL, of which PORT is filled in. */
int opens(const char *form, hf_store **ret);
/* That is the code, this a part of the line, and no s3cr3t is told. */
void said(int rc, int code, const char *text);

#endif
