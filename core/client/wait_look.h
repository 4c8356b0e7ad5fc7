/*
 * wait_look.h - one look of a wait at the store.
 */
#ifndef HF_WAIT_LOOK_H
#define HF_WAIT_LOOK_H

struct hf_wait;

/* Makes one look at the store. Returns 1: the wait is over (code, lock, err); 0: look again at
   look_at_us. Called without the mutex, by the thread that drives the wait. */
int hf__wait_look(struct hf_wait *w);

#endif
