/*
 * wait_advance.h - one look of a wait at the store: the wait asks for the key, acts on the answer,
 * and plans the next look.
 */
#ifndef HF_WAIT_ADVANCE_H
#define HF_WAIT_ADVANCE_H

struct hf_wait;

/* Makes one look. This may write the row: to enter the queue, be granted the key, claim it, or
   withdraw the request. Called without the mutex, by the thread that drives the wait.
   Returns: 1: the wait is over, and its code, lock and err are set; 0: it isn't, and look_at_us is
   the time of its next look. */
int hf__wait_advance(struct hf_wait *w);

#endif
