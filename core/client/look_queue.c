/*
 * look_queue.c - which wait looks next: the one place that says when.
 */
#include "look_queue.h"

#include "handle.h"

enum { AT_ONCE = -1 }; /* before all that look when it is time */
enum { OF_ITS_KEY = 1, OF_ALL_KEYS };

void hf__look_at(struct hf_wait *w, int64_t at_us) { w->look_at_us = at_us; }

void hf__look_by(struct hf_wait *w, int64_t at_us)
{
    if (at_us < w->look_at_us) w->look_at_us = at_us;
}

void hf__schedule(struct hf_wait *w)
{
    hf *h = w->h;
    int64_t at_us = INT64_MAX;
    int driven = w->state == HF_WAIT_LOCAL ? w->done != NULL : w->dispatched;
    if (w->state == HF_WAIT_ENDED || !driven) return;
    if (w->state == HF_WAIT_LOCAL) {
        at_us = w->cancel ? AT_ONCE : w->deadline_us;
    } else if (!w->looking) {
        int64_t timed_us = w->notified ? 0 : hf__min64(w->look_at_us, w->deadline_us);
        at_us = w->cancel || w->notified == OF_ITS_KEY ? AT_ONCE : timed_us;
        /* At once, but behind those that had to look before; each has its turn. */
        int64_t least_us = w->state == HF_WAIT_FIRST_LOOK ? w->started_us : h->looked_us;
        if (at_us >= 0 && at_us < least_us) at_us = least_us;
    }
    if (at_us == INT64_MAX)
        hf__deadline_drop(&h->looks, &w->look);
    else
        hf__deadline_set(&h->looks, &w->look, at_us);
}

void hf__notify(struct hf_wait *w)
{
    w->notified = OF_ITS_KEY;
    hf__schedule(w);
}

void hf__notify_in_turn(struct hf_wait *w)
{
    if (w->notified) return; /* it keeps its place */
    w->notified = OF_ALL_KEYS;
    hf__schedule(w);
}
