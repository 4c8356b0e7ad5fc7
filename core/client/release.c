/*
 * release.c - a holder releases its lock, or marks its event as done. See release.h.
 *
 * hf__release tries these in turn, and frees the lock:
 * 1. release_instantly, on local stores: one write without a read, under the mutex, if the row held
 *    this grant and nothing else when it was written last.
 * 2. release_blindly: the same write, where the store may block.
 * 3. release_by_step: reads the row if it isn't known. Only this one can hand the key over.
 *
 * If the store didn't confirm the release, and no lease would end the grant, keep_trying keeps the
 * lock and repeats the release in the background.
 */
#include "release.h"

#include "belief.h"
#include "deadline_list.h"
#include "handle.h"
#include "held_sessions.h"
#include "known_row.h"
#include "lock.h"
#include "lost.h"
#include "os.h"
#include "renewal_queue.h"
#include "session.h"
#include "shown.h"
#include "start_threads.h"
#include "thread.h"
#include "wait_schedule.h"

#include <stdio.h>
#include <string.h>

/* OTHERS_LAG_US: on stores with hf_session_ops the revs of other clients may be behind the store's
   clock by so much. */
enum { RELEASE_AGAIN_US = 500000, OTHERS_LAG_US = 3000000 };

/* Returns 1 if after this result of a release the grant may still be in the store. */
static int unsettled(int rc) { return rc && rc != HF_LOST && rc != HF_CORRUPT; }

/* Makes the free row, at `rev`, that is left when the only party of a row releases. */
static void leave_free(hf_row *row, const hf_lock *l, uint64_t rev)
{
    row->n_holders = row->n_queue = 0;
    row->done_us = row->keep_until_us = 0;
    row->rev = rev;
    row->token = l->token;
    memset(row->last_id, 0, sizeof row->last_id);
}

/* Releases on a local store by one write without a read. Returns: 0; HF_CONFLICT: the grant isn't
   the only thing in the row, and was not released; or the error. */
static int release_instantly(hf_lock *l)
{
    hf *h = l->h;
    const struct hf_port *port = &h->port;
    if (!l->sole || !port->caps.local || l->at_least_ms || l->expires_us || !hf__believed(l))
        return HF_CONFLICT;
    leave_free(&h->row, l, l->rev + 1);
    /* Not by hf__port_replace, which counts atomically: under the mutex that isn't needed. */
    h->stats.store_ops++;
    return port->drv->replace(port->st, &l->e->key, l->rev, &h->row, NULL, &h->no_clock_us, NULL);
}

/* Does what release_instantly does, where the store may block. Called with the mutex, which is
   released meanwhile. Returns: 0; HF_CONFLICT: not released, and if *ret_known, *cur is the row;
   HF_UNKNOWN: it may be released; or the error. */
static int release_blindly(hf_lock *l, hf_row *cur, int *ret_known)
{
    hf *h = l->h;
    struct hf_port *port = &h->port;
    hf_row row;
    if (!l->sole || port->caps.local || l->at_least_ms || !hf__believed(l)) return HF_CONFLICT;
    /* If a notification has brought a later row, another party is in it. */
    *ret_known = hf__notified_row(l, l->rev + 1, cur);
    if (*ret_known) return HF_CONFLICT;
    hf_row_init(&row);
    leave_free(&row, l, hf_rev_next(l->rev, hf__port_now(port).lo_us));
    memcpy(row.last_id, l->id, sizeof row.last_id); /* refuses a late copy of the acquire */
    l->busy = l->releasing = 1;
    hf__note_yield(port, l->e, hf__local_us());
    pthread_mutex_unlock(&h->mu);
    int rc = hf__port_replace(port, &l->e->key, l->rev, &row, cur, NULL);
    if (!(*ret_known = rc == HF_CONFLICT)) hf_row_clear(cur);
    pthread_mutex_lock(&h->mu);
    l->e->free_rev = rc ? 0 : row.rev;
    l->e->free_token = row.token;
    l->e->wrote_us = rc ? 0 : hf__local_us();
    return rc;
}

/* Whether the holder could believe that it held (hf__believed, hf__perhaps_held) when it asked for
   the release. */
enum belief { NOT_BELIEVED, PERHAPS_BELIEVED, BELIEVED };

/* The moment at which the release was asked for, before any wait. */
struct asked {
    enum belief belief;
    int64_t local_us;
};

static struct asked ask_now(const hf_lock *l)
{
    enum belief perhaps = hf__perhaps_held(l) ? PERHAPS_BELIEVED : NOT_BELIEVED;
    return (struct asked){hf__believed(l) ? BELIEVED : perhaps, hf__local_us()};
}

/* Returns the store's time when the release was asked for, or an earlier time. */
static int64_t asked_store_us(const hf_lock *l, const struct asked *asked)
{
    return hf__port_now(&l->h->port).lo_us - (hf__local_us() - asked->local_us);
}

/*
 * Returns 1 if the grant, which the row doesn't have any more, ended by time; 0 if an operator has
 * broken it before.
 *
 * Revs and tokens are times of the store's clock, and a client removes a grant that is over by a
 * write whose rev isn't before the grant's end. So the grant was broken if the row was written
 * before that end. An exclusive grant was also broken if the row has a later token from before that
 * end. A grant with a session has no such end (expires_us is 0). For it the store's time at which
 * the release was asked for counts, less OTHERS_LAG_US.
 */
static int ended_by_time(const hf_lock *l, const hf_row *row, const struct asked *asked)
{
    if (!hf__time_is_over(l)) return 0;
    int64_t sure_us = l->expires_us ? l->expires_us : asked_store_us(l, asked) - OTHERS_LAG_US;
    if (row->rev && (int64_t)row->rev < sure_us) return 0;
    return l->mode != HF_EXCLUSIVE || row->token <= l->token || (int64_t)row->token >= sure_us;
}

/* Returns 1 if the store has ended the grant before its lease has run out. */
static int broken(const hf_lock *l)
{
    return l->lost && l->lost_by == HF_BY_STORE && !hf__time_is_over(l);
}

/* Releases by a step. `known`: *row is the row as far as is known; maybe_done: an earlier write of
   this release may have landed. If the holder could believe that it held when it asked for the
   release, and the lease ends during the release, that is no loss. Called with the mutex, which is
   released meanwhile. Returns: 0, HF_LOST, or the store's error. */
static int release_by_step(hf_lock *l, int maybe_done, const struct asked *asked, hf_row *row,
                           int known, hf_error *err)
{
    enum belief believed = asked->belief;
    struct hf_event ev = {.kind = HF_EV_RELEASE, .maybe_done = maybe_done};
    struct hf_outcome out;
    struct hf_session *keeper = NULL; /* keeps the key taken for the rest of at_least_ms */
    int rc = 0;
    if (!believed && hf__over_already(l) && hf__unanswered(l))
        return hf__lost_error(l, "release", err);
    /* The grant may have been made later than since_us, by the resolution of the store's clock. */
    if (l->at_least_ms)
        ev.until_us =
            l->since_us + (int64_t)l->at_least_ms * 1000 + l->h->port.caps.clock_resolution_us;
    if (l->at_least_ms && l->session && hf__believed(l)) rc = hf__session_for_rest(l, &keeper, err);
    if (rc) return rc;
    if (keeper) ev.session = keeper->id;
    if (!known && !maybe_done) known = hf__notified_row(l, l->rev, row);
    if (!l->h->port.caps.local) hf__note_yield(&l->h->port, l->e, hf__local_us());
    rc = hf__lock_event(l, &ev, row, known, &out, err);
    /* 0: other parties are in the row now */
    l->e->wrote_us = rc || row->n_holders || row->n_queue ? 0 : hf__local_us();
    if (!rc) hf__last_row_keep(l->h, l->e, row);
    if (keeper) {
        keeper->left = rc == HF_UNKNOWN || (!rc && out.answer == HF_ANS_OK);
        hf__session_put(&l->h->sessions, keeper);
    }
    if (unsettled(rc) && (believed ? broken(l) : hf__over_already(l)))
        return hf__lost_error(l, "release", err);
    if (rc) return rc;
    /* From here on the grant wasn't in the row, or the holder may have learnt of its end (as by
       hf_left_ms) before it asked for the release: then the release says LOST, too. */
    if (believed && out.answer == HF_ANS_OK) return 0;
    if (believed == BELIEVED && ended_by_time(l, row, asked)) return 0;
    if (believed) { /* the grant was ended in the store before this release */
        l->lost = 1;
        l->lost_by = HF_BY_STORE;
    }
    return hf__lost_error(l, "release", err);
}

/* Keeps the lock, so that its release is repeated in the background. The grant lasts as long as
   this process, so otherwise the key would stay held. */
static void keep_trying(hf_lock *l)
{
    HF_NOT_CANCELED;
    l->pending_release = 1;
    l->busy = 0;
    l->on_lost = NULL;
    l->ask_at_us = hf__local_us() + RELEASE_AGAIN_US;
    /* The release is repeated by the renewer if the store may block, otherwise by the expiry
       monitor. */
    if (!l->h->port.caps.local) hf__renew_at(l, l->ask_at_us);
    hf__set_deadline(l);
    if (!l->h->port.caps.local && !hf__need_renewer(l->h, NULL)) hf__wake_renewer(l->h);
    pthread_cond_broadcast(&l->h->changed);
}

/* Releases a lock that release_instantly hasn't released; `rc` is what that returned. */
static HF_COLD int release_slowly(hf_lock *l, int rc, const struct asked *asked, hf_error *err)
{
    HF_NOT_CANCELED;
    hf_row row; /* the row as it is, if another client has changed it */
    int known = 0;
    hf_row_init(&row);
    if (rc == HF_CONFLICT) rc = release_blindly(l, &row, &known);
    if (!rc) return 0;
    l->busy = l->releasing = 1;
    rc = release_by_step(l, rc == HF_UNKNOWN, asked, &row, known, err);
    hf_row_clear(&row);
    return rc;
}

/* Seizes the lock, which something else may be using. Returns when it was asked for the release. */
static HF_COLD struct asked ask_and_seize(hf_lock *l)
{
    HF_NOT_CANCELED;
    struct asked asked = ask_now(l);
    l->releasing = 1;
    hf__renew_at(l, INT64_MAX);
    hf__seize(l);
    return asked;
}

int hf__release(hf_lock *l, hf_error *err)
{
    hf *h = l->h;
    /* 1: a request, the callback, or the expiry monitor's heap may refer to the lock. */
    int rc, waits = l->busy || l->in_callback || l->watch.nth;
    struct asked asked = {NOT_BELIEVED, 0};
    if (waits) asked = ask_and_seize(l);
    rc = release_instantly(l);
    if (rc && !waits) asked = ask_now(l);
    if (rc) rc = release_slowly(l, rc, &asked, err);
    h->stats.released += !l->pending_release;
    if (unsettled(rc)) hf__may_stay(l, "release", err);
    if (unsettled(rc) && !l->expires_us && h->closing < HF_CLOSING_LOCKS)
        keep_trying(l);
    else
        hf__lock_free(l);
    return rc;
}

int hf_release(hf_lock *l, hf_error *err)
{
    if (!l) return 0;
    hf *h = l->h;
    int rc = hf__held_here(l, "release", err);
    if (rc) return rc;
    pthread_mutex_lock(&h->mu);
    rc = hf__release(l, err);
    pthread_mutex_unlock(&h->mu);
    return rc;
}

void hf_release_scope(hf_lock **lock)
{
    hf_release(*lock, NULL);
    *lock = NULL;
}

/* ---- the end of an event ---- */

/* Refuses to mark the event, and releases the lock. Returns HF_INVALID. */
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
    HF_NOT_CANCELED;
    if (!l)
        return hf_fail(err, HF_INVALID, 0, "once: no lock: the event isn't this caller's to run");
    hf *h = l->h;
    struct hf_outcome out;
    hf_row row;
    int rc = hf__held_here(l, "once", err);
    if (rc) return rc;
    struct hf_event ev = {.kind = HF_EV_FINISH, .result = result ? result : ""};
    ev.result_len = strlen(ev.result);
    /* A result that is too long is cut, not refused: an event that has run must not run again
       because of its result's text. */
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
    int over = !hf__perhaps_held(l); /* the holder may have been told so */
    rc = over ? hf__lost_error(l, "once", err) : hf__lock_event(l, &ev, &row, 0, &out, err);
    if (!rc && out.answer != HF_ANS_OK) rc = hf__lost_error(l, "once", err);
    if (rc == HF_LOST || unsettled(rc)) hf__not_marked(l, err);
    if (over || unsettled(rc)) {
        /* As far as is known the event isn't marked. The lock is released all the same. */
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
