/*
 * known_row.h - the row of a key as this handle knows it without a read: from a notification, or
 * from the handle's own last write. It may be out of date. So a write upon it compares the rev, and
 * a conflict brings the present row.
 */
#ifndef HF_KNOWN_ROW_H
#define HF_KNOWN_ROW_H

#include "holdfast_driver.h"

struct hf_entry;
struct hf_wait;

/* A row in as little memory as its content needs: a handle may keep one for each of many thousand
   holds, and most rows are a tenth of the size of hf_row. NULL: none is kept. */
struct hf_known_row;

/* The longest row that is kept, in bytes: by each of many locks; in the last-row cache, of which a
   handle has one. */
enum { HF_KEPT_BY_LOCK = 8192, HF_KEPT_LAST = 65536 };

/* Keeps a copy of `row` in *at, in place of what is there. *at becomes NULL, so that the row has to
   be read, if there is no memory, if the row takes more than `most` bytes, or if its rev is 0. */
void hf__keep_row(struct hf_known_row **at, const hf_row *row, size_t most);
/* Fills `row` (initialized; its old content is replaced). Returns 0 or HF_NOMEM. */
int hf__show_row(const struct hf_known_row *kept, hf_row *row);
void hf__forget_row(struct hf_known_row **at);

/* Returns 1 if a holder of this row seems to be over by the handle's present knowledge of the
   store's clock. Then the caller reads the row, which brings the clock: it may have been set back.
 */
int hf__seems_over(hf *h, const hf_row *row);
/* Copies the row that a notification brought with this lock's grant, at `rev` or later. Returns 1
   if there is one. Under the mutex, as the next ones. */
int hf__notified_row(const hf_lock *lock, uint64_t rev, hf_row *row);
/* As hf__notified_row; without one, copies the row that this handle wrote last for the lock. */
int hf__known_row(const hf_lock *lock, hf_row *row);
/* Puts into the last-row cache the row that a release of this handle has left, if it isn't free. */
void hf__last_row_keep(hf *h, const struct hf_entry *e, const hf_row *row);
/* Empties the last-row cache, if it has the row of this wait's key. Returns 1 with that row in
   *row, if `waits` (the request may enter the queue) and the row is so young that it probably is
   the present one; otherwise 0. Takes the mutex. */
int hf__last_row_use(struct hf_wait *w, int waits, hf_row *row);

#endif
