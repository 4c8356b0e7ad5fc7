/*
 * wanted_keys.c - see wanted_keys.h.
 */
#include "wanted_keys.h"

#include "handle.h"

int hf__wanted(const struct hf_wait *w)
{
    return hf__at_store(w) && w->state != HF_WAIT_FIRST_LOOK && w->dispatched && !hf__backs_off(w);
}

struct hf_wait *hf__subscriber_of(const struct hf_entry *e)
{
    struct hf_wait *found = NULL;
    uint32_t left = e->n_at_store;
    for (struct hf_wait *w = e->first; w && left; w = w->next) {
        left -= (uint32_t)hf__at_store(w);
        if (hf__wanted(w)) found = w;
    }
    return found;
}

int hf__subscription_changes(const struct hf_wait *w)
{
    const struct hf_entry *e = w->e;
    if (!w->h->port.caps.notify) return 0;
    const struct hf_wait *to = hf__subscriber_of(e);
    return to != e->subscriber || (to && (to->state == HF_WAIT_QUEUED) != e->key.in_line);
}

void hf__change_subscription(hf *h, struct hf_entry *e)
{
    if (e->changed || !h->port.caps.notify) return;
    e->changed = 1;
    e->refs++;
    e->changed_next = h->changed_keys;
    h->changed_keys = e;
}
