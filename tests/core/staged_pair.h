/*
 * staged_pair.h - what the tests on a staged store share: one handle whose calls go as cued, and a
 * rival. Each of them includes it once.
 */
#ifndef HF_STAGED_PAIR_H
#define HF_STAGED_PAIR_H

#include "staged.h"
#include "test.h"

#include <string.h>

/* Kinds of stores. */
enum {
    SERVER = 0,
    WATCHED = HF_CAN_BELLS, /* with a watch, but without bells */
    BELLS = HF_CAN_SESSIONS | HF_CAN_BELLS,
    LOCAL = HF_CAN_INSTANT | BELLS,
    LEASES = HF_CAN_LEASES,
    /* With a watch, and sessions to wait with that last a minute: no pause of the machine ends
       them. */
    CALM_LEASES = HF_CAN_LEASES | HF_CAN_BELLS
};

static hf *h, *rival;
static hf_lock *lock, *other;

static inline void begin(unsigned can)
{
    stage(can);
    if (can == WATCHED || can == CALM_LEASES) stage_driver.can &= ~(unsigned)HF_CAN_BELLS;
    if (can == CALM_LEASES) stage_driver.poll_ms = 15000;
    h = stage_open("a");
    rival = stage_open("rival");
    lock = other = NULL;
}

static inline void done(void)
{
    stage_uncue();
    stage_forge(NULL);
    hf_close(h);
    hf_close(rival);
}

/* An operator's hand, while a request of ours is under way. */
static inline void break_it(void) { OK(hf_break(rival, "k", hf_token(lock), &stage_error)); }

static inline void await_queue(uint32_t n)
{
    hf_row *row;
    while (!(row = stage_row("k")) || __atomic_load_n(&row->n_queue, __ATOMIC_SEQ_CST) != n)
        hf__pause(1000);
}

#endif
