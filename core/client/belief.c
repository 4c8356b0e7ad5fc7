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

int hf__believed(const hf_lock *l)
{
    if (l->lost) return 0;
    if (l->hold_until_us && hf__local_us() >= l->hold_until_us) return 0;
    /* Not believed in the last millisecond, for which hf_left_ms returns 0. */
    if (l->session && hf__local_us() + 1000 > hf__session_until(l)) return 0;
    if (!l->expires_us) return 1;
    return hf__validity_at(l->expires_us, hf__port_now(&l->h->port)) == HF_GRANT_HELD;
}

int hf__time_is_over(const hf_lock *l)
{
    if (l->session && hf__local_us() >= hf__session_until(l)) return 1;
    return l->expires_us &&
           hf__validity_at(l->expires_us, hf__port_now(&l->h->port)) != HF_GRANT_HELD;
}

int hf__perhaps_held(const hf_lock *l)
{
    return hf__believed(l) || (!l->lost && l->session && l->session->adopted);
}
