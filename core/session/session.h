/*
 * session.h - sessions that end by themselves unless they are kept (stores with hf_session_ops).
 *
 * Such a store has no clock by which clients could count a lease: the store itself counts the life
 * of a session. A handle's session is as long as a lease. The handle knows its end by the local
 * clock: the time just before the request that made or kept the session, plus its length. The store
 * counts from a later time, so the session never ends before that.
 *
 * All holds with the same lease length share a session. All waits share a shorter one, as long as
 * the claim timeout: if a waiter doesn't claim its handover, it loses it when that session ends.
 * The session keepers (core/threads/keepers.c) keep each shared session after every third of its
 * length. A hold that isn't renewed, or that outlives this handle, has a session of its own. If a
 * session becomes stale (etcd: the cluster has a new leader), holds move to a new one when they are
 * renewed.
 *
 * Once a session's end has passed, the session stays over for this handle, even if the store says
 * that a late request has kept it.
 *
 * The handle's mutex protects all of it. Functions that release it meanwhile say so.
 */
#ifndef HF_SESSION_H
#define HF_SESSION_H

#include "port.h"

struct hf_sessions;

struct hf_session {
    struct hf_session *next;
    uint64_t id;            /* the store's */
    int64_t until_us;       /* local: until then a holder may believe that it holds */
    int64_t lives_until_us; /* local: the store lets the session live until then at least */
    int64_t keep_at_us;     /* local: when to keep it; INT64_MAX: it isn't kept */
    int64_t used_at_us;     /* local: since when no hold or wait uses it */
    uint32_t lease_ms, users;
    uint8_t own;        /* 1: of one grant, not shared */
    uint8_t adopted;    /* 1: made elsewhere; it lives until until_us at least, its real end isn't
                           known */
    uint8_t foreign;    /* 1: another process keeps it */
    uint8_t left;       /* 1: this handle doesn't end it: it outlives the handle, or may run out */
    uint8_t gone;       /* 1: it is over */
    uint8_t busy, mute; /* 1: a request to keep it is under way; the last one wasn't answered */
    hf_error *why;      /* the error of the first failure to keep it since the last success; NULL:
                           none */
};

/* The threads that keep the sessions: core/threads/keepers.c. */
enum { HF_KEEPERS = 4 };

struct hf_keepers {
    pthread_t thread[HF_KEEPERS];
    uint32_t n, idle;
    int64_t try_at_us;   /* local: before it no thread is started, because the last try failed */
    pthread_cond_t work; /* signalled when a session was made, or is to be kept at another time */
};

/* Callbacks into core/client and core/threads, called when sessions change. Under the mutex. */
struct hf_sessions_above {
    void (*lost)(hf *h, const struct hf_session *s);        /* the session is over */
    void (*ends_sooner)(hf *h, const struct hf_session *s); /* until_us became an earlier time */
    int (*need_renewer)(hf *h, hf_error *err); /* starts the thread that calls hf__sessions_tend */
    void (*wake_renewer)(hf *h);
    /* Makes the keepers look at the sessions again. Returns 0 if no keeper runs. */
    int (*kick_keepers)(struct hf_sessions *all);
};

struct hf_sessions {
    const struct hf_sessions_above *above;
    hf *of; /* the handle, for `above` */
    struct hf_port *port;
    pthread_mutex_t *mu;
    pthread_cond_t *changed;         /* signalled when a session was made, or is no longer being
                                        kept */
    struct hf_session *all, *ending; /* ending: sessions without users, which the store is to be
                                        asked to end */
    uint32_t making;                 /* shared sessions that are being made */
    int closed;                      /* 1: no session is kept any more */
    struct hf_keepers keepers;
};

/* Makes *at a session of that length with at least half of its time left. *at is the caller's
   reference, or NULL: the session is kept, or replaced by a shared or new one. `own`: it is for one
   grant. Called with the mutex, which is released during requests. Returns 0 or the error. */
int hf__session_have(struct hf_sessions *all, uint32_t lease_ms, int own, struct hf_session **at,
                     hf_error *err);
/* Gives up one reference; `s` may be NULL. */
void hf__session_put(struct hf_sessions *all, struct hf_session *s);
/* Returns 1 if the session is stale: other clients would learn of its death later than of a new
   session's. Then holds that go on move to a new session. */
int hf__session_stale(const struct hf_sessions *all, const struct hf_session *s);
/* Asks the store to keep the session, unless another thread does so already. Called with the mutex,
   which is released during the request. Returns: 0; HF_LOST: the session is over, and so is every
   grant that is bound to it; another code: the store did not answer. */
int hf__session_keep(struct hf_sessions *all, struct hf_session *s, hf_error *err);
/* Adds the session of a grant that another handle has made. The store has answered a request, sent
   at local sent_us, that it lives for `ms` more. Returns the caller's reference; NULL: out of
   memory. */
struct hf_session *hf__session_adopt(struct hf_sessions *all, const hf_party *p, int64_t sent_us,
                                     int64_t ms);
/* Begins the lease of a grant with a session of its own, which was requested at local asked_us.
   From now on the session isn't kept, and ends one lease after asked_us. Called with the mutex,
   which is released during a request. */
void hf__session_begins(struct hf_sessions *all, struct hf_session *s, int64_t asked_us);
/* Returns 1 if this handle keeps a shared session with that id. */
int hf__session_kept(const struct hf_sessions *all, uint64_t id);
/* Keeps a session whose time has come. If it has had no user for one lease, lets it run out
   instead. Called with the mutex, which is released during a request. */
void hf__session_tend(struct hf_sessions *all, struct hf_session *s);
/* Called by the renewer: ends one session that is no longer needed, and, if no keeper can be
   started, keeps those that are due. Returns the local time of the next call; INT64_MAX: none is
   needed. Called with the mutex, which is released during requests. */
int64_t hf__sessions_tend(struct hf_sessions *all);
/* Ends and frees all sessions, when the handle is closed and no other thread is left. `away`: the
   store doesn't answer, so it isn't asked to end sessions, which run out by themselves. Takes the
   mutex. */
void hf__sessions_close(struct hf_sessions *all, int away);

#endif
