/*
 * cuts.h - what cuts.c (which byte, which fault), cuts_case.c (one operation, and what has to be
 * true of it afterwards) and cuts_wait.c (the same of a wait) share.
 */
#ifndef CUTS_H
#define CUTS_H

#include "holdfast.h"
#include "proxy.h"

#include <stdint.h>
#include <stdio.h>

enum cut_op {
    CUT_ACQUIRE,
    CUT_RENEW,
    CUT_RELEASE,
    CUT_BEGIN,
    CUT_FINISH,
    CUT_WAIT,  /* queueing, the handover, the claim, the release */
    CUT_LEAVE, /* queueing, and leaving the queue by its limit or by its caller */
    CUT_ENTER, /* the last: some stores don't have it */
    CUT_OPS
};
enum cut_end { CUT_OK, CUT_LOST, CUT_UNKNOWN, CUT_AWAY, CUT_ENDS };
/* How long an event may take on a busy machine; a case, before it counts as hanging; and a request
   that no proxy disturbs. */
enum { CUT_PATIENCE_MS = 300000, CUT_HANG_MS = 450000, CUT_BESIDE_MS = 60000 };
enum { CUT_SCENES = 10, CUT_PENDING = 512, CUT_IO_MS = 400, CUT_WORKERS = 64 };
/* How long a claim may take; and when none is over yet. */
enum { CUT_GRACE_MS = 120000, CUT_CLAIM_MS = 3000, CUT_LEAST_CLAIM_MS = 900 };
enum { CUT_NOBODY = 1 << 20 }; /* this many connections are refused: none gets through */

/* Of all workers. */
struct cut_tally {
    uint64_t cuts[CUT_OPS], scenes[CUT_OPS], ended[CUT_OPS][CUT_ENDS], resolved, orphans;
    int64_t length[CUT_OPS][2], longest_ms;
    int wrong, through, enters; /* this store has fences */
    char why[800], again[80];
    /* What each worker does, and since when (atomic). */
    struct {
        char at[80];
        int64_t since_ms;
    } worker[CUT_WORKERS];
};
extern struct cut_tally *cut_tally;

/* A key that may still be held by a lost grant, and until when at most; see cut_orphans. */
struct cut_orphan {
    char key[64];
    int64_t since_ms;
    uint64_t token;
};

/* A worker. */
struct cut_me {
    int number, lease, tick, keys;
    int timed;    /* the store's tokens are the times of the grants, by this machine's clock */
    int sessions; /* waiters stand with one, and are dead once it has ended */
    struct proxy proxy;
    hf *beside, *behind;   /* not through the proxy */
    hf *through, *patient; /* through it: one that soon gives a request up, one that doesn't */
    char at[80];           /* the case */
    struct cut_orphan orphan[CUT_PENDING];
    int orphans;
};
extern struct cut_me cut_me;

/* The grant that a case is about. */
struct cut_grant {
    char key[64];
    uint8_t id[16];
    hf *h;
    hf_lock *lock; /* NULL: there is none, or that isn't known */
    uint64_t token;
    int64_t asked_ms, lease_ms;
    int64_t granted_ms; /* the time in its token; 0: not known */
};

int64_t cut_ms(void);
/* The first one notes what this worker does; the second one starts the time of that anew. */
void cut_is_at(const char *format, ...) __attribute__((format(printf, 1, 2)));
void cut_goes_on(void);
void cut_wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Can a grant be shown to a fence in this store? */
int cut_enters(void);
/* How many bytes an undisturbed one has in this direction; -1: it failed. */
int64_t cut_length(enum cut_op op, enum proxy_way way);
/* Plays one operation under this order. `chance` decides what isn't decided otherwise. */
void cut_case(enum cut_op op, const struct proxy_order *order, unsigned chance);
/* Plays one of the other faults. */
void cut_scene(enum cut_op op, int scene);
const char *cut_scene_name(int scene);
/* Checks that lost grants are over; leaves at most that many to be checked later. */
void cut_orphans(int leave);

/* ---- for cuts_wait.c: a wait, another's in front of it, another's behind it ---- */

int cut_bad(const struct cut_grant *g, const char *what, int rc, const hf_error *why); /* -1 */
void cut_name_key(struct cut_grant *g);
hf_options cut_asks(const struct cut_grant *g, int64_t wait_ms);
int cut_away(int rc);
int cut_late(const struct cut_grant *g); /* returns 1 if its lease may be over */
/* Notes the grant's token, and the time in it. */
void cut_note_grant(struct cut_grant *g, const hf_lock *lock);
int cut_tell(const struct proxy_order *order, struct proxy_state *ret);
int cut_others_turn(const struct cut_grant *g, int64_t wait_ms);
int cut_resolve(struct cut_grant *g, int once);
void cut_count(enum cut_op op, int rc);

static inline int cut_waits(enum cut_op op) { return op == CUT_WAIT || op == CUT_LEAVE; }
int64_t cut_wait_length(enum cut_op op, enum proxy_way way);
void cut_wait_case(enum cut_op op, const struct proxy_order *order, unsigned chance);
void cut_wait_scene(enum cut_op op, const struct proxy_order *order);

#endif
