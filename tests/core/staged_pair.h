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
    WATCHED = STAGE_WATCHES, /* with a watch of keys */
    WAKEUPS = STAGE_LIVENESS | STAGE_WATCHES,
    LOCAL = STAGE_LOCAL | STAGE_LIVENESS,
    LEASES = STAGE_SESSIONS,
    /* With a watch, and with sessions to wait with that last a minute: no pause of the machine ends
       them. */
    CALM_LEASES = STAGE_SESSIONS | STAGE_WATCHES
};

static hf *h, *rival;
static hf_lock *lock, *other;

static inline void begin(unsigned can)
{
    stage(can);
    if (can == CALM_LEASES) stage_driver.caps.poll_ms = 15000;
    h = stage_open("a");
    rival = stage_open("rival");
    lock = other = NULL;
}

/* Makes a change of the driver's caps count for the two open handles, too. */
static inline void change_caps(void) { h->port.caps = rival->port.caps = stage_driver.caps; }

static inline void done(void)
{
    stage_uncue();
    stage_forge(NULL);
    hf_close(h);
    hf_close(rival);
}

/* An operator's hand, while a request of ours is under way. */
static inline void break_it(void) { OK(hf_break(rival, "k", hf_token(lock), &stage_error)); }

static inline void await_queue_of(const char *key, uint32_t n)
{
    while (stage_waiting(key) != n) hf__pause(1000);
}

static inline void await_queue(uint32_t n) { await_queue_of("k", n); }

#endif
