/*
 * withdraw.c - a request is taken out of the row, or may have stayed there.
 */
#include "withdraw.h"

#include "claim_timeout.h"
#include "deferred_cancel.h"
#include "handle.h"
#include "kept_error.h"
#include "os.h"
#include "wait_state.h"

#include <string.h>

void hf__wait_error(struct hf_wait *w, int code, const char *why)
{
    w->code = hf_fail(&w->err, code, 0, "acquire '%s': %s", w->e->text, why);
}

/* It may stand in the row with a session that is kept: to be withdrawn later on. */
void hf__defer_withdrawal(struct hf_wait *w)
{
    if (!w->h->port.caps.sessions || w->named) return;
    pthread_mutex_lock(&w->h->mu);
    hf__defer_cancel(w->h, w->e, w->party.id);
    pthread_mutex_unlock(&w->h->mu);
}

/* `rc` is what became of that, and why (NULL: not known). Whatever a withdrawal failed by, the
   request may stand in the row still: TIMEOUT, CANCELED or BUSY would say that it doesn't. An error
   of the store by which the wait itself has ended says no such thing. */
void hf__withdrawn(struct hf_wait *w, int rc, const hf_error *why)
{
    int stands = rc == HF_UNKNOWN || rc == HF_UNAVAILABLE || (rc && rc != w->code);
    if (rc && why) hf__error_keep(&w->why, why);
    /* An acquire whose reply was lost isn't bound to a rev: it may land later, unless the row still
       says that this one ended last (last_id). */
    if (stands || (w->lost_acquire && !w->granted))
        w->code = hf_fail(&w->err, HF_UNKNOWN, 0,
                          "acquire '%s': given up, but the store has not confirmed it: the "
                          "request may still be granted, and that grant ends by itself%s%s",
                          w->e->text, w->why ? ": " : "", w->why ? w->why->text : "");
    if (rc) hf__defer_withdrawal(w);
}

static void withdraws(struct hf_wait *w)
{
    pthread_mutex_lock(&w->h->mu);
    hf__wait_withdraws(w);
    pthread_mutex_unlock(&w->h->mu);
}

void hf__withdraw_until(struct hf_wait *w, int64_t until_us)
{
    hf_error why = {0};
    int maybe_done = w->granted || w->lost_reply;
    withdraws(w);
    int rc = hf__withdraw(w->h, w->e, w->party.id, maybe_done, until_us, &why);
    hf__withdrawn(w, rc, &why);
}

void hf__withdraw_wait(struct hf_wait *w)
{
    hf__withdraw_until(w, hf__local_us() + w->h->port.io_timeout_ms * 1000);
}

/* Takes the request out of the row, which is the one that was read. */
void hf__withdraw_from(struct hf_wait *w, hf_row *row, int64_t until_us)
{
    hf *h = w->h;
    struct hf_event ev = {.kind = HF_EV_WITHDRAW, .maybe_done = w->granted || w->lost_reply};
    struct hf_outcome out;
    memcpy(ev.id, w->party.id, sizeof ev.id);
    hf_error why = {0};
    withdraws(w);
    int rc = hf__cas_loop(&h->port, &w->e->key, &ev, row, 1, until_us, &out, &why);
    if (!rc) hf__watch_claim(h, w->e, row);
    hf__withdrawn(w, rc, &why);
}
