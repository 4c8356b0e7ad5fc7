/*
 * session.h - sessions that end by themselves unless they are kept (stores with hf_session_ops).
 *
 * Such a store has no clock that a lease could be counted by, but it counts one itself: the life of
 * a session. Each session of ours has the length of a lease, and is known by its end in the
 * local clock: the moment before the request that made it or kept it, plus its length. The store
 * counts from a later one.
 *
 * Holds of one lease length share a session, and all waits share another, short one, as long as a
 * claim may take: a waiter that doesn't claim its handover is passed over when that ends. The
 * session keepers (core/threads/keepers.c) keep them, however many hang on them, every third of
 * their length; how many requests that takes is the driver's matter. A hold
 * that isn't renewed, or that outlives this handle, has a session of its own. Where a session wears
 * out (etcd: when there is a new leader) holds go over to a new one when they are renewed.
 *
 * What is over once stays over: a session that was kept too late is dead to us, whatever the store
 * says.
 *
 * All of it is under the handle's mutex, and may drop it where that is said.
 */
#ifndef HF_SESSION_H
#define HF_SESSION_H

#include "port.h"

struct hf_sessions;

struct hf_session {
    struct hf_session *next;
    uint64_t id;            /* the store's */
    int64_t until_us;       /* local: a holder with this session believes until then */
    int64_t lives_until_us; /* local: the store lets the session live until then at least */
    int64_t keep_at_us;     /* local: when to keep it; INT64_MAX: it isn't kept */
    int64_t used_at_us;     /* local: since when no hold or wait uses it */
    uint32_t lease_ms, users;
    uint8_t own;     /* one grant's alone */
    uint8_t adopted; /* it was made elsewhere and lives until until_us at least; its real end isn't
                        known */
    uint8_t foreign; /* another process's */
    uint8_t left;    /* this handle doesn't end it: it outlives the handle, or may run out */
    uint8_t gone;    /* over */
    uint8_t busy, mute; /* a request to keep it is under way; the last one wasn't answered */
    hf_error *why;      /* the error of the first failure to keep it since the last success; NULL:
                           none */
};

/* The threads that keep the sessions: core/threads/keepers.c. */
enum { HF_KEEPERS = 4 };

struct hf_keepers {
    pthread_t thread[HF_KEEPERS];
    uint32_t n, idle;
    int64_t try_at_us;   /* local: before it no thread is started, for the last try failed */
    pthread_cond_t work; /* a session was made, or is to be kept earlier than before */
};

/* Callbacks into the threads above, which are called when sessions change. Under the mutex. */
struct hf_sessions_above {
    void (*lost)(hf *h, const struct hf_session *s);        /* it is over */
    void (*ends_sooner)(hf *h, const struct hf_session *s); /* than was said before */
    int (*need_renewer)(hf *h, hf_error *err); /* starts the thread that calls hf__sessions_tend */
    void (*wake_renewer)(hf *h);
    /* Tells the keepers that a session was made, or is to be kept at another time. Returns 0 if
       there is no thread that would keep it. */
    int (*kick_keepers)(struct hf_sessions *all);
};

struct hf_sessions {
    const struct hf_sessions_above *above;
    hf *of; /* whose they are: for `above` */
    struct hf_port *port;
    pthread_mutex_t *mu;
    pthread_cond_t *changed;         /* signalled when a session was made, or is no longer being
                                        kept */
    struct hf_session *all, *ending; /* ending: sessions without users, which the store is to be
                                        asked to end */
    uint32_t making;                 /* shared sessions that are being made */
    int closed;                      /* nothing is kept any more */
    struct hf_keepers keepers;
};

/* Sees to it that *at, the caller's reference or NULL, is a session with at least half of its time
   left: keeps the session, or makes another one. Called with the mutex, which is released during
   requests. */
int hf__session_have(struct hf_sessions *all, uint32_t lease_ms, int own, struct hf_session **at,
                     hf_error *err);
/* Gives up one reference; NULL is allowed. */
void hf__session_put(struct hf_sessions *all, struct hf_session *s);
/* Returns 1 if others would learn of this session's death later than of a new one's. Then holds
   that go on move to a new session. */
int hf__session_stale(const struct hf_sessions *all, const struct hf_session *s);
/* Asks the store to keep the session, unless another thread does so already. Called with the mutex,
   which is released during the request. Returns: 0; HF_LOST: the session is over, and so is every
   grant that is bound to it; another code: the store did not answer. */
int hf__session_keep(struct hf_sessions *all, struct hf_session *s, hf_error *err);
/* Returns a session for a grant that another handle has made, which lives for `ms` more from
   sent_us; NULL: out of memory. */
struct hf_session *hf__session_adopt(struct hf_sessions *all, const hf_party *p, int64_t sent_us,
                                     int64_t ms);
/* Starts the time of a session that belongs to one grant. From now on the session isn't kept, and
   ends one lease after asked_us, as a lease that is counted from its grant. Called with the mutex,
   which is released during a request. */
void hf__session_begins(struct hf_sessions *all, struct hf_session *s, int64_t asked_us);
int hf__session_kept(const struct hf_sessions *all, uint64_t id); /* one of this handle's? */
/* Keeps a session whose time has come, or leaves it to run out if nobody has used it for long.
   Called with the mutex, which is released during a request. */
void hf__session_tend(struct hf_sessions *all, struct hf_session *s);
/* The renewer's part: ends one session that is no longer needed, and, if no keeper can be started,
   keeps those that are due. Returns when to look again. Called with the mutex, which is released
   during requests. */
int64_t hf__sessions_tend(struct hf_sessions *all);
/* Ends and frees all sessions, when the handle is closed and no other thread is left. `away`: the
   store doesn't answer, so it isn't asked to end sessions, which run out by themselves. Takes the
   mutex. */
void hf__sessions_close(struct hf_sessions *all, int away);

#endif
