/*
 * deadlines.h - a priority queue of deadlines (a pairing heap).
 *
 * A node is a member of the caller's struct, so nothing is allocated and no call can fail. Of two
 * equal deadlines the one that was set first comes first. A queue of zeros is empty; a node of
 * zeros is in no queue. The caller's mutex protects both.
 */
#ifndef HF_DEADLINES_H
#define HF_DEADLINES_H

#include <stddef.h>
#include <stdint.h>

struct hf_deadline {
    struct hf_deadline *child, *next, *prev; /* prev of a first child: its parent */
    int64_t at_us;
    uint64_t nth; /* the order in which nodes were set, from 1; 0: not in a queue */
};

struct hf_deadlines {
    struct hf_deadline *first; /* NULL: none is set */
    struct hf_deadline *last;  /* the node that was set last; NULL: it has been taken out */
    size_t n;
    uint64_t nth; /* the `nth` of the node that was set last */
};

/* Puts the node into the queue, or moves it to another time. A node that is set to the time that it
   has already keeps its place among equal deadlines. */
void hf__deadline_set(struct hf_deadlines *all, struct hf_deadline *d, int64_t at_us);
/* Takes the node out, if it is in the queue. */
void hf__deadline_drop(struct hf_deadlines *all, struct hf_deadline *d);

/* Returns the earlier of two times. */
static inline int64_t hf__min64(int64_t a, int64_t b) { return a < b ? a : b; }

/* Returns the first deadline; INT64_MAX: none is set. */
static inline int64_t hf__deadlines_next(const struct hf_deadlines *all)
{
    return all->first ? all->first->at_us : INT64_MAX;
}

/* Returns the struct that the deadline is a member of. */
#define HF_DEADLINE_OF(deadline, type, member) \
    ((type *)(void *)((char *)(deadline)-offsetof(type, member)))

#endif
