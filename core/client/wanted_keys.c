/*
 * wanted_keys.c - see wanted_keys.h.
 */
#include "wanted_keys.h"

#include "handle.h"

int hf__one_by_one(const hf *h)
{
    const hf_driver *d = h->port.drv;
    return h->port.caps.watches && d->subscribe && d->unsubscribe && d->next_event;
}

int hf__watches(const hf *h) { return h->port.caps.local || h->port.caps.watches; }

int hf__tells_events(const hf *h)
{
    const hf_local_ops *local = h->port.caps.local;
    return local ? local->next_event != NULL : h->port.drv->next_event != NULL;
}

int hf__wanted(const struct hf_wait *w)
{
    return hf__at_store(w) && w->state != HF_WAIT_FIRST_LOOK && w->dispatched && !hf__backs_off(w);
}

int hf__subscription_changes(const struct hf_wait *w, int first)
{
    int is = hf__one_by_one(w->h) ? w->e->hears == w : w->heard;
    if (w->h->port.caps.local || !hf__watches(w->h)) return 0;
    if (hf__wanted(w) != is && (first || hf__one_by_one(w->h))) return 1;
    return is && (w->state == HF_WAIT_QUEUED) != w->e->key.in_line;
}

void hf__change_subscription(hf *h, struct hf_entry *e)
{
    if (e->changed || !hf__one_by_one(h)) return;
    e->changed = 1;
    e->refs++;
    e->changed_next = h->changed_keys;
    h->changed_keys = e;
}
