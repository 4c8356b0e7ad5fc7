/*
 * said.h - what a driver says in front of a server that answers anything.
 */
#ifndef HF_SAID_H
#define HF_SAID_H

#include "drivers.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

extern hf_rowkey key; /* "k", once it is made */
extern hf_error err;  /* of the last operation */

/* Fails unless that is the code, this a part of the line, and no s3cr3t in it. */
void said(int rc, int code, const char *text);

#endif
