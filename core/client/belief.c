/*
 * belief.c - see belief.h.
 */
#include "belief.h"

#include "handle.h"
#include "os.h"
#include "validity.h"

int64_t hf__session_until(const hf_lock *l)
{
    int64_t until = l->session->gone ? 0 : l->session->until_us;
    if (l->pending_session)
        until = hf__min64(until, l->pending_session->gone ? 0 : l->pending_session->until_us);
    return until;
}

struct hf_moment hf__moment(hf *h)
{
    return (struct hf_moment){hf__local_us(), hf__port_now(&h->port)};
}

/* Returns the local time of `now`. NULL: reads the clock (which locks without an end don't need).
 */
static int64_t local_us(const struct hf_moment *now)
{
    return now ? now->local_us : hf__local_us();
}

static int believed(const hf_lock *l, const struct hf_moment *now)
{
    if (l->lost) return 0;
    if (l->hold_until_us && local_us(now) >= l->hold_until_us) return 0;
    /* Not believed in the last millisecond, for which hf_left_ms returns 0. */
    if (l->session && local_us(now) + 1000 > hf__session_until(l)) return 0;
    if (!l->expires_us) return 1;
    struct hf_time store = now ? now->store : hf__port_now(&l->h->port);
    return hf__validity_at(l->expires_us, store) == HF_GRANT_HELD;
}

int hf__believed(const hf_lock *l) { return believed(l, NULL); }

int hf__time_is_over(const hf_lock *l)
{
    if (l->session && hf__local_us() >= hf__session_until(l)) return 1;
    return l->expires_us &&
           hf__validity_at(l->expires_us, hf__port_now(&l->h->port)) != HF_GRANT_HELD;
}

static int adopted(const hf_lock *l) { return !l->lost && l->session && l->session->adopted; }

int hf__perhaps_held(const hf_lock *l) { return hf__believed(l) || adopted(l); }

int hf__perhaps_held_at(const hf_lock *l, const struct hf_moment *now)
{
    return believed(l, now) || adopted(l);
}
