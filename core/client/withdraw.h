/*
 * withdraw.h - a request is taken out of the row: at once, when its wait ends; or later, if the
 * store didn't confirm that. Without the mutex where nothing else is said.
 */
#ifndef HF_WITHDRAW_H
#define HF_WITHDRAW_H

#include "holdfast_driver.h"

struct hf_entry;
struct hf_wait;

/* ---- the end of a wait ---- */

/* Ends the wait with that code. */
void hf__wait_error(struct hf_wait *w, int code, const char *why);
/* Takes the request of a wait that ends out of the row. The wait's code becomes UNKNOWN if the
   request may have stayed. `row`: as it was read; NULL: it is read first. */
void hf__withdraw_wait(struct hf_wait *w);
void hf__withdraw_until(struct hf_wait *w, hf_row *row, int64_t until_us);
/* Notes the result of a withdrawal: `rc`, and its error (NULL: not known). */
void hf__withdrawn(struct hf_wait *w, int rc, const hf_error *why);

/* ---- later: stores with hf_session_ops ---- */

/*
 * A request that was given up although the store didn't confirm it may stand in the row for as long
 * as a session of this handle is kept. The renewer withdraws it: a deferred cancel.
 */
void hf__defer_withdrawal(struct hf_wait *w);
/* Defers the cancellation of a request without its wait. Without memory the request stays until
   this handle is closed. Under the mutex, as the next one. */
void hf__defer_cancel(hf *h, struct hf_entry *e, const uint8_t id[16]);
/* The renewer's part: withdraws the request that is due longest, one at a time, because sessions
   have to be kept meanwhile. Called with the mutex. Returns when to look again; 0 if the mutex was
   released. */
int64_t hf__deferred_cancels_tend(hf *h);
void hf__deferred_cancels_close(hf *h);
/*
 * Withdraws requests of this handle that are in `row` although no wait or lock of it belongs to
 * them. A restored backup brings such requests back, and their session is kept for others. Only the
 * first wait of the local queue does this. `row`: as read, then as left.
 * Returns: 0, or the store's error.
 */
int hf__withdraw_orphans(struct hf_wait *w, hf_row *row, int64_t until_us, hf_error *err);

#endif
