/*
 * leases.c - sessions as leases of etcd's: made, kept, ended; and how to know that one is over.
 *
 * The leader of an etcd cluster counts down and extends leases without asking the other members.
 * Only the end of a lease goes through the log. A leader that was paused or cut off may believe
 * that it still leads. Such an old leader can do two things wrong (etcd issues 12528 and 15247):
 *
 * 1. It extends a lease, and its successor lets the lease run out. That does no harm: a client
 *    counts a keepalive only after a majority has confirmed the old leader's term (led_still).
 * 2. It lets a lease run out that its successor has extended: its request to revoke the lease is
 *    forwarded to the new leader, which obeys.
 *
 * Raft terms tell whether the second may have happened. An old leader doesn't know leases that were
 * made in later terms than its own. The number of a session contains the term in which, or after
 * which, the session was made. If the cluster still is in that term, only the leader of that term
 * can have ended the session, and it knows of all its own extensions. A reply names the term of the
 * last log entry that the member has applied, and each term begins with an entry. So a request that
 * is made after a term was seen is carried out in that term or a later one; and what a reply shows
 * has happened in the reply's term or an earlier one.
 *
 * If a holder's session is missing and the term is a later one, the session may have been extended
 * just before. So the client that sees this puts the session's key back, under a lease of the same
 * length that isn't kept alive, and notes that lease: K \t SESSION "." (etcd.h). When that lease is
 * gone, too, the holder no longer believes that it holds, whichever leader was wrong. If the term
 * has changed again meanwhile, the key is put back again. To make this rare, a session of an
 * earlier term is stale: holds that go on are moved to a new session.
 *
 * A waiter holds nothing yet, so a waiter whose session is missing counts as dead at once.
 */
#include "etcd.h"

#include "kit/text.h"
#include "os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TERM_BITS = 16, LENGTH_BITS = 8, COUNT_BITS = 24, ADDRESS_BITS = 15 };

/* ---- the number of a session ---- */

/*
 * Makes the number of a new session, of 63 bits:
 *   - 15 bits that the handle has drawn. All its sessions begin with these digits, so one range
 *     covers all its inboxes. If two handles have drawn the same, each gets the other's
 *     notifications, too, which does no harm.
 *   - a count of 24 bits that begins at a random number, so that numbers don't repeat, even if the
 *     cluster is made anew.
 *   - the length in seconds: a number below 16; or a number of four bits, the first of which is 1,
 *     and how often to double it. It is rounded up by an eighth at most.
 *   - the term, modulo 2^16; 0: not known.
 */
static uint64_t number_of(hf_store *st, int64_t s, int64_t term)
{
    uint64_t length = 0, count = __atomic_add_fetch(&st->count, 1, __ATOMIC_RELAXED);
    for (; s >= 16; length += 8) s = (s + 1) / 2;
    length += (uint64_t)s;
    return (uint64_t)st->address << (COUNT_BITS + LENGTH_BITS + TERM_BITS) |
           (count & ((1 << COUNT_BITS) - 1)) << (LENGTH_BITS + TERM_BITS) | length << TERM_BITS |
           ((uint64_t)term & ((1 << TERM_BITS) - 1));
}

void hf__et_sessions_open(hf_store *st)
{
    hf__random(&st->address, sizeof st->address);
    hf__random(&st->count, sizeof st->count);
    st->address = st->address % ((1 << ADDRESS_BITS) - 1) + 1; /* not 0: no session is 0 */
}

void hf__et_address(const hf_store *st, char ret[HF_ET_ADDRESS_CAP], int behind)
{
    snprintf(ret, HF_ET_ADDRESS_CAP, "\t%04x", (st->address + (behind != 0)) & 0xffff);
}

int64_t hf__et_session_s(uint64_t session)
{
    int64_t length = (int64_t)(session >> TERM_BITS & ((1 << LENGTH_BITS) - 1));
    return length < 16 ? length : (length % 8 + 8) << (length / 8 - 1);
}

int hf__et_made_in(uint64_t session, int64_t term)
{
    uint64_t made = session & ((1 << TERM_BITS) - 1);
    return made && made == ((uint64_t)term & ((1 << TERM_BITS) - 1));
}

/* Returns 1 if the present term is later than the session's; terms wrap around at 2^16. A session
   without a known term isn't stale: a new session would be no better. */
int hf__et_session_stale(hf_store *st, uint64_t session)
{
    uint16_t made = (uint16_t)session;
    uint16_t now = (uint16_t)__atomic_load_n(&st->http.term, __ATOMIC_ACQUIRE);
    return made && (int16_t)(now - made) > 0;
}

/* ---- requests ---- */

/* Forgets own sessions that have ended at least one session length ago. Sessions also end without a
   request of this handle, so the list would grow for ever otherwise. The caller holds st->mu. */
static void own_sweep(hf_store *st, int64_t now_us)
{
    size_t n = 0;
    for (size_t i = 0; i < st->n_own; i++)
        if (st->own[i].until_us + hf__et_session_s(st->own[i].session) * 1000000 > now_us)
            st->own[n++] = st->own[i];
    st->n_own = n;
}

static int own_add(hf_store *st, uint64_t session, int64_t ms)
{
    int ok = 1;
    int64_t now_us = hf__local_us();
    pthread_mutex_lock(&st->mu);
    if (st->n_own * 2 >= st->own_cap) own_sweep(st, now_us);
    if (st->n_own * 2 >= st->own_cap) {
        size_t cap = st->own_cap ? st->own_cap * 2 : 8;
        struct hf__et_own *more = realloc(st->own, cap * sizeof *more);
        ok = more != NULL;
        if (more) {
            st->own = more;
            st->own_cap = cap;
        }
    }
    if (ok) st->own[st->n_own++] = (struct hf__et_own){session, now_us + ms * 1000};
    pthread_mutex_unlock(&st->mu);
    return ok;
}

static void own_kept(hf_store *st, uint64_t session, int64_t ms)
{
    pthread_mutex_lock(&st->mu);
    for (size_t i = 0; i < st->n_own; i++)
        if (st->own[i].session == session) st->own[i].until_us = hf__local_us() + ms * 1000;
    pthread_mutex_unlock(&st->mu);
}

static void own_drop(hf_store *st, uint64_t session)
{
    pthread_mutex_lock(&st->mu);
    for (size_t i = 0; i < st->n_own; i++)
        if (st->own[i].session == session) {
            memmove(&st->own[i], &st->own[i + 1], (--st->n_own - i) * sizeof *st->own);
            break;
        }
    pthread_mutex_unlock(&st->mu);
}

/* Makes a request about one lease. */
static int ask(hf_store *st, enum hf__et_call call, uint64_t session, struct hf__et_reply *ret,
               const char *what, hf_error *err)
{
    char name[24];
    HfEt__LeaseRequest request = HF_ET__LEASE_REQUEST__INIT;
    snprintf(name, sizeof name, "%016llx", (unsigned long long)session);
    request.has_id = 1;
    request.id = (int64_t)session;
    return hf__et_post(&st->http, call, &request.base, NULL, HF_UNAVAILABLE, ret, what, name, err);
}

/* Makes a lease of `s` seconds. Its number names the term that was seen last; the lease is made in
   that term or a later one. *ret_ttl: how many seconds the server has given it. */
static int grant(hf_store *st, int64_t s, uint64_t *ret, int64_t *ret_ttl, int64_t *ret_clock_us,
                 hf_error *err)
{
    struct hf__et_reply reply = {NULL, 0, 0};
    uint64_t session = number_of(st, s, __atomic_load_n(&st->http.term, __ATOMIC_ACQUIRE));
    HfEt__LeaseGrantRequest request = HF_ET__LEASE_GRANT_REQUEST__INIT;
    char name[24];
    snprintf(name, sizeof name, "%016llx", (unsigned long long)session);
    request.has_id = request.has_ttl = 1;
    request.id = (int64_t)session;
    request.ttl = s;
    int rc = hf__et_post(&st->http, HF_ET_LEASE_GRANT, &request.base, NULL, HF_UNKNOWN, &reply,
                         "lease", name, err);
    if (rc) return rc;
    const HfEt__LeaseGrantResponse *is = (HfEt__LeaseGrantResponse *)reply.message;
    if (is->error && *is->error)
        rc = hf_fail(err, HF_UNKNOWN, 0, "etcd: lease '%s': the server says: %.200s", name,
                     hf__is_utf8(is->error, strlen(is->error)) ? is->error : "an error");
    *ret = session;
    *ret_ttl = is->ttl;
    *ret_clock_us = reply.clock_us;
    hf__et_free(&reply);
    return rc;
}

int hf__et_session_make(hf_store *st, int64_t lease_ms, uint64_t *ret, int64_t *ret_ms,
                        int64_t *ret_clock_us, hf_error *err)
{
    uint64_t session;
    int64_t ttl;
    int rc = grant(st, (lease_ms + 999) / 1000, &session, &ttl, ret_clock_us, err);
    if (rc) return rc;
    *ret_ms = ttl * 1000;
    if (*ret_ms < lease_ms)
        rc = hf_fail(err, HF_UNAVAILABLE, 0,
                     "etcd: make a lease: the server gives %lld ms instead of %lld",
                     (long long)*ret_ms, (long long)lease_ms);
    else if (!own_add(st, session, *ret_ms))
        rc = hf_fail(err, HF_NOMEM, 0, "etcd: lease: out of memory");
    if (!rc) *ret = session;
    return rc;
}

/* Such a lease isn't in the list of own sessions, because nothing is held with it. */
int hf__et_lease_unkept(hf_store *st, int64_t s, uint64_t *ret)
{
    int64_t ttl, clock_us;
    return grant(st, s, ret, &ttl, &clock_us, NULL) || ttl < s ? HF_UNAVAILABLE : 0;
}

/*
 * Checks that the member which extended a lease was the leader: an old leader's extension isn't
 * known to its successor (etcd issue 15247). `term` is the term in the reply to the keepalive,
 * which is that from before the extension. A linearizable read is confirmed by a majority. If such
 * a read comes after the keepalive and shows the same term, no new leader had been elected when the
 * lease was extended.
 */
static int led_still(hf_store *st, uint64_t session, int64_t term, int64_t keep_until_us,
                     const char *what, hf_error *err)
{
    struct hf__et_reply reply = {NULL, 0, 0};
    char name[24];
    snprintf(name, sizeof name, "%016llx", (unsigned long long)session);
    struct hf__et_mem mem = {NULL, 0};
    HfEt__RangeRequest request = HF_ET__RANGE_REQUEST__INIT;
    request.has_key = request.has_count_only = request.count_only = 1;
    request.key = hf__et_key(st, &mem, "", "");
    int rc = keep_until_us ? hf__et_post_keep(&st->http, HF_ET_RANGE, &request.base, &mem,
                                              keep_until_us, &reply, what, name, err)
                           : hf__et_post(&st->http, HF_ET_RANGE, &request.base, &mem,
                                         HF_UNAVAILABLE, &reply, what, name, err);
    hf__et_mem_free(&mem);
    if (rc) return rc;
    if (!term || reply.term != term)
        rc = hf_fail(err, HF_UNAVAILABLE, 0,
                     "etcd: %s '%s': the leader may have changed, so the answer doesn't count",
                     what, name);
    hf__et_free(&reply);
    return rc;
}

int hf__et_session_keep(hf_store *st, uint64_t session, int64_t until_us, int64_t *ret_ms,
                        hf_error *err)
{
    struct hf__et_reply reply = {NULL, 0, 0};
    HfEt__LeaseRequest request = HF_ET__LEASE_REQUEST__INIT;
    char name[24];
    int64_t patience_us = until_us - hf__local_us();
    snprintf(name, sizeof name, "%016llx", (unsigned long long)session);
    request.has_id = 1;
    request.id = (int64_t)session;
    int rc = hf__et_post_keep(&st->http, HF_ET_LEASE_KEEP, &request.base, NULL, until_us, &reply,
                              "keep", name, err);
    if (rc) return rc;
    /* The second request (led_still) gets at least half of the time, even if until_us has come. */
    int64_t least_us = hf__local_us() + patience_us / 2;
    if (until_us < least_us) until_us = least_us;
    int64_t ms = ((HfEt__LeaseResponse *)reply.message)->ttl * 1000, term = reply.term;
    hf__et_free(&reply);
    if (ms <= 0)
        return hf_fail(err, HF_LOST, 0, "etcd: keep '%016llx': the lease has run out",
                       (unsigned long long)session);
    own_kept(st, session, ms); /* even if an old leader has kept it: it may live that long */
    rc = led_still(st, session, term, until_us, "keep", err);
    if (!rc) *ret_ms = ms;
    return rc;
}

int hf__et_session_left(hf_store *st, uint64_t session, int64_t *ret_ms, hf_error *err)
{
    struct hf__et_reply reply = {NULL, 0, 0};
    int rc = ask(st, HF_ET_LEASE_LEFT, session, &reply, "look", err);
    if (rc) return rc;
    int64_t ms = ((HfEt__LeaseResponse *)reply.message)->ttl * 1000, term = reply.term;
    hf__et_free(&reply);
    if (ms < 0)
        return hf_fail(err, HF_LOST, 0, "etcd: look '%016llx': the lease has run out",
                       (unsigned long long)session);
    rc = led_still(st, session, term, 0, "look", err);
    if (!rc) *ret_ms = ms;
    return rc;
}

int hf__et_session_end(hf_store *st, uint64_t session, hf_error *err)
{
    struct hf__et_reply reply = {NULL, 0, 0};
    own_drop(st, session);
    int rc = ask(st, HF_ET_LEASE_REVOKE, session, &reply, "end", err);
    hf__et_free(&reply);
    return rc;
}
