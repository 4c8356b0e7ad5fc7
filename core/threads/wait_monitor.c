/*
 * wait_monitor.c - what the tender notices for those who wait in a store with bells: the end of a
 * holder's lease, a claim that runs out, the death of a session that the key depends on.
 *
 * A wait that stands in line depends on the sessions of all that stand before it in its row: of
 * the holders, if it is the first; of the one ahead of it; and of the others when those are gone.
 * They are noted by session (peers), so that of many waits a death leads to those that it is for
 * at once. Who comes to a row later stands
 * behind; so what was noted when it was read last may be too much, but never too little.
 */
#include "handle.h"
#include "os.h"

#include <stdlib.h>
#include <string.h>

enum { BLIND_HEAD_US = 10000, NOTICES_AT_ONCE = 64, FEWEST_PEERS = 16, PEERS_MOST = 32 };
enum { FEW_WAITS = 256, SWEEP_LEAST_US = 1000000, SWEEP_MOST_US = 4000000 };

/* Whatever was missed: each waiter is looked at now and then. */
static const int64_t NET_US = 30000000;

/* ---- the sessions that waits depend on ---- */

struct hf_peer { /* a session */
    struct hf_peer *next;
    struct hf_peer_link *links;
    uint64_t session;
};

struct hf_peer_link {                  /* that a wait depends on */
    struct hf_peer_link *next, **prev; /* of the peer's */
    struct hf_peer_link *of_wait;
    struct hf_peer *peer;
    struct hf_wait *w;
};

static uint32_t bucket_of(const struct hf_peers *all, uint64_t session)
{
    return (uint32_t)((session * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (all->buckets - 1);
}

static int grow(struct hf_peers *all)
{
    struct hf_peers more = {.buckets = all->buckets ? all->buckets * 4 : FEWEST_PEERS};
    more.table = calloc(more.buckets, sizeof *more.table);
    if (!more.table) return HF_NOMEM;
    for (uint32_t i = 0; i < all->buckets; i++)
        for (struct hf_peer *p = all->table[i], *next; p; p = next) {
            struct hf_peer **at = &more.table[bucket_of(&more, p->session)];
            next = p->next;
            p->next = *at;
            *at = p;
        }
    free(all->table);
    all->table = more.table;
    all->buckets = more.buckets;
    return 0;
}

/* NULL: out of memory. */
static struct hf_peer *peer_of(struct hf_peers *all, uint64_t session)
{
    if (all->n >= all->buckets && grow(all) && !all->buckets) return NULL;
    struct hf_peer **at = &all->table[bucket_of(all, session)];
    for (struct hf_peer *p = *at; p; p = p->next)
        if (p->session == session) return p;
    struct hf_peer *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->session = session;
    p->next = *at;
    *at = p;
    all->n++;
    return p;
}

static void forget_peer(struct hf_peers *all, struct hf_peer *p)
{
    struct hf_peer **at = &all->table[bucket_of(all, p->session)];
    while (*at != p) at = &(*at)->next;
    *at = p->next;
    free(p);
    all->n--;
}

void hf__forget_peers(struct hf_wait *w)
{
    w->h->peers.unknown -= w->peers_unknown;
    w->peers_unknown = 0;
    for (struct hf_peer_link *l; (l = w->peers);) {
        w->peers = l->of_wait;
        *l->prev = l->next;
        if (l->next) l->next->prev = l->prev;
        if (!l->peer->links) forget_peer(&w->h->peers, l->peer);
        free(l);
    }
}

static int depends_on(const struct hf_wait *w, uint64_t session)
{
    for (const struct hf_peer_link *l = w->peers; l; l = l->of_wait)
        if (l->peer->session == session) return 1;
    return 0;
}

/* 0, or HF_NOMEM. */
static int depend_on(struct hf_wait *w, uint64_t session)
{
    struct hf_peer *p = peer_of(&w->h->peers, session);
    struct hf_peer_link *l = p ? malloc(sizeof *l) : NULL;
    if (!l) {
        if (p && !p->links) forget_peer(&w->h->peers, p);
        return HF_NOMEM;
    }
    *l = (struct hf_peer_link){p->links, &p->links, w->peers, p, w};
    if (l->next) l->next->prev = &l->next;
    p->links = l;
    w->peers = l;
    return 0;
}

void hf__note_peers(struct hf_wait *w, const hf_row *row, uint32_t ahead)
{
    hf *h = w->h;
    int few = h->n_at_store <= FEW_WAITS; /* all of which are looked after at each death */
    if (few && w->peers_unknown) return;
    int same = !few && !w->peers_unknown && ahead <= PEERS_MOST;
    for (uint32_t i = 0; i < ahead && same; i++) {
        uint64_t session = row->party[i].session;
        same = !session || session == h->port.session || depends_on(w, session);
    }
    if (same) return; /* of those that are gone it isn't worth while to forget it */
    hf__forget_peers(w);
    w->peers_unknown = few || ahead > PEERS_MOST;
    for (uint32_t i = 0; i < ahead && !w->peers_unknown; i++) {
        uint64_t session = row->party[i].session;
        if (!session || session == h->port.session || depends_on(w, session)) continue;
        w->peers_unknown = depend_on(w, session) != 0;
    }
    h->peers.unknown += w->peers_unknown;
}

void hf__peers_close(hf *h) { free(h->peers.table); }

/* Does the session of the one that is waited for live? Asked once a round, however many wait for
   it. What can't be said counts as alive, and is asked again. */
static int lives(hf *h, uint64_t session, int *ret_unsure)
{
    if (!session || session == h->port.session) return 1;
    struct hf_round *r = &h->round;
    for (uint32_t i = 0; i < r->n && i < HF_ROUND_CAP; i++)
        if (r->session[i] == session) return r->alive[i];
    int alive = h->port.drv->alive(h->port.st, session, NULL);
    if (alive < 0) *ret_unsure = 1;
    uint32_t at = r->n++ % HF_ROUND_CAP;
    r->session[at] = session;
    r->alive[at] = alive != 0;
    return alive != 0;
}

/* Is there something about the one ahead of the waiter at `at` that somebody has to act upon? In
 *next: when to look again. */
static int to_notice(const struct hf_wait *w, const hf_row *row, int64_t at, int64_t *next)
{
    hf *h = w->h;
    int64_t place = at - (int64_t)row->n_holders, lo = hf__port_now(&h->port).lo_us;
    int64_t now = hf__local_us();
    int unsure = 0, act = 0;
    *next = now + (place + 1) * NET_US;
    for (uint32_t i = 0; i < row->n_holders; i++) {
        const hf_party *p = &row->party[i];
        if (p->expires_us) {
            int64_t left = p->expires_us - lo;
            *next = hf__min64(*next,
                              now + (left > 0 ? left : 0) + 1 + hf__stagger_us(w, (uint32_t)place));
            act |= left <= 0;
        }
        if (!place && !lives(h, p->session, &unsure)) act = 1;
    }
    if (place && !lives(h, row->party[at - 1].session, &unsure)) act = 1;
    if (h->mourning < 0) /* no word of deaths: look */
        *next = hf__min64(*next, now + (place ? HF_POLL_MS * 1000 : BLIND_HEAD_US));
    if (unsure) *next = hf__min64(*next, now + HF_POLL_MS * 1000);
    return act || !row->n_holders;
}

/* What somebody should notice for this wait: the end of a holder, of a handed-over grant, of the
   one ahead. Under the mutex, dropped; the wait is pinned, which keeps it in the list. */
static void notice(hf *h, struct hf_wait *w)
{
    struct hf_event ev = {.kind = HF_EV_PROMOTE};
    struct hf_outcome out;
    hf_row row;
    int64_t at = -1, next = INT64_MAX;
    memcpy(ev.id, w->party.id, 16);
    w->pins++;
    hf__deadline_drop(&h->notices, &w->notice);
    pthread_mutex_unlock(&h->mu);
    hf_row_init(&row);
    int rc = hf__port_get(&h->port, &w->e->key, &row, NULL), stands = 0, wake = 0;
    if (!rc) at = hf__find_id(&row, w->party.id);
    if (!rc && at >= (int64_t)row.n_holders && to_notice(w, &row, at, &next)) {
        rc = hf__turn(&h->port, &w->e->key, &ev, &row, 1, 0, &out, NULL);
        if (!rc) hf__promise(h, w->e, &row);
        at = rc ? -1 : hf__find_id(&row, w->party.id);
        if (!rc && at >= (int64_t)row.n_holders) to_notice(w, &row, at, &next);
    }
    if (rc) next = hf__local_us() + HF_POLL_MS * 1000;
    /* A store that is gone for good is told to who waits, too. */
    int gone = rc && rc != HF_UNAVAILABLE && rc != HF_UNKNOWN;
    stands = !rc && at >= (int64_t)row.n_holders;
    /* It has been granted, perhaps by one who died before it could ring. Or it was, and has lost
       that again in its sleep (broken, or the claim ran out): it has to ask anew. */
    wake = gone || (!rc && !stands);
    pthread_mutex_lock(&h->mu);
    if (stands) hf__note_peers(w, &row, (uint32_t)at);
    if (!w->notice.nth || next < w->notice.at_us) hf__notice_at(w, next);
    if (wake && w->pumped) {
        hf__notify(w);
        hf__kick_pump(h);
    }
    uint8_t bell = w->party.bell;
    if (!--w->pins) pthread_cond_broadcast(&w->changed);
    hf_row_clear(&row);
    if (!wake || w->pumped) return;
    pthread_mutex_unlock(&h->mu);
    h->port.drv->interrupt(h->port.st, bell);
    pthread_mutex_lock(&h->mu);
}

int64_t hf__tend_waits(hf *h)
{
    h->round.n = 0;
    for (int n = 0; n < NOTICES_AT_ONCE; n++) {
        int64_t at_us = hf__deadlines_next(&h->notices);
        if (at_us == INT64_MAX || at_us > hf__local_us()) return at_us;
        struct hf_wait *w = HF_DEADLINE_OF(h->notices.first, struct hf_wait, notice);
        if (w->state == HF_W_AT_STORE && w->queued) {
            notice(h, w);
            continue;
        }
        hf__deadline_drop(&h->notices, &w->notice);
        w->unnoticed = 1; /* it is looked after when it stands in line */
    }
    return 0; /* at once, behind the locks */
}

void hf__look_after_waits(hf *h)
{
    for (struct hf_wait *w = h->at_store; w; w = w->list_next) hf__notice_at(w, 0);
}

/* May all of many waits be looked after? Not more often than that they take a twentieth of a
   processor, but some time behind each death. */
static int may_sweep(hf *h)
{
    int64_t now_us = hf__local_us(), pause_us = h->n_at_store * INT64_C(20);
    if (h->n_at_store <= FEW_WAITS || !h->port.session) return 1;
    if (now_us < h->sweep_at_us) return 0;
    if (pause_us < SWEEP_LEAST_US) pause_us = SWEEP_LEAST_US;
    h->sweep_at_us = now_us + (pause_us < SWEEP_MOST_US ? pause_us : SWEEP_MOST_US);
    return 1;
}

/*
 * A session may have died: of many waits those that depend on one that has are looked after at
 * once. The others are, too, but of many not each time: the dead may have been about to grant a key
 * that it neither held nor waited for before them. What can't be said of a session is asked by who
 * depends on it, who says then that the store is gone.
 */
void hf__look_for_deaths(hf *h)
{
    struct hf_peers *all = &h->peers;
    if (may_sweep(h)) {
        hf__look_after_waits(h);
        return;
    }
    for (uint32_t i = 0; i < all->buckets; i++)
        for (const struct hf_peer *p = all->table[i]; p; p = p->next) {
            if (h->port.drv->alive(h->port.st, p->session, NULL) > 0) continue;
            for (struct hf_peer_link *l = p->links; l; l = l->next) hf__notice_at(l->w, 0);
        }
    int whole = h->port.drv->alive(h->port.st, h->port.session, NULL) > 0;
    for (struct hf_wait *w = h->at_store; w && (all->unknown || !whole); w = w->list_next)
        if (w->peers_unknown || !whole) hf__notice_at(w, 0);
}

/* ---- claims ---- */

/* Grants that were handed over from here: passed on when their claim has run out. */
void hf__promise(hf *h, struct hf_entry *e, const hf_row *row)
{
    int64_t first = INT64_MAX;
    if (!(h->port.can & HF_CAN_BELLS)) return; /* there the waiters look by themselves */
    for (uint32_t i = 0; i < row->n_holders; i++)
        if (row->party[i].flags & HF_PARTY_UNCLAIMED && row->party[i].session != h->port.session)
            first = hf__min64(first, row->party[i].expires_us);
    if (first == INT64_MAX) return;
    int64_t at = hf__local_us() + first - hf__port_now(&h->port).lo_us + 1000;
    pthread_mutex_lock(&h->mu);
    if (!e->promise.nth) e->refs++;
    hf__deadline_set(&h->promises, &e->promise, at);
    if (!hf__need_tender(h, NULL)) hf__kick_tender(h, at);
    pthread_mutex_unlock(&h->mu);
}

static void keep_promise(hf *h, struct hf_entry *e)
{
    struct hf_event ev = {.kind = HF_EV_PROMOTE};
    struct hf_outcome out;
    hf_row row;
    hf_row_init(&row);
    pthread_mutex_unlock(&h->mu);
    int rc = hf__turn(&h->port, &e->key, &ev, &row, 0, 0, &out, NULL);
    if (!rc) hf__promise(h, e, &row);
    hf_row_clear(&row);
    pthread_mutex_lock(&h->mu);
    hf__entry_put(e);
}

/* When to look again. Under the mutex, dropped. */
int64_t hf__tend_promises(hf *h)
{
    for (int n = 0; n < NOTICES_AT_ONCE; n++) {
        int64_t at_us = hf__deadlines_next(&h->promises);
        if (at_us == INT64_MAX || at_us > hf__local_us()) return at_us;
        struct hf_entry *e = HF_DEADLINE_OF(h->promises.first, struct hf_entry, promise);
        hf__deadline_drop(&h->promises, &e->promise);
        keep_promise(h, e);
    }
    return 0;
}
