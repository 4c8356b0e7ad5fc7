/*
 * mem_rings.h - mem: which waiters a write wakes.
 */
#ifndef HF_MEM_RINGS_H
#define HF_MEM_RINGS_H

#include "mem_tables.h"

#include <string.h>

enum { RINGS = 32 }; /* how many wakeups are collected before they are posted */

struct rings {
    struct table *table;
    uint64_t hash; /* of the key */
    uint32_t n;
    struct ring {
        uint64_t session;
        uint8_t wakeup;
    } who[RINGS];
};

/* Posts the collected wakeups, and empties the list. Takes table->mu (mem_wakeups.c). */
void hf__mm_ring_all(struct rings *r);

static inline void note_ring(struct rings *r, const hf_party *p)
{
    if (r->n == RINGS) hf__mm_ring_all(r);
    r->who[r->n++] = (struct ring){p->session, p->wakeup};
}

/* Returns 1 if the first waiter has to be woken, to plan its next look again: the earliest end of
   the holders has changed, or another waiter is the first now. (A waiter further back looks a
   little later after that end than the first one, so its old plan is late.) */
static inline int plans_anew(const hf_row *was, const hf_row *now)
{
    if (!now->n_queue) return 0;
    int64_t end = hf_row_end(now);
    return end != hf_row_end(was) ||
           (end && memcmp(was->party[was->n_holders].id, now->party[now->n_holders].id, 16) != 0);
}

/* Notes the wakeup of every party that holds in `now` but waited in `was`, and of the first waiter
   if it plans anew. Parties keep their order from `was` to `now`, so the search for a party starts
   where the last one was found. */
static inline void note_rings(struct rings *r, const hf_row *was, const hf_row *now)
{
    uint32_t all = was->n_holders + was->n_queue, at = 0;
    if (!was->n_queue) return;
    if (plans_anew(was, now)) note_ring(r, &now->party[now->n_holders]);
    for (uint32_t i = 0, tried; i < now->n_holders; i++) {
        for (tried = 0; tried < all && memcmp(was->party[at].id, now->party[i].id, 16); tried++)
            at = at + 1 < all ? at + 1 : 0;
        if (tried < all && at >= was->n_holders) note_ring(r, &now->party[i]);
    }
}

#endif
