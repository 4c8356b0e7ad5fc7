/*
 * deferred_cancel.h - requests that were given up, although the store didn't confirm it: each may
 * stand in the row, and would for as long as a session of ours is kept.
 */
#ifndef HF_DEFERRED_CANCEL_H
#define HF_DEFERRED_CANCEL_H

#include "holdfast_driver.h"

struct hf_entry;

/* Takes a request out of the row, if it hasn't been taken up (or, maybe_done, in any case). Without
   the mutex. 0, or what the store says. */
int hf__withdraw(hf *h, struct hf_entry *e, const uint8_t id[16], int maybe_done, int64_t until_us,
                 hf_error *err);
/* It is withdrawn in the background. Under the mutex, as the next ones. Without memory it stands
   until this handle is closed. */
void hf__defer_cancel(hf *h, struct hf_entry *e, const uint8_t id[16]);
/* The renewer's: withdraws the one that is due longest: one at a time, for meanwhile sessions are
   to be kept. When to look again; 0 if the mutex was dropped. */
int64_t hf__deferred_cancels_tend(hf *h);
void hf__deferred_cancels_close(hf *h);

#endif
