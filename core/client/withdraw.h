/*
 * withdraw.h - takes requests out of the row: when their waits end; later, if the store didn't
 * confirm that; and orphaned ones. Called without the mutex where nothing else is said.
 */
#ifndef HF_WITHDRAW_H
#define HF_WITHDRAW_H

#include "holdfast_driver.h"

struct hf_entry;
struct hf_wait;

/* ---- the end of a wait ---- */

/* Sets the result of a wait: the code, and an error with that reason. */
void hf__wait_error(struct hf_wait *w, int code, const char *why);
/* Takes the request of a wait that ends out of the row, within io_timeout_ms or until local
   until_us. The wait's code becomes UNKNOWN if the request may have stayed. `row`: the row as it
   was read; NULL: it is read first. */
void hf__withdraw_wait(struct hf_wait *w);
void hf__withdraw_until(struct hf_wait *w, hf_row *row, int64_t until_us);
/* Sets the wait's result after a withdrawal that returned `rc`. `why`: the error; NULL: not known.
 */
void hf__withdrawn(struct hf_wait *w, int rc, const hf_error *why);

/* ---- later: stores with hf_session_ops ---- */

/*
 * Leaves an unconfirmed withdrawal to the renewer (a deferred cancel). The request may be in the
 * row, and would stay there for as long as this handle keeps its session, which other waits share.
 */
void hf__defer_withdrawal(struct hf_wait *w);
/* As hf__defer_withdrawal, for a request without a wait. Without memory the request stays until
   this handle is closed. Under the mutex. */
void hf__defer_cancel(hf *h, struct hf_entry *e, const uint8_t id[16]);
/* Called by the renewer: withdraws the one request that has been due for longest. Not all at once,
   because the renewer has other work. Called with the mutex, which may be released. Returns the
   local time of the next one, INT64_MAX: none; 0 if the mutex was released. */
int64_t hf__deferred_cancels_tend(hf *h);
/* Frees the list of deferred cancels. It is called when all threads of the handle have ended. */
void hf__deferred_cancels_close(hf *h);
/*
 * Withdraws orphaned requests: those in `row` that name a session of this handle although no wait
 * or lock of the handle belongs to them. A restored backup brings such requests back, and they
 * would stay, because the handle keeps the session for others. Only the first wait of the local
 * queue does this. `row`: the row as it was read; then as it is stored. Returns: 0, or the store's
 * error.
 */
int hf__withdraw_orphans(struct hf_wait *w, hf_row *row, int64_t until_us, hf_error *err);

#endif
