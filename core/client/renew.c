/*
 * renew.c - the renewal of one grant. See renew.h. (core/threads/renewer.c calls it when one is
 * due.)
 */
#include "renew.h"

#include "belief.h"
#include "deadline_list.h"
#include "handle.h"
#include "held_sessions.h"
#include "kept_error.h"
#include "known_row.h"
#include "lock.h"
#include "lost.h"
#include "options.h"
#include "start_threads.h"
#include "thread.h"

int hf__renew(hf_lock *l, uint32_t lease_ms, int by_hand, hf_error *err)
{
    hf *h = l->h;
    struct hf_event ev = {.kind = HF_EV_RENEW, .lease_ms = lease_ms, .adopted = l->adopted};
    struct hf_outcome out;
    hf_row row;
    int64_t before_us = l->expires_us;
    int64_t end_us = hf__port_now(&h->port).lo_us + (int64_t)lease_ms * 1000;
    hf_error why = {0};
    hf_row_init(&row);
    int rc;
    if (!err) err = &why; /* the lock keeps it */
    if (l->session) {
        rc = hf__session_renew(l, lease_ms, by_hand, &row, err);
    } else {
        /* Even if the reply is lost the new lease may be in force. So until the reply comes, the
           holder relies on the lock only until the earlier of the two ends. */
        if (lease_ms && (!before_us || end_us < before_us)) l->expires_us = end_us;
        int known = hf__known_row(l, &row);
        /* An unanswered renewal isn't repeated: this write compares the rev, so it does no harm if
           the earlier one lands. */
        hf__forget_row(&l->sent);
        rc = hf__lock_event(l, &ev, &row, known, &out, err);
        if (rc && rc != HF_UNKNOWN) l->expires_us = before_us;
        if (rc == HF_UNKNOWN && l->expires_us != before_us) hf__set_deadline(l);
        if (!rc && out.answer != HF_ANS_OK) {
            hf__mark_lost(l, HF_BY_STORE);
            rc = hf__lost_error(l, "renew", err);
        }
    }
    if (rc == HF_CORRUPT)
        hf__renewal_corrupt(l, err);
    else if (rc && rc != HF_LOST)
        hf__error_keep(&l->why, err);
    if (!rc) hf__renewed(l, &row);
    hf_row_clear(&row);
    return rc;
}

void hf__renewed(hf_lock *l, const hf_row *row)
{
    hf *h = l->h;
    hf__note_row(l, row);
    l->claims = 0;
    l->corrupt_us = 0;
    hf__error_clear(&l->why);
    h->stats.renewals++;
    if (l->renew_at_us != INT64_MAX) hf__plan_renewal(l);
    hf__set_deadline(l);
    if (hf__port_clock_jumps(&h->port) != h->clock_jumps)
        hf__kick_monitor(h, 0); /* the store's clock was set: the deadlines of all locks move */
}

int hf_renew(hf_lock *l, int64_t lease_ms, hf_error *err)
{
    HF_NOT_CANCELED;
    hf *h = l->h;
    char text[HF_LEASE_WHY];
    int rc = hf__held_here(l, "renew", err);
    if (rc) return rc;
    const char *why = hf__lease_wrong(h, lease_ms, text);
    pthread_mutex_lock(&h->mu);
    hf__seize(l);
    if (!hf__perhaps_held(l))
        rc = hf__lost_error(l, "renew", err);
    else if (why)
        rc = hf_fail(err, HF_INVALID, 0, "renew '%s': %s", l->e->text, why);
    else
        rc = hf__renew(l, lease_ms ? (uint32_t)lease_ms : l->lease_ms, 1, err);
    hf__let_go(l);
    pthread_mutex_unlock(&h->mu);
    return rc;
}
