/*
 * wait_state.c - see wait_state.h.
 */
#include "wait_state.h"

#include "handle.h"

#include <assert.h>

static int asks(const struct hf_wait *w)
{
    return w->state == HF_WAIT_OUTSIDE || w->state == HF_WAIT_QUEUED;
}

void hf__wait_steps_up(struct hf_wait *w)
{
    assert(w->state == HF_WAIT_LOCAL);
    w->state = HF_WAIT_FIRST_LOOK;
}

void hf__wait_asks(struct hf_wait *w)
{
    assert(w->state == HF_WAIT_FIRST_LOOK);
    w->state = HF_WAIT_OUTSIDE;
}

void hf__wait_in_line(struct hf_wait *w)
{
    assert(asks(w));
    w->state = HF_WAIT_QUEUED;
}

void hf__wait_outside(struct hf_wait *w)
{
    assert(asks(w));
    w->state = HF_WAIT_OUTSIDE;
}

void hf__wait_granted(struct hf_wait *w)
{
    assert(asks(w));
    w->state = HF_WAIT_GRANTED;
}

void hf__wait_withdraws(struct hf_wait *w)
{
    assert(asks(w) || w->state == HF_WAIT_WITHDRAWING);
    w->state = HF_WAIT_WITHDRAWING;
}

void hf__wait_ends(struct hf_wait *w)
{
    assert(w->state != HF_WAIT_ENDED);
    w->state = HF_WAIT_ENDED;
}
