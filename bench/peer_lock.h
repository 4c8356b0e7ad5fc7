/*
 * peer_lock.h - what the peers that lock in a database's connection share: bench-peer-NAME URL
 * ROUNDS ROUND_MS HANDOVERS WARM_MS measures acquire and release, a bare conditional write, the
 * handover. Each has a file peer_NAME.c; peer_lock.c measures it.
 */
#ifndef PEER_LOCK_H
#define PEER_LOCK_H

enum { LOCK_ALONE, LOCK_HANDOVER }; /* which lock */

struct lock_peer {
    void (*connect)(const char *url); /* one connection of this process */
    void (*take)(int lock);           /* waits for it */
    void (*give)(int lock);
    void (*write)(void);
    int (*is_wanted)(void); /* does anybody wait for LOCK_HANDOVER? */
    void (*close)(void);
};
extern const struct lock_peer lock_peer;

#endif
