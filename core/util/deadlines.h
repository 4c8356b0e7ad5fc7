/*
 * deadlines.h - a priority queue of deadlines: what is due first is found without a look at the
 * others.
 *
 * The nodes are members of what they belong to, so that nothing is allocated and nothing can fail
 * (a pairing heap). Of equal deadlines the one that was set first comes first. All zero, queue and
 * node are empty. The caller's mutex protects both.
 */
#ifndef HF_DEADLINES_H
#define HF_DEADLINES_H

#include <stddef.h>
#include <stdint.h>

struct hf_deadline {
    struct hf_deadline *child, *next, *prev; /* prev of a first child: its parent */
    int64_t at_us;
    uint64_t nth; /* 0: it isn't in a queue */
};

struct hf_deadlines {
    struct hf_deadline *first; /* NULL: none is set */
    struct hf_deadline *last;  /* the last that was set; NULL: it has been taken out */
    size_t n;
    uint64_t nth; /* how often one was set */
};

/* Sets the deadline, or changes it. A deadline that is set to the same time again keeps its turn.
 */
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
