/*
 * deadlines.c - see deadlines.h.
 */
#include "deadlines.h"

static int before(const struct hf_deadline *a, const struct hf_deadline *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->nth < b->nth;
}

/* Makes one tree of two, either of which may be NULL. */
static struct hf_deadline *meld(struct hf_deadline *a, struct hf_deadline *b)
{
    if (!a || !b) return a ? a : b;
    if (before(b, a)) {
        struct hf_deadline *other = a;
        a = b;
        b = other;
    }
    b->prev = a;
    b->next = a->child;
    if (b->next) b->next->prev = b;
    a->child = b;
    return a;
}

/* Makes one tree of the children of a node that is taken out. It melds pairs, then the pairs from
   the last to the first. So a removal costs O(log n), amortized. */
static struct hf_deadline *meld_children(struct hf_deadline *child)
{
    struct hf_deadline *pairs = NULL, *root = NULL;
    while (child) {
        struct hf_deadline *a = child, *b = a->next;
        child = b ? b->next : NULL;
        a->next = a->prev = NULL;
        if (b) b->next = b->prev = NULL;
        a = meld(a, b);
        a->next = pairs;
        pairs = a;
    }
    while (pairs) {
        struct hf_deadline *next = pairs->next;
        pairs->next = NULL;
        root = meld(root, pairs);
        pairs = next;
    }
    if (root) root->prev = NULL;
    return root;
}

void hf__deadline_drop(struct hf_deadlines *all, struct hf_deadline *d)
{
    if (!d->nth) return;
    struct hf_deadline *rest = meld_children(d->child);
    if (all->last == d) all->last = NULL;
    if (all->first == d) {
        all->first = rest;
    } else {
        if (d->prev->child == d)
            d->prev->child = d->next;
        else
            d->prev->next = d->next;
        if (d->next) d->next->prev = d->prev;
        all->first = meld(all->first, rest);
    }
    d->child = d->next = d->prev = NULL;
    d->nth = 0;
    all->n--;
}

void hf__deadline_set(struct hf_deadlines *all, struct hf_deadline *d, int64_t at_us)
{
    if (d->nth && d->at_us == at_us) return;
    hf__deadline_drop(all, d);
    d->at_us = at_us;
    d->nth = ++all->nth;
    /* Nodes that are set in the order in which they are due make a chain, each the child of the one
       before it. Taking out the first of a chain needs no comparison. */
    if (all->last && before(all->last, d))
        meld(all->last, d);
    else
        all->first = meld(all->first, d);
    all->last = d;
    all->n++;
}
