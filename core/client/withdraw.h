/*
 * withdraw.h - a request is taken out of the row, or may have stayed there. Without the mutex.
 */
#ifndef HF_WITHDRAW_H
#define HF_WITHDRAW_H

#include "holdfast_driver.h"

struct hf_wait;

/* Takes the request of a wait that ends out of the row: its code says UNKNOWN if it may have
 * stayed. */
void hf__withdraw_wait(struct hf_wait *w);
void hf__withdraw_until(struct hf_wait *w, int64_t until_us);
/* Out of the row that was read. */
void hf__withdraw_from(struct hf_wait *w, hf_row *row, int64_t until_us);
/* `rc` is what became of the withdrawal, and why (NULL: not known). */
void hf__withdrawn(struct hf_wait *w, int rc, const hf_error *why);
/* It may stand in the row with a session that is kept: to be withdrawn later on. */
void hf__defer_withdrawal(struct hf_wait *w);
/* The wait ends with that code. */
void hf__wait_error(struct hf_wait *w, int code, const char *why);

#endif
