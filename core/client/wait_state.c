/*
 * wait_state.c - see wait_state.h.
 */
#include "wait_state.h"

#include "handle.h"

#include <assert.h>

enum {
    ASKS = 1 << HF_WAIT_OUTSIDE | 1 << HF_WAIT_QUEUED,
    ALL_BUT_ENDED = (1 << HF_WAIT_ENDED) - 1
};

/* The states that may come before each, as bits. */
static const unsigned before[] = {[HF_WAIT_FIRST_LOOK] = 1 << HF_WAIT_LOCAL,
                                  [HF_WAIT_OUTSIDE] = 1 << HF_WAIT_FIRST_LOOK | ASKS,
                                  [HF_WAIT_QUEUED] = ASKS,
                                  [HF_WAIT_GRANTED] = ASKS,
                                  [HF_WAIT_WITHDRAWING] = ASKS | 1 << HF_WAIT_WITHDRAWING,
                                  [HF_WAIT_ENDED] = ALL_BUT_ENDED};

void hf__wait_moves(struct hf_wait *w, enum hf_wait_state to)
{
    unsigned from = before[to];
    (void)from; /* unused if assertions are off */
    assert(from >> w->state & 1);
    w->state = to;
}

void hf__wait_moves_locking(struct hf_wait *w, enum hf_wait_state to)
{
    pthread_mutex_lock(&w->h->mu);
    hf__wait_moves(w, to);
    pthread_mutex_unlock(&w->h->mu);
}
