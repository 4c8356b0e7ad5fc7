/*
 * wanted_keys.c - see wanted_keys.h.
 */
#include "wanted_keys.h"

#include "handle.h"

int hf__wanted(const struct hf_wait *w)
{
    return hf__at_store(w) && w->state != HF_WAIT_FIRST_LOOK && w->dispatched && !hf__backs_off(w);
}

int hf__subscription_changes(const struct hf_wait *w)
{
    int is = w->e->subscriber == w;
    if (!w->h->port.caps.notify) return 0;
    return hf__wanted(w) != is || (is && (w->state == HF_WAIT_QUEUED) != w->e->key.in_line);
}

void hf__change_subscription(hf *h, struct hf_entry *e)
{
    if (e->changed || !h->port.caps.notify) return;
    e->changed = 1;
    e->refs++;
    e->changed_next = h->changed_keys;
    h->changed_keys = e;
}
