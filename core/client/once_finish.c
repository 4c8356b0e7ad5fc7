/*
 * once_finish.c - an event is marked as done, and its lock ends.
 */
#include "belief.h"
#include "handle.h"
#include "key.h"
#include "lock.h"
#include "lock_event.h"
#include "reason.h"
#include "renewal_queue.h"

#include <stdio.h>
#include <string.h>

/* Nothing is marked, and the lock is released. Returns HF_INVALID. */
static int refuse(hf_lock *l, const char *why, hf_error *err)
{
    char key[HF_KEY_CAP];
    snprintf(key, sizeof key, "%s", l->e->text);
    int rc = hf_release(l, NULL);
    return hf_fail(err, HF_INVALID, 0, "once '%s': %s; the event is not marked as done, and %s",
                   key, why,
                   !rc             ? "its lock is released"
                   : rc == HF_LOST ? "its lock was over before"
                                   : "its lock may stay held until its lease ends");
}

int hf_once_finish(hf_lock *l, const char *result, int64_t keep_ms, hf_error *err)
{
    hf *h = l->h;
    struct hf_outcome out;
    hf_row row;
    int rc = hf__held_here(l, "once", err);
    if (rc) return rc;
    struct hf_event ev = {.kind = HF_EV_FINISH, .result = result ? result : ""};
    ev.result_len = strlen(ev.result);
    /* Told what it can be told: an event that ran must not run again for its text. */
    char text[HF_RESULT_CAP];
    if (ev.result_len >= HF_RESULT_CAP) {
        ev.result_len = HF_RESULT_CAP - 1;
        while (ev.result_len && (ev.result[ev.result_len] & 0xc0) == 0x80) ev.result_len--;
    }
    memcpy(text, ev.result, ev.result_len);
    text[ev.result_len] = 0;
    hf__clean_utf8(text);
    ev.result = text;
    const char *wrong = l->mode != HF_EXCLUSIVE                ? "the hold isn't exclusive"
                        : keep_ms != HF_FOREVER && keep_ms < 1 ? "keep_ms: must be -1 or at least 1"
                                                               : NULL;
    if (wrong) return refuse(l, wrong, err);
    ev.keep_us = keep_ms == HF_FOREVER || keep_ms > INT64_MAX / 2000 ? INT64_MAX : keep_ms * 1000;
    hf_row_init(&row);
    pthread_mutex_lock(&h->mu);
    l->releasing = 1;
    hf__renew_at(l, INT64_MAX);
    hf__seize(l);
    int over = !hf__perhaps_held(l); /* as its holder has been told */
    rc = over ? hf__lost_error(l, "once", err) : hf__lock_event(l, &ev, &row, 0, &out, err);
    if (!rc && out.answer != HF_ANS_OK) rc = hf__lost_error(l, "once", err);
    if (over || hf__unsettled(rc)) {
        /* Not marked, as far as is known: then at least it isn't held either. */
        if (!over) hf__not_marked(l, err);
        hf__let_go(l);
        pthread_mutex_unlock(&h->mu);
        hf_row_clear(&row);
        hf_release(l, NULL);
        return rc;
    }
    if (!rc && h->port.drv->sync) {
        pthread_mutex_unlock(&h->mu);
        rc = hf__port_sync(&h->port, &l->e->key, err);
        pthread_mutex_lock(&h->mu);
    }
    h->stats.released++;
    hf__lock_free(l);
    pthread_mutex_unlock(&h->mu);
    hf_row_clear(&row);
    return rc;
}
