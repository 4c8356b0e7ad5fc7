/*
 * wait_state.h - where a wait stands, and how it gets from there to elsewhere.
 *
 *     LOCAL -> FIRST_LOOK -> OUTSIDE <-> QUEUED -> GRANTED -> ENDED
 *
 * From OUTSIDE and QUEUED it may be granted, or give up (WITHDRAWING); from all it may end. What
 * isn't known of a write, and that somebody wants it to end, are data beside this (asked, granted,
 * lost_reply, lost_acquire; cancel).
 */
#ifndef HF_WAIT_STATE_H
#define HF_WAIT_STATE_H

struct hf_wait;

enum hf_wait_state {
    HF_WAIT_LOCAL,       /* behind others of its handle */
    HF_WAIT_FIRST_LOOK,  /* first of them; it hasn't asked the store yet */
    HF_WAIT_OUTSIDE,     /* it has, and doesn't stand in the store's queue, as far as is known */
    HF_WAIT_QUEUED,      /* it stands there */
    HF_WAIT_GRANTED,     /* it holds; its caller hasn't been told */
    HF_WAIT_WITHDRAWING, /* it has given up: its request is being taken out of the row */
    HF_WAIT_ENDED
};

/* The transitions. Under the mutex. */
void hf__wait_steps_up(struct hf_wait *w);  /* LOCAL -> FIRST_LOOK */
void hf__wait_asks(struct hf_wait *w);      /* FIRST_LOOK -> OUTSIDE */
void hf__wait_in_line(struct hf_wait *w);   /* OUTSIDE, QUEUED -> QUEUED */
void hf__wait_outside(struct hf_wait *w);   /* OUTSIDE, QUEUED -> OUTSIDE */
void hf__wait_granted(struct hf_wait *w);   /* OUTSIDE, QUEUED -> GRANTED */
void hf__wait_withdraws(struct hf_wait *w); /* OUTSIDE, QUEUED, WITHDRAWING -> WITHDRAWING */
void hf__wait_ends(struct hf_wait *w);      /* all -> ENDED */

#endif
