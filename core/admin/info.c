/*
 * info.c - makes an hf_info of a row, for people: holders, waiters, the marker of an event. Has
 * hf_peek.
 */
#include "info.h"

#include "handle.h"
#include "os.h"
#include "thread.h"
#include "validity.h"

#include <stdlib.h>
#include <string.h>

enum { LEFT_KNOWN_US = 100000 }; /* for how long hf.lease_left is used again */

static void show_party(const hf_party *p, struct hf_time now, hf_party_info *to)
{
    memset(to, 0, sizeof *to);
    memcpy(to->owner, p->owner, (size_t)p->owner_len + 1);
    memcpy(to->note, p->note, (size_t)p->note_len + 1);
    to->token = p->token;
    to->since_us = p->since_us;
    to->mode = (enum hf_mode)p->mode;
    to->limit = p->limit;
    to->claimed = !(p->flags & HF_PARTY_UNCLAIMED);
    if (p->token) /* a holder, which isn't over */
        to->left_ms = p->expires_us ? (p->expires_us - now.lo_us + 999) / 1000 : HF_FOREVER;
}

int hf__party_ended(hf *h, const hf_party *p, struct hf_time now)
{
    return hf__validity_at(p->expires_us, now) == HF_GRANT_OVER || hf__port_dead(&h->port, p);
}

/* Sets left_ms of a holder whose hold ends with a session (hf_session_ops): how long that session
   lives. The store is asked once for many holders with one session. If it doesn't answer, left_ms
   is HF_FOREVER. */
static void show_left(hf *h, const hf_party *p, hf_party_info *to)
{
    int64_t now = hf__local_us(), left_ms = HF_FOREVER;
    if (!h->port.caps.sessions || !p->token || p->expires_us) return;
    pthread_mutex_lock(&h->mu);
    int known = h->lease_left.session == p->session && now - h->lease_left.at_us < LEFT_KNOWN_US;
    if (known) left_ms = h->lease_left.left_ms;
    pthread_mutex_unlock(&h->mu);
    if (!known) {
        if (hf__port_lease_left(&h->port, p->session, &left_ms, NULL) == HF_LOST) left_ms = 0;
        pthread_mutex_lock(&h->mu);
        h->lease_left.session = p->session;
        h->lease_left.left_ms = left_ms;
        h->lease_left.at_us = now;
        pthread_mutex_unlock(&h->mu);
    }
    to->left_ms = left_ms;
}

int hf__show_info(hf *h, const char *key, const hf_row *row, hf_info_fn *see, void *arg,
                  hf_error *err)
{
    uint32_t n = row->n_holders + row->n_queue;
    hf_party_info *parties = malloc((n ? n : 1) * sizeof *parties);
    hf_info *info = calloc(1, sizeof *info);
    int rc = HF_NOMEM;
    if (!parties || !info) {
        hf_fail(err, rc, 0, "show '%s': out of memory", key);
        goto out;
    }
    struct hf_time now = hf__port_now(&h->port);
    memcpy(info->key, key, strlen(key) + 1);
    info->rev = row->rev;
    info->token = row->token;
    info->now_us = now.lo_us;
    if (hf__marked(row, now)) {
        info->done_us = row->done_us;
        info->keep_until_us = row->keep_until_us == INT64_MAX ? HF_FOREVER : row->keep_until_us;
        memcpy(info->result, row->result, (size_t)row->result_len + 1);
        memcpy(info->done_by, row->done_by, (size_t)row->done_by_len + 1);
    }
    size_t k = 0;
    for (uint32_t i = 0; i < n; i++) {
        const hf_party *p = &row->party[i];
        if (hf__party_ended(h, p, now)) continue;
        show_party(p, now, &parties[k]);
        show_left(h, p, &parties[k++]);
        if (i < row->n_holders)
            info->n_holders++;
        else
            info->n_waiters++;
    }
    info->parties = parties;
    rc = see(arg, info) ? 1 : 0;
out:
    free(parties);
    free(info);
    return rc;
}

int hf_peek(hf *h, const char *key, hf_info_fn *see, void *arg, hf_error *err)
{
    HF_NOT_CANCELED;
    hf_rowkey k;
    hf_row row;
    int rc = hf_key_make(key, &k, err);
    if (!rc) rc = hf__begin_call(h, "show", err);
    if (rc) return rc;
    hf_row_init(&row);
    rc = hf__port_get(&h->port, &k, &row, err);
    if (!rc) rc = hf__show_info(h, key, &row, see, arg, err);
    hf_row_clear(&row);
    hf__end_call(h);
    return rc < 0 ? rc : 0;
}
