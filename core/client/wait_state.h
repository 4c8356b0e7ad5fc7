/*
 * wait_state.h - the states of a wait, and the transitions between them.
 *
 *     LOCAL -> FIRST_LOOK -> OUTSIDE <-> QUEUED -> GRANTED -> ENDED
 *
 * From OUTSIDE and QUEUED a wait may be granted, or give up (WITHDRAWING); from all states it may
 * end. Other fields of hf_wait, not the state, say which of its writes may have landed
 * (maybe_in_row, granted, lost_reply, lost_acquire) and that it is to be cancelled (cancel).
 */
#ifndef HF_WAIT_STATE_H
#define HF_WAIT_STATE_H

struct hf_wait;

enum hf_wait_state {
    HF_WAIT_LOCAL,       /* in the local queue, behind other waits of its handle */
    HF_WAIT_FIRST_LOOK,  /* it may ask the store, and hasn't yet */
    HF_WAIT_OUTSIDE,     /* it has asked the store, and isn't in the store's queue, as far as is
                            known */
    HF_WAIT_QUEUED,      /* in the store's queue */
    HF_WAIT_GRANTED,     /* it has its lock; the caller doesn't know yet */
    HF_WAIT_WITHDRAWING, /* it has given up: its request is being taken out of the row */
    HF_WAIT_ENDED
};

/* Makes the transition to `to`. The first one is called under the mutex; the second one takes
   it. */
void hf__wait_moves(struct hf_wait *w, enum hf_wait_state to);
void hf__wait_moves_locking(struct hf_wait *w, enum hf_wait_state to);

#endif
