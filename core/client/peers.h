/*
 * peers.h - the sessions that waits depend on (stores with wakeups).
 *
 * A wait that stands in line depends on the sessions of all that stand before it in its row: of
 * the holders, if it is the first; of the one ahead of it; and of the others when those are gone.
 * They are noted by session (peers), so that a death leads at once to the waits that depend on it.
 * A party that comes to a row later stands behind; so what was noted at the last read may be too
 * much, but never too little.
 */
#ifndef HF_PEERS_H
#define HF_PEERS_H

#include "holdfast_driver.h"

struct hf_wait;

enum {
    HF_FEW_WAITS = 256
}; /* with no more waits at the store than this, a death makes all of them
      look */

struct hf_peer_link {                  /* that a wait depends on */
    struct hf_peer_link *next, **prev; /* of the peer's */
    struct hf_peer_link *of_wait;
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
    uint32_t unknown; /* how many waits depend on too many sessions, or on some that aren't noted */
};

/* Notes that the wait depends on the sessions of the first `ahead` parties of the row. Under the
   mutex, as the next one. */
void hf__note_peers(struct hf_wait *w, const hf_row *row, uint32_t ahead);
void hf__forget_peers(struct hf_wait *w);
void hf__peers_close(hf *h);

#endif
