/*
 * holdfast_driver.h - the operations that a driver offers for its store. For authors of drivers.
 *
 * A driver reads and writes rows. It doesn't retry, interpret a lease, look at a wall clock, or
 * log; it sleeps only in the operations named `sleep`. The lock algorithm is in core/state/step.c.
 * It needs two operations: "read a row", and "replace the row if it is still the one that was
 * read". Only the optional `acquire` decides anything: it does in one request what a step would do
 * for a plain request. See doc/adding-a-driver.md.
 *
 * A driver defines one `const struct hf_driver`, by HF_DRIVER_ENTRY(SCHEME) = {...}. As a module it
 * exports the symbol HF_DRIVER_SYMBOL and is called libholdfast-SCHEME.so. The build can compile it
 * into the library instead (-Dbuiltin_drivers=SCHEME).
 */
#ifndef HOLDFAST_DRIVER_H
#define HOLDFAST_DRIVER_H

#include "holdfast.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HF_DRIVER_ABI    5
#define HF_DRIVER_SYMBOL hf_driver_entry
/* The format of a row as fields; a row of another format is CORRUPT, never "free". */
#define HF_ROW_FORMAT 2

/* Internal results of replace and acquire, beside the codes of holdfast.h. */
#define HF_CONFLICT   1
#define HF_WOULD_WAIT 8 /* returned by an acquire with HF_PARTY_AT_ONCE */

/* ---- the row ---- */

enum hf_party_flag {
    HF_PARTY_UNCLAIMED = 1, /* was granted the key while it waited, and hasn't claimed it yet */
    HF_PARTY_DETACHED = 2,  /* its session counts only while it waits: the hold ends by time */
    HF_PARTY_ENDING = 4,    /* released, but the key stays taken for a while: it has no holder */
    /* Never stored. `acquire` must not wait for a disk, because other calls would wait behind
       it. */
    HF_PARTY_AT_ONCE = 64,
    /* Never stored. The party's session was dead when the row was read (stores with
       hf_session_ops). */
    HF_PARTY_DEAD = 128
};

/* A holder, or a waiter. Strings are NUL-terminated; the lengths don't count the NUL. */
typedef struct hf_party {
    uint8_t id[16];     /* the request's id: unique for each attempt to acquire */
    uint64_t token;     /* the grant's token; 0 while the party waits */
    int64_t since_us;   /* store's clock: granted, or enqueued */
    int64_t expires_us; /* by the store's clock; 0: no end by time */
    uint64_t session;   /* 0: none; else the hold or wait ends when this session is dead */
    uint32_t lease_ms;  /* the lease that it asked for; 0: as long as its session lives */
    uint32_t claim_ms;  /* the claim timeout that it asked for; 0: a holder that has claimed */
    uint32_t limit;     /* HF_LIMITED */
    uint8_t mode;       /* enum hf_mode */
    uint8_t flags;      /* enum hf_party_flag */
    uint8_t wakeup;     /* the number of the wakeup in its session (stores with hf_local_ops); else
                           0 */
    uint8_t owner_len, note_len;
    char owner[HF_OWNER_CAP];
    char note[HF_NOTE_CAP];
} hf_party;

/*
 * The stored state of a key. `party` has n_holders holders (in the order of their grants), then
 * n_queue waiters (in the order in which the store recorded them). Legal: waiters without a holder
 * (the next client that looks grants the key). Illegal: a holder without a token, a waiter with
 * one, two parties with one id, a token above rev. A row owns its memory: hf_row_init first,
 * hf_row_clear at the end; hf_row_room before appending.
 */
typedef struct hf_row {
    uint64_t rev;          /* the rev of the last write; 0: there is no row */
    uint64_t token;        /* the token of the last grant; kept while the key is free */
    int64_t done_us;       /* 0: no marker; else when the event was done */
    int64_t keep_until_us; /* until when the marker is in force; INT64_MAX: for ever */
    uint32_t n_holders, n_queue;
    uint32_t cap; /* room in party[] */
    uint16_t result_len;
    uint8_t done_by_len;
    uint8_t last_id[16]; /* valid while there is no holder: the request whose grant ended last; 0:
                            not known */
    hf_party *party;
    char done_by[HF_OWNER_CAP]; /* the owner that finished the event; valid if done_us isn't 0 */
    char result[HF_RESULT_CAP]; /* valid if done_us isn't 0 */
    hf_party inl[2];            /* room for the usual number of parties, without allocation */
} hf_row;

HF_API void hf_row_init(hf_row *row);                            /* no row: rev 0, no parties */
HF_API void hf_row_clear(hf_row *row);                           /* frees; leaves it initialized */
HF_API HF_MUST_USE int hf_row_room(hf_row *row, size_t parties); /* 0 or HF_NOMEM; keeps content */
HF_API HF_MUST_USE int hf_row_copy(hf_row *to, const hf_row *from); /* 0 or HF_NOMEM */
/* Copies only the used bytes of a party. */
HF_API void hf_party_copy(hf_party *to, const hf_party *from);
/* Checks a row that was read from outside. Returns 0, or HF_CORRUPT with what is wrong in *ret_why
   (constant text). */
HF_API int hf_row_check(const hf_row *row, const char **ret_why);
/* Returns the rev of the write that follows the rev `previous`. clock_us: the store's clock; 0: not
   known. A client that knows the clock as an interval passes the lower bound; for a new row the
   upper bound. */
HF_API uint64_t hf_rev_next(uint64_t previous, int64_t clock_us);
/* Returns the earliest expires_us of the holders that have claimed; 0: none of them ends by
   time. */
HF_API int64_t hf_row_end(const hf_row *row);
/* Returns 1 if two rows are the same in every field but last_id, which some stores don't keep, and
   the flag HF_PARTY_DEAD. */
HF_API int hf_row_equal(const hf_row *a, const hf_row *b);

/*
 * The rule of `acquire`, for drivers that hold the row in hand; clock_us is the store's clock, now.
 * What it stores is what core/state/step.c would store. It acts in two cases:
 *
 * It grants the key if no party holds or waits, and *party's grant isn't the one that ended last.
 * (If it is, this is a late copy of a request that was sent twice, and no caller waits for it.)
 *
 * It appends *party to the queue if fewer than may_queue wait, one party holds, exclusively, and
 * its lease isn't over, and *party is nowhere in the row, and isn't HF_PARTY_DETACHED.
 *
 * Returns:
 *   0            *row is the new one
 *   HF_CONFLICT  neither: *row is unchanged, and has to be stepped
 *   HF_NOMEM     *row is unchanged
 */
HF_API int hf_row_acquire(hf_row *row, const hf_party *party, uint32_t may_queue, int64_t clock_us);

/* ---- the store ---- */

typedef struct hf_rowkey {
    const char *text; /* NUL-terminated */
    uint32_t len;
    uint64_t hash;  /* hf_key_hash(text, len) */
    uint64_t *hint; /* a word for this key and handle, 0 at first, in which the driver may note
                       where the key is, or what it knows of its row; NULL: none. The driver has to
                       check what it finds there. */
    /* For subscribe: the id of the request that waits for the key (NULL: not known), and whether
       that request is in the row's queue. */
    const uint8_t *who;
    int in_line;
} hf_rowkey;
HF_API uint64_t hf_key_hash(const char *text, size_t len);
/* Makes a key of its text, which is borrowed. Returns 0, or HF_INVALID; `err` says why. */
HF_API int hf_key_make(const char *text, hf_rowkey *ret, hf_error *err);

typedef struct hf_url {
    char scheme[32];
    char user[128], password[256]; /* percent-decoded */
    char host[256];                /* "" if none; without brackets */
    int port;                      /* 0: none */
    char path[1024];               /* percent-decoded; with its first slash, if it had one */
    char query[1024];              /* raw; hf_url_get reads it */
    /* The whole URL without secrets, for messages and child processes. In `resolve` and `open` it
       has no query, because the value of an option that the driver doesn't know may be a secret. */
    char safe[1400];
    /* Nonzero: `open` makes no file, directory, table or collection. If the store isn't there,
       `open` returns UNAVAILABLE, and err->sys is ENOENT. Reading makes nothing either: if the
       table or the collection was dropped since, there are no rows. Set by the caller of `open`; a
       parsed URL has 0. */
    int existing;
} hf_url;
/* Parses a URL. Returns 0; HF_INVALID: `text` isn't one, and `err` says why. */
HF_API int hf_url_parse(const char *text, hf_url *ret, hf_error *err);
/* Reads the decoded value of ?name=. Returns 0 if the URL has it; HF_UNSUPPORTED and "" if not;
   HF_INVALID: it is too long, or given twice. */
HF_API int hf_url_get(const hf_url *url, const char *name, char *ret, size_t cap);

/* Sets another path, in `safe` too (encoded where needed). Returns 0; HF_INVALID: too long. For
   `resolve`. */
HF_API int hf_url_set_path(hf_url *url, const char *path, hf_error *err);

typedef struct hf_store hf_store; /* the driver's own struct; one for each hf handle */

/* How many notifications (or wakeups) a handle has seen. Filled by flush (or wakeup_begin), and
   compared by sleep. Only the driver knows what the numbers mean. */
typedef struct hf_event_count {
    uint64_t n[2];
} hf_event_count;

/* A change that concerns each key whose hash equals `hash` in the low bits that `mask` has. mask 0:
   any key (the store doesn't know which, or notifications may be lost). */
typedef struct hf_key_event {
    uint64_t hash, mask;
} hf_key_event;

/* One of several replaces that are made together: see replace_many. */
typedef struct hf_replace {
    const hf_rowkey *key;
    uint64_t seen;
    const hf_row *row; /* not NULL */
    hf_row *cur;       /* for a conflict; initialized; not NULL */
    int result;        /* the result, as of replace; HF_UNKNOWN when replace_many is called */
    int64_t clock_us;  /* the store's clock at some time during the call; 0 before it, and if there
                          was no answer */
    hf_error *err;     /* the reason, if the result is negative; may be NULL */
} hf_replace;

/*
 * Groups of operations: a store has all of a group (but for those marked "may be NULL"), or its
 * pointer in hf_caps is NULL. A group that is there is the capability: nothing else says so.
 */

/* The store is this machine's memory: operations answer in microseconds and never block on a
   network, `now` is exact, and no reply carries a clock. Needs `threads`. */
typedef struct hf_local_ops {
    /* Returns the store's clock now, exactly. Never goes back. */
    int64_t (*now)(hf_store *st);
    /*
     * May be NULL. get and replace in one call: no other client reads or writes the row between
     * them. So the write can't be refused, and a waiter claims a handover by one call.
     *
     * `step` gets the row. It returns 1: it has changed the row, with a new rev; 0: it hasn't;
     * negative: it failed, nothing is stored, and update returns that without filling *err. `step`
     * may be called again, with the row as it is then, if its row can't be stored without a wait
     * for a disk, or has a rev that isn't above one that the store has forgotten. `step` may call
     * `now` of this store, and no other operation.
     *
     * Returns: 0: *row is the row as it is stored; negative: the error, and *row is undefined.
     * Wakes the sessions that replace would wake.
     */
    int (*update)(hf_store *st, const hf_rowkey *key, int (*step)(void *arg, hf_row *row),
                  void *arg, hf_row *row, hf_error *err);
    /*
     * A thread calls wakeup_begin, then reads the rows, then calls sleep. sleep returns when a
     * wakeup of that number (0 to 255) has come to this handle's session since wakeup_begin, when
     * `interrupt` was called, or at local time until_us (CLOCK_BOOTTIME). It may return early, but
     * not for EINTR alone. replace and update send wakeups inside the write. n_waits: how many
     * waits share the number. Any number of threads may sleep at once, each with a number of its
     * own.
     */
    int (*wakeup_begin)(hf_store *st, uint8_t wakeup, size_t n_waits, hf_event_count *ret,
                        hf_error *err);
    int (*sleep)(hf_store *st, uint8_t wakeup, const hf_event_count *since, int64_t until_us,
                 hf_error *err);
    /* Makes the present sleep on that number return, or the next one if there is none. Any thread.
     */
    void (*interrupt)(hf_store *st, uint8_t wakeup);
    /* Returns the next event, as next_event of hf_notify_ops, for the waits that share that
       number. */
    int (*next_event)(hf_store *st, uint8_t wakeup, hf_key_event *ret);
} hf_local_ops;

/*
 * The store notifies a handle of changes of the keys to which it has subscribed. Without this group
 * the library polls. Needs `threads`; not together with hf_local_ops.
 *
 * One thread at a time calls all of them but `payload` and `interrupt`; the thread may get signals.
 * Its rounds are: subscribe and unsubscribe; flush; next_event until there is none; read the rows
 * concerned; sleep.
 */
typedef struct hf_notify_ops {
    /*
     * Subscribes to the key, from the next flush that succeeds until unsubscribe, also across
     * connections that break. Never waits. Called again for a subscribed key if key->in_line or
     * key->who has changed. Returns 0; HF_NOMEM: the key isn't subscribed.
     */
    int (*subscribe)(hf_store *st, const hf_rowkey *key);
    /* Ends the subscription. Never waits. Later notifications of the key may still become
       events. */
    void (*unsubscribe)(hf_store *st, const hf_rowkey *key);
    /*
     * Returns when the server knows all subscriptions: each later change of a subscribed row
     * becomes an event. Connects if need be; after a broken connection the next event has mask 0.
     * *ret is for `sleep`. Negative: the handle gets no notifications, and polls.
     */
    int (*flush)(hf_store *st, hf_event_count *ret, hf_error *err);
    /*
     * Sleeps until an event has come since the flush that filled *since, `interrupt` was called, or
     * local time until_us (CLOCK_BOOTTIME) is reached. It may return early, but not for EINTR
     * alone. A late return costs time only, because the library also polls, slowly.
     *
     * For a request in the queue (key->in_line) only these writes need to become events: those that
     * change the holders, and after which the request holds or is the first waiter. hf_session_ops:
     * the death of a session that a subscribed row names is an event, too.
     *
     * Returns how many requests it has made to the server; negative: it is no longer connected.
     */
    int (*sleep)(hf_store *st, const hf_event_count *since, int64_t until_us, hf_error *err);
    /* Takes the next event. Never waits. Returns 1: *ret is an event, each once, and the call is to
       be repeated; 0: there is none. */
    int (*next_event)(hf_store *st, hf_key_event *ret);
    /*
     * May be NULL: then the row is read. Any thread; never waits. Reports what the last
     * notification of the key said, or what a short read of a part of the row finds, in *row
     * (initialized; its old content is replaced).
     *
     * Returns: 1: *row is the row as it was stored. Or, if the notification has less: *row has rev
     * 0 and the only holder, with its id, token, since_us, expires_us and flags; with
     * hf_session_ops also its session. 0: there was no notification, it said nothing, or later ones
     * may be lost.
     *
     * Only committed content is reported, as a read would show it. It may be late, and other writes
     * may have followed. One thing may be untrue: a holder with no more than id and expires_us, and
     * another id than key->who of the last subscribe. That costs a delay, until the wait polls.
     */
    int (*payload)(hf_store *st, const hf_rowkey *key, hf_row *row);
    /* Makes the present sleep return, or the next one if there is none. Any thread. */
    void (*interrupt)(hf_store *st);
} hf_notify_ops;

/* The store can tell whether a holder's process lives, so holds need no lease. */
typedef struct hf_liveness_ops {
    /* Returns the session of this handle (nonzero, and never used before by any handle), made if
       need be. */
    int (*session)(hf_store *st, uint64_t *ret, hf_error *err);
    /* May be NULL. Returns the descriptor that carries the session's life, or -1. */
    int (*session_fd)(hf_store *st);
    /* Returns 1: it lives; 0: it is dead for ever; negative: not known. */
    int (*alive)(hf_store *st, uint64_t session, hf_error *err);
    /*
     * Both may be NULL: then no session of this store dies while it holds or waits (a handle that
     * is closed releases everything). death_fd returns a descriptor, borrowed, that becomes
     * readable when a session may have died; -1: there is none, and the core polls. It may become
     * readable a little early, so the core calls `alive` several times. death_read empties the
     * descriptor, and returns 1: a session may have died; 0: certainly none has.
     */
    int (*death_fd)(hf_store *st);
    int (*death_read)(hf_store *st);
} hf_liveness_ops;

/*
 * The store has no clock for leases, but sessions of a given length that end by themselves unless
 * they are kept. So nothing in a row ends by time, and every party has such a session. Any thread
 * may call these. Needs `threads`; not together with hf_local_ops or hf_liveness_ops.
 *
 * make: makes a session, with a nonzero id that no session ever had. It lives for *ret_ms, at least
 * lease_ms, from some moment of the call on. *ret_clock_us: as in get.
 *
 * keep: the session lives for *ret_ms from some moment of the call on. HF_LOST: it is dead. The
 * call returns at until_us (CLOCK_BOOTTIME) at the latest, but for the time that a new connection
 * and a second request need. If there is no answer by then: HF_UNAVAILABLE, and the next call uses
 * another connection. The call doesn't wait for a connection that other requests are using.
 *
 * left: sets *ret_ms to the time for which the session lives at least if it isn't kept. HF_LOST: it
 * is dead.
 *
 * end: ends the session now, whichever handle has made it.
 */
typedef struct hf_session_ops {
    int (*make)(hf_store *st, int64_t lease_ms, uint64_t *ret, int64_t *ret_ms,
                int64_t *ret_clock_us, hf_error *err);
    int (*keep)(hf_store *st, uint64_t session, int64_t until_us, int64_t *ret_ms, hf_error *err);
    int (*left)(hf_store *st, uint64_t session, int64_t *ret_ms, hf_error *err);
    int (*end)(hf_store *st, uint64_t session, hf_error *err);
    /* May be NULL; never waits. Returns 1 if the session is stale: other clients would learn of its
       death later than of a new session's. Then the core moves holds that go on to a new session.
     */
    int (*stale)(hf_store *st, uint64_t session);
} hf_session_ops;

/* What a store can do. A driver has the usual values; `open` gets a copy, and changes it for the
   store that it opens. */
typedef struct hf_caps {
    uint32_t queue_cap;          /* how many waiters one row can hold */
    uint32_t holders_cap;        /* how many holders one row can hold */
    uint32_t poll_ms;            /* milliseconds between two looks of a waiter that gets no
                                    notifications; 0: 250 */
    int64_t clock_resolution_us; /* how much later than the clock in a reply the store's true time
                                    may be; it is never earlier; 0: 1,000. A lease must be at least
                                    three times as long */
    uint8_t threads; /* 1: several threads may call operations at once; 0: the handle serializes all
                        calls */
    uint8_t queues;  /* 1: waiters stand in the row's queue, unless their options say otherwise; 0:
                        they don't, because writes are expensive or rate-limited */
    const hf_notify_ops *notify;
    const hf_local_ops *local;
    const hf_liveness_ops *liveness;
    const hf_session_ops *sessions;
} hf_caps;

typedef struct hf_driver {
    int abi;           /* HF_DRIVER_ABI */
    const char *name;  /* the scheme */
    const char *about; /* one line for `holdfast stores` */
    hf_caps caps;

    /*
     * Connects, and creates what is missing if that is permitted. Refuses a store on which locks
     * would not be safe, with the reason. io_timeout_ms bounds every later request. *caps has the
     * driver's usual values; `open` changes those that are different for this store.
     */
    int (*open)(const hf_url *url, int64_t io_timeout_ms, hf_store **ret, hf_caps *caps,
                hf_error *err);
    void (*close)(hf_store *st);

    /*
     * Reads the latest committed row; if there is no row, rev is 0. *ret_clock_us: the store's
     * clock while it answered; 0 if the store has hf_local_ops, or no clock. `row` is initialized;
     * its old content is replaced.
     *
     * With hf_session_ops, here and wherever a row is read: a party has HF_PARTY_DEAD if its
     * session is dead, certainly and for ever. A holder has it only if, besides, the time is over
     * for which make or keep have said that the session lives. The clock of such a store may be
     * two seconds behind: revs and markers are made from it, leases aren't.
     */
    int (*get)(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
               hf_error *err);

    /*
     * Atomically: if the stored rev is `seen` (0: there is no row), stores `row` (NULL: deletes the
     * stored one) and returns 0; otherwise returns HF_CONFLICT, with the current row in *cur if cur
     * isn't NULL. One round trip; two, if a shorter form was tried first. No reply, or an ambiguous
     * one: HF_UNKNOWN; the driver doesn't try again. `row` and `cur` are different objects.
     *
     * A store with hf_local_ops wakes every party that holds in `row` and waited before. It also
     * wakes the first waiter of `row`, which sleeps until hf_row_end: if hf_row_end has changed, or
     * if it isn't 0 and another waiter was the first before.
     *
     * With hf_session_ops: HF_LOST, and nothing is written, if a session of this handle that `row`
     * names is dead.
     */
    int (*replace)(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                   hf_row *cur, int64_t *ret_clock_us, hf_error *err);

    /*
     * Optional. Makes n independent replaces of different keys in few round trips. Each has its own
     * result: an error, conflict or hang of one doesn't affect another. A store that carries them
     * out one after the other doesn't wait long for one that is held up.
     *
     * Returns at until_us (CLOCK_BOOTTIME) at the latest, but for the time that a new connection
     * needs, a second at most. An item without an answer by then is HF_UNKNOWN, and the next call
     * uses another connection. An item that was not sent is HF_UNAVAILABLE.
     *
     * With `threads`, several threads may call it at once. Each call uses a connection alone, and
     * doesn't wait for one that another request uses. n is at most 512; 0: the call only makes the
     * connection for a later one. Returns 0; or the error: there was no connection, and nothing was
     * sent.
     */
    int (*replace_many)(hf_store *st, hf_replace *item, size_t n, int64_t until_us);

    /*
     * Optional. Does what hf_row_acquire does, inside the store, by one round trip and whatever the
     * rev is. So a client far away gets into the queue, however often others write. It is the only
     * rule of the lock that a store may have; conformance compares it with core/state/step.c, row
     * by row. A driver may only grant, and return HF_CONFLICT instead of appending.
     *
     * may_queue is 0 for a request that doesn't wait, and on stores with sessions or liveness,
     * where only the core knows which holders are dead.
     *
     * An append as the first waiter notifies as the replace would that appends it: the holder may
     * be subscribed, to hand the key over without a read. An append behind others needs no
     * notification.
     *
     * Returns:
     *   0              stored. *cur is the row. After a grant only the rev, the token, the marker
     *                  and the holder's token, since_us and expires_us have to be set; the rest is
     *                  as in *party. A reply that can't be read for lack of memory is HF_UNKNOWN.
     *   HF_CONFLICT    nothing was changed, and *cur is the current row. It has the request, if an
     *                  earlier attempt whose reply was lost has stored it.
     *   HF_WOULD_WAIT  with hf_local_ops, if *party has HF_PARTY_AT_ONCE: nothing was done, because
     *                  the store would have to wait for a disk. The core then asks in a way that
     *                  may take time.
     */
    int (*acquire)(hf_store *st, const hf_rowkey *key, const hf_party *party, uint32_t may_queue,
                   hf_row *cur, int64_t *ret_clock_us, hf_error *err);

    /*
     * Optional. Returns when a power cut can't change any more whether this key has a marker, and
     * which. Says nothing of other keys.
     */
    int (*sync)(hf_store *st, const hf_rowkey *key, hf_error *err);

    /* Calls `see` for every row whose key has the prefix; nonzero from `see` ends the scan with
       success. A row that is changed meanwhile may be seen before or after the change. `see` may
       call get and replace if caps.threads is 1. For a damaged row `see` gets NULL, and the scan
       goes on: `get` tells the reason. Rows whose key isn't legal may be shown; the core ignores
       them. HF_CORRUPT: more than a row is damaged. */
    int (*scan)(hf_store *st, const char *prefix,
                int (*see)(void *arg, const hf_rowkey *, hf_row *), void *arg,
                int64_t *ret_clock_us, hf_error *err);

    /* Optional. Checks the store's settings, for `doctor`: calls say(arg, ok, text) for each
       finding. If `ok` is 0 the text says what is wrong: it is quoted as the reason. */
    int (*inspect)(hf_store *st, void (*say)(void *arg, int ok, const char *text), void *arg,
                   hf_error *err);

    /*
     * Optional. One round trip, for data in this store that a guard protects (doc/guards.md).
     * Raises the fence that `where` names (in the store's own syntax; NULL: the fence that the
     * guard has for the key) to the token. If the key has several holders, raises it to the
     * smallest of their tokens. `alone`: the grant is exclusive.
     *
     * Returns:
     *   0               the fence is raised.
     *   HF_LOST         the fence has a greater token, or the row shows that the grant is over.
     *   HF_INVALID      `where` isn't one.
     *   HF_UNSUPPORTED  no guard is there; or the grant isn't exclusive, and the driver can't look
     *                   at the row in the same request.
     *   HF_UNKNOWN      no reply. The request may be repeated, however late the first one lands.
     */
    int (*enter)(hf_store *st, const hf_rowkey *key, uint64_t token, int alone, const char *where,
                 hf_error *err);

    /*
     * Optional. Changes the URL (hf_url_set_path) so that it names the same store from another
     * directory and with another user's environment. Called before `open`. The resulting `safe` is
     * shown, and passed on to child processes. A URL that is resolved already stays as it is.
     */
    int (*resolve)(hf_url *url, hf_error *err);

    /*
     * Optional, both or neither, for `doctor`. A store that keeps the space of deleted rows isn't
     * filled with test rows: doctor uses a scratch store beside it. `scratch` names it for a
     * resolved URL: on the same filesystem, with the same options, and with `existing` 0, so that
     * `open` makes it. The store of the URL needn't be there. DENIED: nothing may be made there.
     * `discard` removes the scratch store; a signal handler may call it, too.
     */
    int (*scratch)(const hf_url *url, hf_url *ret, hf_error *err);
    void (*discard)(const hf_url *url);

    /* Optional. Returns 1 if something in this process may break this store's locks; `to` says in
       one line what, and what to do. Returns 0 if nothing of the kind was found. */
    int (*warning)(hf_store *st, char *to, size_t cap);
} hf_driver;

/* Fills *err (if not NULL) and returns `code`. `sys`: an errno, or 0. The text should be like
   "file: replace 'k': no space". */
HF_API int hf_fail(hf_error *err, int code, int sys, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((cold, format(printf, 4, 5)))
#endif
    ;

/*
 * A driver keeps no descriptor 0, 1 or 2, even if the program has closed them: what the program
 * prints would land in what is opened there.
 *
 * hf_low_hold occupies those of them that are closed, while a library opens descriptors of its own.
 * Reads and writes on them fail with EBADF, as if they were closed. Hold them for a request at
 * most: meanwhile the program can't open anything there, either. hf_low_free ends one hf_low_hold
 * of this thread; the last one of all threads closes them. It keeps errno. Any thread may call
 * both.
 */
HF_API void hf_low_hold(void);
HF_API void hf_low_free(void);

/* Defines a driver: HF_DRIVER_ENTRY(SCHEME) = {.abi = HF_DRIVER_ABI, ...}. In a module its symbol
   is HF_DRIVER_SYMBOL; in a driver that is built into the library, hf__SCHEME_driver, which is
   hidden. */
#ifdef HF_DRIVERS_BUILT_IN
#define HF_DRIVER_ENTRY(scheme)                   \
    extern const hf_driver hf__##scheme##_driver; \
    const hf_driver hf__##scheme##_driver
#else
#define HF_DRIVER_ENTRY(scheme)                     \
    extern HF_API const hf_driver HF_DRIVER_SYMBOL; \
    const hf_driver HF_DRIVER_SYMBOL
#endif

#ifdef __cplusplus
}
#endif
#endif
