/*
 * notification.c - who was handed the key while it waited, and what the word that woke it says.
 *
 * A word is believed as a read is, which may be late, too: what is written upon it is compared by
 * rev, and the end of a grant comes with it, in the store's clock.
 */
#include "notification.h"

#include "claim.h"
#include "claim_timeout.h"
#include "handle.h"
#include "last_row.h"
#include "look_queue.h"
#include "session.h"

#include <string.h>

/* It was woken, but not because its own time to look has come. */
static int early(struct hf_wait *w)
{
    pthread_mutex_lock(&w->h->mu);
    int is = w->look_at_us > hf__local_us();
    pthread_mutex_unlock(&w->h->mu);
    return is;
}

/* The notification names the only holder; the rest of its party is as requested. Ignored are one
   without a token, and a grant that isn't newer than the row by which this wait queued: that was to
   an earlier request with the same caller-chosen id. */
static int accept_named_grant(struct hf_wait *w, hf_row *row)
{
    hf_party *p = &row->party[0], told = *p;
    if (row->n_holders != 1 || told.token <= w->seen_rev) return 0;
    if (memcmp(told.id, w->party.id, 16) != 0) return 0;
    hf_party_copy(p, &w->party);
    p->token = told.token;
    p->session = told.session;
    p->since_us = told.since_us;
    p->expires_us = told.expires_us;
    p->flags = told.flags;
    return hf__accept_handover(w, row);
}

/* It says no more than that another one has it now, alone, for many wait. One who stands in line is
   told of its turn, too: it looks when that one's time is over, and now and then in any case. */
static void another_has_it(struct hf_wait *w, const hf_party *p)
{
    hf *h = w->h;
    pthread_mutex_lock(&h->mu);
    hf__look_at(w, w->poll_at_us);
    if (p->expires_us) {
        int64_t left_us = p->expires_us - hf__port_now(&h->port).lo_us;
        hf__look_by(w, hf__local_us() + left_us + 1);
    }
    pthread_mutex_unlock(&h->mu);
}

enum hf_notified hf__read_notification(struct hf_wait *w, hf_row *row)
{
    const hf_notify_ops *ops = w->h->port.caps.notify;
    if (!ops || !ops->payload || !w->subscribed || !ops->payload(w->h->port.st, &w->e->key, row))
        return HF_NOTIFIED_NOTHING;
    if (row->rev > w->seen_rev && !hf__seems_over(w->h, row)) return HF_NOTIFIED_ROW;
    if (!row->rev && accept_named_grant(w, row)) return HF_NOTIFIED_ENDED;
    /* A row that was lost begins anew, with lower revs perhaps: who has it then looks. */
    int64_t at = hf__find_id(row, w->party.id);
    int holds = at >= 0 && at < (int64_t)row->n_holders;
    int old = row->rev <= w->seen_rev && !holds && early(w);
    if (old && !row->rev) another_has_it(w, &row->party[0]);
    hf_row_clear(row);
    return old ? HF_NOTIFIED_OLD : HF_NOTIFIED_NOTHING;
}

/* Does a request of ours stand there that nobody here makes? At a store only the first wait of a
   handle's line stands (what a caller names may be asked again by one behind it, which couldn't
   claim it there), and whose hold was taken up has a lock. Under the mutex. */
static int is_nobodys(const struct hf_wait *w, const hf_party *p, int holds)
{
    if (!memcmp(p->id, w->party.id, sizeof p->id)) return 0;
    if (holds && !(p->flags & HF_PARTY_UNCLAIMED)) return 0;
    for (const hf_lock *l = w->e->locks; l; l = l->next)
        if (holds && l->token == p->token) return 0;
    return hf__session_kept(&w->h->sessions, p->session);
}

/* Its id. 0: there is none; or it is a try that looks beside others of this handle. */
static int nobodys(const struct hf_wait *w, const hf_row *row, uint8_t ret_id[16])
{
    int found = 0;
    pthread_mutex_lock(&w->h->mu);
    uint32_t n = w->e->first == w ? row->n_holders + row->n_queue : 0;
    for (uint32_t i = 0; i < n && !found; i++) {
        found = is_nobodys(w, &row->party[i], i < row->n_holders);
        if (found) memcpy(ret_id, row->party[i].id, 16);
    }
    pthread_mutex_unlock(&w->h->mu);
    return found;
}

int hf__withdraw_orphans(struct hf_wait *w, hf_row *row, int64_t until_us, hf_error *err)
{
    hf *h = w->h;
    struct hf_outcome out = {.changed = 1};
    /* Which leaves what was claimed. Another process may have asked it again meanwhile. */
    struct hf_event ev = {.kind = HF_EV_WITHDRAW, .as_seen = 1};
    if (!h->port.caps.sessions) return 0;
    while (out.changed && nobodys(w, row, ev.id)) {
        int rc = hf__cas_loop(&h->port, &w->e->key, &ev, row, 1, until_us, &out, err);
        /* Written meanwhile, or somebody in it has died: the look goes on. */
        if (rc) return rc == HF_CONFLICT || rc == HF_LOST ? 0 : rc;
        hf__watch_claim(h, w->e, row);
    }
    return 0;
}
