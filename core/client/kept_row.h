/*
 * kept_row.h - a row kept in as little memory as its content needs: a handle may keep one for each
 * of many thousand holds, and most rows are a tenth of the size of hf_row.
 */
#ifndef HF_KEPT_ROW_H
#define HF_KEPT_ROW_H

#include "holdfast_driver.h"

struct hf_kept_row; /* opaque; NULL: none is kept */

/* Keeps a copy of `row` in *at, in place of what is there. Without memory, or if the row is long,
   nothing is kept: whoever needs it reads it. A row without a rev isn't known, and isn't kept. */
void hf__keep_row(struct hf_kept_row **at, const hf_row *row);
/* Fills `row` (initialized; its old content is replaced). Returns 0 or HF_NOMEM. */
int hf__show_row(const struct hf_kept_row *kept, hf_row *row);
void hf__forget_row(struct hf_kept_row **at);

#endif
