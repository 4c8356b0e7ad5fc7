/*
 * wait_advance.h - one look of a wait at the store: it asks for the key, acts on the answer, and
 * plans the next look.
 */
#ifndef HF_WAIT_ADVANCE_H
#define HF_WAIT_ADVANCE_H

struct hf_wait;

/* Makes one look. It may write: enter the queue, accept a grant, claim it, withdraw the request.
   Returns 1: the wait is over (code, lock, err); 0: it isn't, and look_at_us is the time of its
   next look. Called without the mutex, by the thread that drives the wait. */
int hf__wait_advance(struct hf_wait *w);

#endif
