/*
 * peers.c - see peers.h.
 */
#include "peers.h"

#include "handle.h"

#include <stdlib.h>

enum { FEWEST_PEERS = 16, PEERS_MOST = 32 };

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

/* Returns the peer of this session, made if it is missing. NULL: out of memory. */
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

/* Notes that the wait depends on this session. Returns 0 or HF_NOMEM. */
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
    int few = h->n_at_store <= HF_FEW_WAITS; /* then each death makes all waits look */
    if (few && w->peers_unknown) return;
    int same = !few && !w->peers_unknown && ahead <= PEERS_MOST;
    for (uint32_t i = 0; i < ahead && same; i++) {
        uint64_t session = row->party[i].session;
        same = !session || session == h->port.session || depends_on(w, session);
    }
    if (same)
        return; /* sessions that are no longer ahead stay noted: removing them isn't worth the
                   time */
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
