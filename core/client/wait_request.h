/*
 * wait_request.h - the requests of a wait. Without the mutex.
 */
#ifndef HF_WAIT_REQUEST_H
#define HF_WAIT_REQUEST_H

#include "step.h"

struct hf_wait;

/* Calls hf__cas_loop, with the sessions that the event needs. */
int hf__wait_step(struct hf_wait *w, struct hf_event *ev, hf_row *row, int known, int64_t until,
                  struct hf_outcome *out, hf_error *err);
/* Makes the first request of a wait. Returns 0: *out is the answer; HF_CONFLICT: not decided, and
   with *known *row is the last known stored row; or the error. */
int hf__wait_ask_first(struct hf_wait *w, const struct hf_event *ev, hf_row *row, int *known,
                       int64_t until, struct hf_outcome *out, hf_error *err);
/* Makes the request by a step. If others always write first, the store puts it into the queue
   whatever they write. */
int hf__wait_request(struct hf_wait *w, struct hf_event *ev, hf_row *row, int known, int64_t until,
                     struct hf_outcome *out, hf_error *err);

#endif
