/*
 * peers.h - the sessions that waits depend on (stores with wakeups).
 *
 * A queued wait depends on the sessions of all parties before it in its row: now on the holders',
 * if it is the first waiter, or on that of the waiter just ahead; on the others when those are
 * gone. A handle keeps a list of waits for each such session (hf_peer), so that a death leads at
 * once to the waits that depend on it. A party that enters the row later stands behind the wait. So
 * the list made at the last read may have too many sessions, but never too few.
 */
#ifndef HF_PEERS_H
#define HF_PEERS_H

#include "holdfast_driver.h"

struct hf_wait;

enum {
    HF_FEW_WAITS = 256
}; /* if a handle has no more waits at the store than this, no sessions are noted, and
      a death makes all waits look */

struct hf_peer_link {                  /* wait `w` depends on `peer` */
    struct hf_peer_link *next, **prev; /* in the peer's list */
    struct hf_peer_link *of_wait;      /* the next link of the same wait */
    struct hf_peer *peer;
    struct hf_wait *w;
};

struct hf_peer { /* a session */
    struct hf_peer *next;
    struct hf_peer_link *links;
    uint64_t session;
};

/* The sessions that waits of this handle depend on, in a hash table. */
struct hf_peers {
    struct hf_peer **table;
    uint32_t buckets, n;
    uint32_t unknown; /* how many waits depend on sessions that aren't all noted */
};

/* Notes that the wait depends on the sessions of the first `ahead` parties of the row. Under the
   mutex. */
void hf__note_peers(struct hf_wait *w, const hf_row *row, uint32_t ahead);
/* Removes all that was noted for the wait. Under the mutex. */
void hf__forget_peers(struct hf_wait *w);
/* Frees the table, when no wait is left. */
void hf__peers_close(hf *h);

#endif
