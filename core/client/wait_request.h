/*
 * wait_request.h - the requests of a wait. Without the mutex.
 */
#ifndef HF_WAIT_REQUEST_H
#define HF_WAIT_REQUEST_H

#include "step.h"

struct hf_wait;

/* hf__cas_loop, with the sessions that it asks for. */
int hf__wait_step(struct hf_wait *w, struct hf_event *ev, hf_row *row, int known, int64_t until,
                  struct hf_outcome *out, hf_error *err);
/* The first request of a wait. 0: *out is the answer. HF_CONFLICT: it wasn't decided; *known: *row
   is what is stored, as far as is known. Else the error. */
int hf__wait_ask_first(struct hf_wait *w, const struct hf_event *ev, hf_row *row, int *known,
                       int64_t until, struct hf_outcome *out, hf_error *err);
/* By a step. If others always write first, the store lets it in whatever they write. */
int hf__wait_request(struct hf_wait *w, struct hf_event *ev, hf_row *row, int known, int64_t until,
                     struct hf_outcome *out, hf_error *err);

#endif
