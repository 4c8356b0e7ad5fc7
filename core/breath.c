/*
 * breath.c - room for others, where the row that is free is his who writes first.
 *
 * Who knows the row writes sooner than who has to read it before. A handle that takes a key and
 * gives it back in a hurry would so keep it for itself for ever: whoever wants to get in line reads
 * a row that has been written again before his own write is there. He leaves no trace, so the
 * hurried one breathes without being asked: every BREATH_EVERY_US it lets the row stand still for
 * some time, mostly for a short one, and now and then for longer, for those that are far away. It
 * costs less than a fiftieth of such a loop, and nothing where the row stands still anyway.
 */
#include "handle.h"

enum { BREATH_EVERY_US = 400000, BREATH_US = 2000, BREATHS_LONGER = 4, BREATH_LEVELS = 4 };

static int64_t breath_us(uint32_t breaths)
{
    int64_t us = BREATH_US;
    uint32_t nth = breaths + 1;
    for (int i = 1; i < BREATH_LEVELS && nth % BREATHS_LONGER == 0; i++) {
        us *= BREATHS_LONGER;
        nth /= BREATHS_LONGER;
    }
    return us;
}

int hf__stood_still(struct hf_entry *e, int64_t now_us)
{
    if (e->wrote_us && now_us - e->wrote_us < breath_us(e->breaths)) return 0;
    if (!e->wrote_us || now_us > e->breath_at_us) {
        e->breath_at_us = now_us + BREATH_EVERY_US;
        e->breaths++;
    } else if (now_us > e->breath_at_us - BREATH_EVERY_US) { /* this one needn't be made, then */
        e->breath_at_us += BREATH_EVERY_US;
        e->breaths++;
    }
    return 1;
}

int hf__breathes(struct hf_wait *w)
{
    struct hf_entry *e = w->e;
    if (w->h->port.can & HF_CAN_INSTANT || w->deadline_us <= w->started_us) return 0;
    pthread_mutex_lock(&w->h->mu);
    int64_t now = hf__local_us();
    int waits = !hf__stood_still(e, now) && now >= e->breath_at_us;
    int64_t until = e->wrote_us + breath_us(e->breaths);
    waits &= until < w->deadline_us;
    if (waits) w->look_at_us = until;
    pthread_mutex_unlock(&w->h->mu);
    return waits;
}
