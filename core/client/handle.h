/*
 * handle.h - the structs of a store handle, shared by the files of the core.
 *
 * One mutex (hf.mu, called "the mutex") protects everything below except where said. No request to
 * a store that may block is made under it. Requests to a local store may be, on the fast path:
 * there the driver refuses an acquire that would have to wait for a disk (HF_PARTY_AT_ONCE). An
 * object that is used while the mutex is released is kept by a count (pins, refs).
 *
 * Threads of a handle, each started when first needed:
 *   dispatcher       drives the waits that no thread of the caller's drives, calls their callbacks
 *   expiry monitor   sees leases run out and other sessions die; never talks to a store that may
 *                    block
 *   renewer          finds leases that are due; renews them itself where the store answers at once
 *   renewal workers  (a few: renewer.c) renew leases
 *   keepers          (a few: keepers.c) keep sessions
 */
#ifndef HF_HANDLE_H
#define HF_HANDLE_H

#include "above.h"
#include "bytes.h"
#include "deadlines.h"
#include "os.h"
#include "peers.h"
#include "port.h"
#include "renewal_queue.h"
#include "session.h"
#include "wait_state.h"

#define HF_DISPATCHER_WAKEUP 0
#define HF_WAKEUPS           16
#define HF_CLAIM_MS          1000 /* the shortest claim timeout */
#define HF_POLL_MS           250 /* between two looks of a waiter, unless the driver says another */

struct hf_known_row; /* known_row.h; freed by free() */

/* Returns the time between two looks of a waiter that gets no notifications. */
static inline uint32_t hf__port_poll_ms(const struct hf_port *port)
{
    return port->caps.poll_ms ? port->caps.poll_ms : HF_POLL_MS;
}

/* The state that a handle keeps of one key: its waits, its locks, what is known of its row. An
   entry without references is freed when the table is full. */
struct hf_entry {
    struct hf_entry *next;
    hf_rowkey key;
    uint64_t hint;                /* the driver's, which writes it through key.hint */
    struct hf_wait *first, *last; /* the local queue; the first one asks the store */
    struct hf_lock *locks;
    uint32_t refs; /* waits, locks and calls under way; an entry with none may be freed */
    /* The rev and token of the free row that this handle's last release left (rev 0: not known).
       The next request writes upon that row without a read. */
    uint64_t free_rev, free_token;
    struct hf_deadline claim_deadline; /* local clock: when the claim timeout of a handover by this
                                          handle ends */
    uint32_t n_at_store;        /* how many of its waits are at the store: mostly only the first */
    struct hf_wait *subscriber; /* the wait for which the key is subscribed to; NULL: none */
    struct hf_entry *changed_next; /* in hf.changed_keys */
    struct hf_entry *flushed_next; /* in the list of keys whose subscription is being changed */
    uint8_t changed;               /* 1: its subscription is to be changed, so it is in
                                      hf.changed_keys */
    uint8_t subscribed;            /* 1: the driver has the subscription */
    /* The next three are for the pauses that let other clients get in (hf__yields_first). */
    /* Local clock: when this handle last wrote the row and left no other party in it; 0: other
       parties are in it. */
    int64_t wrote_us;
    int64_t yield_at_us;      /* local clock: from then on the next write is preceded by a pause */
    uint32_t yields;          /* pauses so far */
    uint8_t subscribed_named; /* the subscription is for a request with a request_id */
    uint8_t renewing; /* 1: one of its grants is being renewed; 2: others of them wait until that is
                         done */
    char text[];
};

/* A request that was given up, but whose withdrawal the store didn't confirm: it may stand in the
   row for as long as a session of this handle is kept. */
struct hf_deferred_cancel {
    struct hf_deferred_cancel *next;
    struct hf_entry *e;
    uint8_t id[16];
    int64_t at_us; /* local: when to try again */
};

/* Members with the same initial value are adjacent, so that the CPU sets them by a few wide
   writes. */
struct hf_lock {
    struct hf *h;
    struct hf_entry *e;
    struct hf_lock *next, **prev; /* in the list of the entry's locks; `next` also in the list of
                                     free locks */
    uint64_t token, rev;
    /* By the store's clock; expires_us 0: the grant lasts as long as its session. The two aren't
       side by side: the compiler would read both at once from a row in which they were written one
       by one, and that read stalls. */
    int64_t since_us;
    uint64_t thread; /* the thread that acquired it; 0: none in particular */
    int64_t expires_us;
    const char *owner; /* the handle's, or own_owner */
    uint32_t lease_ms;
    int lost_fd; /* -1: none */
    /* At first INT64_MAX: never. */
    int64_t renew_at_us; /* local */
    int64_t ask_at_us;   /* local: when to ask the store whether an operator has broken the grant */
    /* At first 0. */
    int64_t hold_until_us;              /* local; 0: none */
    int64_t granted_at_us;              /* local: when it was granted, or a little later; for
                                           at_least_ms */
    struct hf_session *session;         /* the session with which the hold ends; NULL: it ends by
                                           time */
    struct hf_session *pending_session; /* a renewal that names this session may have landed; NULL:
                                           none */
    void (*on_lost)(void *arg, hf_lock *lock);
    void *on_lost_arg;
    int *freed;    /* set to 1 if on_lost frees the lock */
    hf_error *why; /* the error of the first failed renewal since the last success; NULL: none */
    uint32_t at_least_ms;
    uint8_t lost, loss_reported, releasing;
    uint8_t in_callback;     /* callback_thread runs on_lost */
    uint8_t detached;        /* 1: the grant outlives this handle */
    uint8_t adopted;         /* made by hf_adopt: the holder may be another process */
    uint8_t pending_release; /* the caller has released it, but the store didn't confirm that: the
                                expiry monitor (on local stores) or the renewer tries again */
    uint8_t lost_by;         /* enum hf_lost_by, if `lost` */
    uint8_t busy;            /* 1: a thread has seized the lock: a request for it is under way */
    uint8_t named;           /* it has a request_id: the caller may repeat the request */
    /* Different in each lock. */
    unsigned forks; /* hf__forks of the process that made it */
    uint8_t sole;   /* at `rev` the row held this grant and nothing else */
    uint8_t mode;   /* enum hf_mode */
    uint8_t id[16]; /* the id of its request; unset if it was acquired with default options on a
                       local store */
    pthread_t callback_thread;
    char own_owner[HF_OWNER_CAP];
    /* The rest is for a grant that ends by time or is renewed; otherwise it is all zero. */
    struct hf_deadline watch;     /* in hf.watched: when the expiry monitor is to look at the lock
                                   */
    struct hf_deadline renewal;   /* in one of the queues of hf.renewals */
    struct hf_known_row *row;     /* the row at row->rev as this handle left it; NULL: not kept */
    struct hf_known_row *sent;    /* the row of a renewal that wasn't answered: the same write is
                                     sent again; NULL: none */
    uint64_t sent_seen;           /* the rev that `sent` replaces */
    int64_t before_us;            /* expires_us before the renewal that is under way */
    struct hf_lock *renewed_with; /* the next lock of those that one write renews */
    uint8_t unanswered;           /* how many renewals in a row weren't answered (in a batch the
                                     first of them counts twice); at most HF_UNANSWERED_MOST */
    uint16_t again_with; /* after an unanswered renewal: how many renewals the next request with
                            this one may have at most */
    uint8_t claims;      /* the next renewal is also the claim of a handover; a batch doesn't take
                            it before it is due */
    int64_t corrupt_us;  /* local: when a renewal was answered with HF_CORRUPT, for the first time
                            since the row was read; 0: none since */
    uint8_t renewal_due; /* 0: the renewal isn't due yet; else the index of its queue, plus 1 */
};

struct hf_wait {
    struct hf *h;
    struct hf_entry *e;
    struct hf_wait *next, *prev;            /* local FIFO */
    struct hf_wait *list_next, **list_prev; /* in hf.at_store */
    enum hf_wait_state state;
    hf_party party;
    int64_t started_us, deadline_us; /* local; INT64_MAX: none */
    int64_t look_at_us;              /* local: when to ask the store again: see hf__schedule */
    /* Local clock: the wait looks at the row by then at the latest, even if a notification would
       have it look later. Set while the wait is queued on a store without wakeups. */
    int64_t poll_at_us;
    struct hf_deadline look;    /* in hf.looks */
    struct hf_deadline check;   /* in hf.checks: when the expiry monitor looks at the row for this
                                    wait */
    struct hf_peer_link *peers; /* the sessions that the wait depends on: see peers.h */
    uint8_t peers_unknown;      /* the sessions that the wait depends on aren't all noted, so each
                                   death that may matter makes it look */
    uint8_t check_missed;       /* 1: `check` came due before the wait was queued; it is still to
                                   be made */
    int64_t away_since_us;      /* local: since when the store hasn't answered; 0: it answers */
    int64_t asked_at_us;        /* local: before the last write that may have granted the key */
    uint64_t seen_rev;          /* the rev of the row in which it is queued */
    struct hf_session *session, *queue_session; /* the session to hold with and the one to wait
                                                   with; NULL: not needed, or not yet */
    int64_t max_hold_ms, at_least_ms, keep_us;
    unsigned flags;
    uint8_t maybe_in_row;             /* the request may be in the stored row */
    uint8_t named;                    /* it has a request_id: the caller may repeat the request */
    uint8_t granted;                  /* the store has said once that the request holds */
    uint8_t unclaimed;                /* its grant is a handover that the renewer will claim */
    uint8_t lost_reply, lost_acquire; /* the reply to a write was lost; to an `acquire`, which may
                                         land at any time */
    uint8_t cancel;                   /* 1: the wait is to be cancelled (atomic) */
    uint8_t dispatched;               /* the dispatcher drives it */
    uint8_t subscribed;               /* the store notifies the dispatcher of changes of its key */
    uint8_t notified;                 /* not 0: the dispatcher has it look before look_at_us: see
                                         hf__notify */
    uint8_t looking;       /* a look is under way: the dispatcher plans the next look after it */
    uint8_t alone;         /* the wait acts without a stagger: the waits ahead of it haven't acted
                              on a lease that ended (atomic) */
    uint8_t callback_done; /* (atomic) */
    /* Each counts answers in a row. refused: conflicts while waiters were queued. overtaken:
       conflicts while none was (one handle in a loop). full: the queue was full. */
    uint8_t refused, overtaken, full;
    uint32_t pins;
    int code;
    unsigned forks; /* hf__forks of the process that made it */
    hf_error *why;  /* the store's first error since it last did what was asked; NULL: none */
    hf_lock *lock;
    hf_once *once;          /* for an event: what the caller gets; NULL: for a key */
    hf_error err;           /* why `code` isn't 0; otherwise not set */
    pthread_cond_t changed; /* signalled when `state` or `pins` changes */
    hf_acquired_fn *done;   /* NULL: a caller's thread waits in hf_acquire */
    void *arg;
};

/* The sessions that the expiry monitor has asked the store about in this round of checks
   (hf__tend_waits). */
#define HF_ROUND_CAP 16
struct hf_round {
    uint64_t session[HF_ROUND_CAP];
    int alive[HF_ROUND_CAP]; /* as hf__port_alive says */
    uint32_t n;
};

/* How far hf_close has come: what it is ending. */
enum hf_closing { HF_OPEN, HF_CLOSING_WAITS, HF_CLOSING_LOCKS, HF_CLOSING_THREADS };

struct hf {
    struct hf_port port;
    pthread_mutex_t mu;
    pthread_cond_t changed; /* signalled when `busy` or `in_callback` of a lock ends; while the
                               handle is being closed, also when a lock, a wait or a call ends */
    enum hf_closing closing;

    struct hf_entry **table;
    uint32_t buckets, entries;
    hf_lock *free_locks;
    hf_party party;      /* what an acquisition with default options asks for; its id is fresh */
    hf_row row;          /* for the fast path: its inline room is enough there */
    int64_t no_clock_us; /* not used: takes the clock that calls of a local driver return */
    uint64_t next_id[2];
    unsigned next_wakeup;
    uint32_t callers; /* calls under way, which hf_close waits for */
    uint32_t refs;    /* one for the caller of hf_open, and one for each wait that was started and
                         isn't freed yet */

    struct hf_sessions sessions;
    struct hf_deferred_cancel *cancels; /* requests that are still to be withdrawn */
    struct {
        uint64_t session;
        int64_t left_ms, at_us;
    } lease_left; /* the store's last answer, for how long a session lives (info.c) */

    struct {
        const struct hf_entry *e; /* NULL: there is none */
        int64_t us;               /* local: since when */
        struct hf_known_row *row;
    } last_row; /* the last-row cache */

    struct hf_wait *at_store; /* waits that ask the store: the first of each local queue, and
                                 requests that hold and are asked again (wait.c) */
    uint32_t n_at_store;
    struct hf_deadlines watched; /* locks that end by time, or whose loss is to be reported */
    uint64_t clock_jumps;        /* how often the store's clock was set, when the expiry monitor
                                    looked last */
    struct hf_renewals renewals;
    struct hf_release_all *release_all; /* while the handle is closed */
    int dispatcher_runs, monitor_runs, renewer_runs;
    pthread_t dispatcher, monitor, renewer;
    pthread_cond_t dispatcher_cond, renewer_cond;
    /* The waits that the dispatcher drives: those at the store by the time of their next look,
       those behind others of this handle by their deadlines. */
    struct hf_deadlines looks;
    size_t n_dispatched;                 /* how many of the dispatcher's waits are at the store */
    struct hf_deadlines checks;          /* the waits for which the expiry monitor looks at a row */
    struct hf_deadlines claim_deadlines; /* of entries */
    int64_t looked_us;                   /* the dispatcher's last reading of the local clock */
    int64_t look_takes_us;               /* how long a look of the dispatcher takes on average,
                                            where it may block */
    struct hf_entry *changed_keys;       /* the keys whose subscriptions are to be changed */
    int subscribes;                      /* a key has been subscribed to at least once */
    int dispatcher_todo;                 /* a wait needs the dispatcher now */
    hf_event_count events;               /* how far the dispatcher has read the events */
    int dispatcher_sleeps;               /* the dispatcher sleeps in the driver */
    int disconnected;                    /* the store sends no notifications now */
    int monitor_fd;                      /* eventfd that wakes the expiry monitor */
    int64_t monitor_until_us;            /* local: until when it sleeps */
    int64_t renewer_until_us;            /* local: until when the renewer sleeps; 0: it is awake */
    struct hf_round round;               /* the expiry monitor's own */
    struct hf_peers peers;
    int64_t sweep_at_us; /* local: if the handle has many waits, a death makes all of them look from
                            this time on only */
    int monitor_sleeps, monitor_todo;
    int deaths_reported; /* 1: the store reports deaths to the expiry monitor; -1: the monitor has
                        to look for them; 0: not yet known */

    hf_stats stats;

    /* What follows outlives a fork: see hf__reopen. */
    char *safe_url;
    const struct hf_above *above;
    struct hf_asked *asked;
    unsigned fork_generation; /* the fork generation of the process that opened it (atomic) */
};

/* handle.c */
/* Sets the error for a lock or a wait that belongs to the parent of a fork. `what`: the call, for
   the message, here and below. Returns HF_LOST. */
int hf__dead(const char *what, hf_error *err);
/* Opens the handle's store anew in the child of a fork. Returns 0 or the error. */
int hf__reopen(hf *h, const char *what, hf_error *err);
/* A key as the caller wrote it, legal or not, with its hash. Made before the mutex is locked. */
struct hf_name {
    const char *text;
    size_t len;
    uint64_t hash;
};
static inline struct hf_name hf__name(const char *key)
{
    size_t len = key ? strnlen(key, HF_KEY_CAP) : 0;
    return (struct hf_name){key, len, hf__hash(key, len)};
}
/* Adds an entry for a key that the table doesn't have, with a reference for the caller. Returns 0,
   HF_INVALID (the key isn't legal) or HF_NOMEM. */
int hf__new_entry(hf *h, const char *key, struct hf_entry **ret, hf_error *err);
/* Calls see(lock, arg) for each lock of the handle. */
void hf__each_lock(hf *h, void (*see)(hf_lock *lock, void *arg), void *arg);
/* Finds or makes the key's entry, with a reference for the caller. */
static inline int hf__entry(hf *h, struct hf_name key, struct hf_entry **ret, hf_error *err)
{
    for (struct hf_entry *e = h->table[key.hash & (h->buckets - 1)]; e; e = e->next)
        if (e->key.hash == key.hash && e->key.len == key.len &&
            hf__same_bytes(e->text, key.text, key.len)) {
            e->refs++;
            *ret = e;
            return 0;
        }
    struct hf_entry *made; /* a local, so that *ret may stay in a register */
    int rc = hf__new_entry(h, key.text, &made, err);
    *ret = rc ? NULL : made;
    return rc;
}
static inline void hf__entry_unref(struct hf_entry *e) { e->refs--; }
/* Makes a unique id, which isn't secret: 64 random bits of this handle, and a counter. */
static inline void hf__new_id(hf *h, uint8_t id[16])
{
    uint64_t n = ++h->next_id[1];
    memcpy(id, &h->next_id[0], 8);
    memcpy(id + 8, &n, 8);
}
/* Begins a call of the program that hf_close has to wait for. Returns 0; HF_CANCELED: the handle is
   being closed; or the error of hf__alive. */
int hf__begin_call(hf *h, const char *what, hf_error *err);
/* As hf__begin_call; also finds or makes the entry of a key, with a reference for the caller. */
int hf__begin_key_call(hf *h, const char *what, const char *key, struct hf_entry **ret,
                       hf_error *err);
/* Ends a call that was begun. The first one takes the mutex; the second one is called under it. */
void hf__end_call(hf *h);
void hf__leave_call(hf *h);
/* These count the references to the handle's memory and mutex. Any thread may call them. */
void hf__ref(hf *h);
void hf__unref(hf *h);
/* Returns nonzero once closing has begun. Takes the mutex. */
int hf__closing(hf *h);
/* Closes the store and frees what the handle owns, then gives up one reference to the handle. No
   other thread uses the handle any more. */
void hf__destroy(hf *h);

/* Returns 1 if the wait asks the store and isn't over. Then it is in hf.at_store, unless it is an
   attempt beside the local queue (try_beside in acquire.c). */
static inline int hf__at_store(const struct hf_wait *w)
{
    return w->state > HF_WAIT_LOCAL && w->state < HF_WAIT_ENDED;
}
/* Returns 1 if the wait is outside the queue, and pauses because many waits want to enter it. Then
   it looks only at the planned time: a notification would wake all such waits at once. */
static inline int hf__backs_off(const struct hf_wait *w) { return w->refused || w->full; }
/* Makes the expiry monitor check the wait's row at that time (wait_monitor.c). */
static inline void hf__check_at(struct hf_wait *w, int64_t at_us)
{
    hf__deadline_set(&w->h->checks, &w->check, at_us);
}

/* Returns 1 if the handle was opened in this process. */
static inline int hf__own(const hf *h)
{
    return __atomic_load_n(&h->fork_generation, __ATOMIC_ACQUIRE) == hf__forks;
}

/* The first line of every call that uses the store: reopens it in the child of a fork. (hf_close
   and hf_close_begin don't call it: there they do nothing.) Returns 0 or the error. */
static inline int hf__alive(hf *h, const char *what, hf_error *err)
{
    return hf__own(h) ? 0 : hf__reopen(h, what, err);
}

/* The first line of every call with a lock. Returns 0; HF_LOST: the lock is the parent's. */
static inline int hf__held_here(const hf_lock *l, const char *what, hf_error *err)
{
    return l->forks == hf__forks ? 0 : hf__dead(what, err);
}

#endif
