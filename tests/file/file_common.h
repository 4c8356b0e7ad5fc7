/*
 * file_common.h - what the tests of the `file:` driver share: stores in a directory of their own,
 * rows to put into them, and the operations with their errors checked.
 */
#ifndef HF_FILE_COMMON_H
#define HF_FILE_COMMON_H

#include "drivers.h"
#include "os.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char dir[64];       /* the directory */
extern char path[128];     /* the path of this test's store, which doesn't exist yet */
extern char url_text[160]; /* its URL */

int make_dir(void **state);
int remove_dir(void **state);
int new_path(void **state);

hf_store *open_store(void);
/* The code of a failure to open `url`, and its text. */
int open_code(const char *url, hf_error *err);
hf_rowkey key_of(const char *text);
/* Syncs the key "event", which needn't exist. */
int sync_event(hf_store *st, hf_error *err);
void fill_party(hf_party *p, int n, const char *note);
void fill_row(hf_row *row, uint64_t rev, uint32_t holders, uint32_t waiters);
void get(hf_store *st, const char *text, hf_row *row);
int replace(hf_store *st, const char *text, uint64_t seen, const hf_row *row, hf_row *cur);
int take(hf_store *st, const char *text, const hf_party *p, hf_row *cur);

#define drv (&hf__file_driver)
#endif
