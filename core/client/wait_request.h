/*
 * wait_request.h - the requests of a wait to the store. Called without the mutex.
 */
#ifndef HF_WAIT_REQUEST_H
#define HF_WAIT_REQUEST_H

#include "step.h"

struct hf_wait;

/* Calls hf__cas_loop, and makes the sessions that the event needs. Returns as hf__cas_loop, but
   never HF_UNBOUND. */
int hf__wait_step(struct hf_wait *w, struct hf_event *ev, hf_row *row, int known, int64_t until,
                  struct hf_outcome *out, hf_error *err);
/* Begins a wait: finds the row that the handle knows, or calls the driver's `acquire`.
   Returns: 0: *out is the answer; HF_CONFLICT: not decided, and if *known, *row is the row as far
   as is known; or the error. */
int hf__wait_ask_first(struct hf_wait *w, const struct hf_event *ev, hf_row *row, int *known,
                       int64_t until, struct hf_outcome *out, hf_error *err);
/* Makes the request by a step. If other clients write first each time, and the store may append the
   request, calls the driver's `acquire`. `acquire` compares no rev, so it doesn't fail just because
   the row was written. Returns as hf__wait_step; HF_CONFLICT: the row needs a step. */
int hf__wait_request(struct hf_wait *w, struct hf_event *ev, hf_row *row, int known, int64_t until,
                     struct hf_outcome *out, hf_error *err);

#endif
