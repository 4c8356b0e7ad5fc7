/*
 * said.h - what a driver says in front of a server that answers anything.
 */
#ifndef HF_SAID_H
#define HF_SAID_H

#include "drivers.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

extern hf_rowkey key; /* "k", once it is made */
extern hf_error err;  /* of the last operation */

/* Makes a socket of this process that listens, with a receive buffer of that size (0: the usual
   one); *ret_port: its port on the loopback. Returns -1 if that fails. */
int said_listens(int receive_bytes, int *ret_port);
/* Opens the driver's store by a form in which HOST stands for that address. */
extern hf_caps said_caps; /* the capabilities of the store that was opened last */
int said_opens(const hf_driver *drv, const char *form, int port, int64_t io_ms, hf_store **ret);

/* Name and text of the fields of a row that is held, in the order of drivers/kit/columns.h. */
enum { SAID_FIELDS = 12 };
extern const char *const said_fields[SAID_FIELDS][2];

/* Fails unless that is the code, this a part of the line, and no s3cr3t in it. */
void said(int rc, int code, const char *text);

#endif
