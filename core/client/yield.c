/*
 * yield.c - a handle that acquires one key in a loop pauses now and then, so that others get in.
 *
 * A handle that knows the row writes sooner than a newcomer that has to read it first. So a handle
 * that acquires and releases a key in a loop would keep it for ever: the newcomer reads a row that
 * has been written again before its own write arrives. A newcomer leaves no trace, so the handle
 * pauses without being asked. Every YIELD_EVERY_US it leaves the row alone for some time, mostly a
 * short one, now and then a longer one for clients that are far away. That costs less than a
 * fiftieth of such a loop, and nothing where the row isn't written anyway. Where waiters don't
 * queue, the longest pause lasts until all of them have looked.
 */
#include "yield.h"

#include "handle.h"
#include "look_queue.h"

enum { YIELD_EVERY_US = 400000, YIELD_US = 2000, YIELDS_LONGER = 4, YIELD_LEVELS = 4, LOOKS = 2 };

static int64_t pause_us(const struct hf_port *port, uint32_t yields)
{
    int64_t us = YIELD_US;
    uint32_t nth = yields + 1;
    int level = 1;
    for (; level < YIELD_LEVELS && nth % YIELDS_LONGER == 0; level++) {
        us *= YIELDS_LONGER;
        nth /= YIELDS_LONGER;
    }
    if (level < YIELD_LEVELS || port->caps.queues) return us;
    return LOOKS * 1000 * (int64_t)hf__port_poll_ms(port);
}

int hf__yield_due(const struct hf_port *port, struct hf_entry *e, int64_t now_us)
{
    if (e->wrote_us && now_us - e->wrote_us < pause_us(port, e->yields)) return 0;
    if (!e->wrote_us || now_us > e->yield_at_us) {
        e->yield_at_us = now_us + YIELD_EVERY_US;
        e->yields++;
    } else if (now_us > e->yield_at_us - YIELD_EVERY_US) { /* this one needn't be made, then */
        e->yield_at_us += YIELD_EVERY_US;
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
    int64_t until = e->wrote_us + pause_us(port, e->yields);
    waits &= until < w->deadline_us;
    if (waits) hf__look_at(w, until);
    pthread_mutex_unlock(&w->h->mu);
    return waits;
}
