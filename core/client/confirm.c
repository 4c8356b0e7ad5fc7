/*
 * confirm.c - what a holder asks of the store about its lock: is it held, and may it write?
 */
#include "belief.h"
#include "handle.h"
#include "lost.h"
#include "os.h"
#include "reason.h"

enum { PAUSE_ENTER_US = 50000 };

int hf_confirm(hf_lock *l, hf_error *err)
{
    hf *h = l->h;
    hf_row row;
    int rc = hf__held_here(l, "confirm", err);
    if (!rc) rc = hf__begin_call(h, "confirm", err); /* hf_close waits until it has answered */
    if (rc) return rc;
    hf_row_init(&row);
    /* Beside a renewal, which must not wait for it. The lock stays: the caller releases it last. */
    rc = hf__port_get(&h->port, &l->e->key, &row, err);
    pthread_mutex_lock(&h->mu);
    int64_t at = rc ? -1 : hf__find_grant(&row, l->token);
    /* An adopted grant may still be bound to the life of the process that it was made in. */
    if (!rc && (at < 0 || hf__port_dead(&h->port, &row.party[at]))) hf__mark_lost(l, HF_BY_STORE);
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
    hf *h = l->h;
    int rc = hf__held_here(l, "enter", err);
    if (!rc) rc = hf__begin_call(h, "enter", err);
    if (rc) return rc;
    pthread_mutex_lock(&h->mu);
    if (!h->port.drv->enter)
        rc = hf_fail(err, HF_UNSUPPORTED, 0,
                     "enter '%s': this store can't: show the token to the data themselves",
                     l->e->text);
    else if (!hf__perhaps_held(l))
        rc = hf__lost_error(l, "enter", err);
    if (!rc) {
        pthread_mutex_unlock(&h->mu);
        rc = enter(l, where, err); /* beside a renewal, as hf_confirm */
        pthread_mutex_lock(&h->mu);
        if (rc == HF_LOST) hf__mark_lost(l, HF_BY_STORE);
    }
    hf__leave_call(h);
    pthread_mutex_unlock(&h->mu);
    return rc;
}
