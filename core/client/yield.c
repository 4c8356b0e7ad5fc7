/*
 * yield.c - room for others, where the row that is free is his who writes first.
 *
 * Who knows the row writes sooner than who has to read it before. A handle that takes a key and
 * gives it back in a hurry would so keep it for itself for ever: whoever wants to get in line reads
 * a row that has been written again before his own write is there. He leaves no trace, so the
 * hurried one breathes without being asked: every BREATH_EVERY_US it lets the row stand still for
 * some time, mostly for a short one, and now and then for longer, for those that are far away. It
 * costs less than a fiftieth of such a loop, and nothing where the row stands still anyway. Where
 * nobody can stand in line, the longest one lasts until all who wait have had a look.
 */
#include "yield.h"

#include "handle.h"
#include "look_queue.h"

enum {
    BREATH_EVERY_US = 400000,
    BREATH_US = 2000,
    BREATHS_LONGER = 4,
    YIELD_LEVELS = 4,
    LOOKS = 2
};

static int64_t breath_us(const struct hf_port *port, uint32_t yields)
{
    int64_t us = BREATH_US;
    uint32_t nth = yields + 1;
    int level = 1;
    for (; level < YIELD_LEVELS && nth % BREATHS_LONGER == 0; level++) {
        us *= BREATHS_LONGER;
        nth /= BREATHS_LONGER;
    }
    if (level < YIELD_LEVELS || port->caps.queues) return us;
    return LOOKS * 1000 * (int64_t)hf__port_poll_ms(port);
}

int hf__yield_due(const struct hf_port *port, struct hf_entry *e, int64_t now_us)
{
    if (e->wrote_us && now_us - e->wrote_us < breath_us(port, e->yields)) return 0;
    if (!e->wrote_us || now_us > e->yield_at_us) {
        e->yield_at_us = now_us + BREATH_EVERY_US;
        e->yields++;
    } else if (now_us > e->yield_at_us - BREATH_EVERY_US) { /* this one needn't be made, then */
        e->yield_at_us += BREATH_EVERY_US;
        e->yields++;
    }
    return 1;
}

int hf__yields_first(struct hf_wait *w)
{
    const struct hf_port *port = &w->h->port;
    struct hf_entry *e = w->e;
    if (port->caps.local || w->deadline_us <= w->started_us) return 0;
    pthread_mutex_lock(&w->h->mu);
    int64_t now = hf__local_us();
    int waits = !hf__yield_due(port, e, now) && now >= e->yield_at_us;
    int64_t until = e->wrote_us + breath_us(port, e->yields);
    waits &= until < w->deadline_us;
    if (waits) hf__look_at(w, until);
    pthread_mutex_unlock(&w->h->mu);
    return waits;
}
