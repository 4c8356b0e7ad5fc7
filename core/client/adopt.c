/*
 * adopt.c - a lock for a grant that was made elsewhere, as by `holdfast acquire`.
 */
#include "handle.h"
#include "lock.h"
#include "os.h"
#include "session.h"
#include "validity.h"

int hf_adopt(hf *h, const char *key, uint64_t token, hf_lock **ret, hf_error *err)
{
    struct hf_entry *e;
    hf_row row;
    int rc = hf__begin_call(h, "adopt", err);
    if (rc) return rc;
    const struct hf_name name = hf__name(key);
    pthread_mutex_lock(&h->mu);
    rc = hf__entry(h, name, &e, err);
    pthread_mutex_unlock(&h->mu);
    if (rc) {
        hf__end_call(h);
        return rc;
    }
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
        *ret = l;
    } else {
        hf__entry_unref(e);
    }
    pthread_mutex_unlock(&h->mu);
    hf_row_clear(&row);
    hf__end_call(h);
    return rc;
}
