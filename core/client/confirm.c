/*
 * confirm.c - hf_confirm asks the store whether a grant is held, hf_enter raises a fence to its
 * token, hf_adopt makes a lock for a grant that was made elsewhere (as by `holdfast acquire`).
 */
#include "belief.h"
#include "handle.h"
#include "lock.h"
#include "lost.h"
#include "os.h"
#include "session.h"
#include "thread.h"
#include "validity.h"

enum { PAUSE_ENTER_US = 50000 };

int hf_confirm(hf_lock *l, hf_error *err)
{
    HF_NOT_CANCELED;
    hf *h = l->h;
    hf_row row;
    hf_error why = {0};
    if (!err) err = &why; /* the lock keeps it */
    int rc = hf__held_here(l, "confirm", err);
    if (!rc)
        rc = hf__begin_call(h, "confirm", err); /* hf_close waits until this call has returned
                                                 */
    if (rc) return rc;
    hf_row_init(&row);
    /* The lock isn't seized: this read and a renewal don't wait for each other. The lock isn't
       freed meanwhile, because its user releases it only after this call. */
    rc = hf__port_get(&h->port, &l->e->key, &row, err);
    pthread_mutex_lock(&h->mu);
    int64_t at = rc ? -1 : hf__find_grant(&row, l->token);
    /* An adopted grant may still be bound to the life of the process that it was made in. */
    if (!rc && (at < 0 || hf__port_dead(&h->port, &row.party[at]))) hf__mark_lost(l, HF_BY_STORE);
    if (!rc) l->corrupt_us = 0;
    if (rc == HF_CORRUPT) hf__mark_corrupt(l, err);
    if (!rc && !hf__perhaps_held(l)) rc = hf__lost_error(l, "confirm", err);
    hf__leave_call(h);
    pthread_mutex_unlock(&h->mu);
    hf_row_clear(&row);
    return rc;
}

/* Shows the token to the fence. A lost reply is resolved by asking again: entering twice does no
   harm. Without the mutex. */
static int enter(hf_lock *l, const char *where, hf_error *err)
{
    const struct hf_port *port = &l->h->port;
    int64_t until = hf__local_us() + port->io_timeout_ms * 1000;
    for (;;) {
        int rc =
            hf__port_enter(&l->h->port, &l->e->key, l->token, l->mode == HF_EXCLUSIVE, where, err);
        if (rc != HF_UNKNOWN || hf__local_us() >= until) return rc;
        hf__pause(PAUSE_ENTER_US);
    }
}

int hf_enter(hf_lock *l, const char *where, hf_error *err)
{
    HF_NOT_CANCELED;
    hf *h = l->h;
    int rc = hf__held_here(l, "enter", err);
    if (!rc) rc = hf__begin_call(h, "enter", err);
    if (rc) return rc;
    pthread_mutex_lock(&h->mu);
    if (!h->port.drv->enter)
        rc = hf_fail(err, HF_UNSUPPORTED, 0,
                     "enter '%s': this store keeps no fence: pass the token to your data, and "
                     "refuse smaller ones there",
                     l->e->text);
    else if (!hf__perhaps_held(l))
        rc = hf__lost_error(l, "enter", err);
    if (!rc) {
        pthread_mutex_unlock(&h->mu);
        rc = enter(l, where, err); /* the lock isn't seized, as in hf_confirm */
        pthread_mutex_lock(&h->mu);
        if (rc == HF_LOST) hf__mark_lost(l, HF_BY_STORE);
    }
    hf__leave_call(h);
    pthread_mutex_unlock(&h->mu);
    return rc;
}

int hf_adopt(hf *h, const char *key, uint64_t token, hf_lock **ret, hf_error *err)
{
    HF_NOT_CANCELED;
    struct hf_entry *e;
    hf_row row;
    int rc = hf__begin_key_call(h, "adopt", key, &e, err);
    if (rc) return rc;
    hf_row_init(&row);
    rc = hf__port_get(&h->port, &e->key, &row, err);
    struct hf_time now = hf__port_now(&h->port);
    int64_t at = rc ? -1 : hf__find_grant(&row, token);
    const hf_party *p = at < 0 ? NULL : &row.party[at];
    int over =
        !p || hf__validity_at(p->expires_us, now) != HF_GRANT_HELD || hf__port_dead(&h->port, p);
    int64_t sent_us = hf__local_us(), left_ms = 0;
    int has_lease = !rc && !over && h->port.caps.sessions;
    if (has_lease) rc = hf__port_lease_left(&h->port, p->session, &left_ms, err);
    if (rc == HF_LOST || (!rc && over))
        rc = hf_fail(err, HF_LOST, 0, "adopt '%s': no current grant has token %llu", key,
                     (unsigned long long)token);
    pthread_mutex_lock(&h->mu);
    struct hf_wait as = {.flags = HF_DETACHED};
    if (!rc && has_lease) as.session = hf__session_adopt(&h->sessions, p, sent_us, left_ms);
    hf_lock *l = rc || (has_lease && !as.session) ? NULL : hf__lock_new(h, e, p, &row, &as);
    if (!l) hf__session_put(&h->sessions, as.session);
    if (!rc && !l) rc = hf_fail(err, HF_NOMEM, 0, "adopt '%s': out of memory", key);
    if (l) {
        l->thread = 0;
        l->adopted = 1;
        *ret = l;
    } else {
        hf__entry_unref(e);
    }
    pthread_mutex_unlock(&h->mu);
    hf_row_clear(&row);
    hf__end_call(h);
    return rc;
}
