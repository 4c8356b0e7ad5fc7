/*
 * sqlite_own.h - a database of the test's own, the driver sqlite before it, and another program's
 * connection to it.
 */
#ifndef HF_SQLITE_OWN_H
#define HF_SQLITE_OWN_H

#include "fakes/said.h"

#include <sqlite3.h>

extern const hf_driver *drv;
extern const char *url_text;
extern sqlite3 *other;
extern int64_t clock_us; /* of the last operation */

/* Makes the file with its tables, and the key "k". Returns 0, or 1 after it has printed why not. */
int sqlite_begin(void);
int opens(hf_store **ret);
hf_store *opened(void);
/* Somebody else does. */
void writes(const char *sql);

#endif
