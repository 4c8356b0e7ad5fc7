/*
 * list.h - reads all rows of a store whose keys have a prefix.
 */
#ifndef HF_LIST_H
#define HF_LIST_H

#include "holdfast_driver.h"

struct hf_listing {
    hf *h;
    hf_info_fn *see;
    void *arg;
    hf_error *err;
    int code, stopped;
};

/* Shows a row to the caller of a list: `arg` is a struct hf_listing. Returns 1 if no more rows are
   wanted: the caller said so (`stopped`), or there is an error (`code`). */
int hf__list_one(void *arg, const hf_rowkey *key, hf_row *row);

struct hf_scanning {
    hf *h;
    int (*see)(void *, const hf_rowkey *, hf_row *);
    void *arg;
    /* Called for each damaged row, after which the scan goes on. NULL: the scan ends with the first
       damaged row. */
    void (*damaged)(void *, const char *key, const char *why);
    void *damaged_arg;
    int code; /* CORRUPT: a row was damaged; or the error of reading such a row */
    hf_error err;
};

/* Calls s->see for each row with a legal key. Reads the store's clock first, if it isn't known yet.
   Returns 0, or the error; the code of a damaged row comes after all other rows were seen. */
int hf__scan(struct hf_scanning *s, const char *prefix, hf_error *err);

#endif
