/*
 * last_row.h - the cached row of a key: as a notification brought it, or as this handle wrote it.
 */
#ifndef HF_LAST_ROW_H
#define HF_LAST_ROW_H

#include "holdfast_driver.h"

struct hf_entry;
struct hf_wait;

/* A notification brings no clock. A holder that seems over by our reading of the clock may still
   hold, because the store's clock may have been set back: then the row is read. */
int hf__seems_over(hf *h, const hf_row *row);
/* The row with this grant as the store has told of it, at `rev` or later: 1. It is to be written
   only by comparing, for it may have been overtaken. */
int hf__last_row_notified(hf *h, struct hf_entry *e, uint64_t token, uint64_t rev, hf_row *row);
/* The key was given on, and the row that is left isn't free. Under the mutex. */
void hf__last_row_keep(hf *h, const struct hf_entry *e, const hf_row *row);
/* That row, if it may well be the present one: 1. Once. */
int hf__last_row_use(struct hf_wait *w, int waits, hf_row *row);

#endif
