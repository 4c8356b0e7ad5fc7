/*
 * holdfast_driver.h - what a store must offer. For authors of drivers.
 *
 * A driver carries rows. It doesn't retry, sleep (except where it is asked to), interpret a lease,
 * look at a wall clock, or log. All of the lock is in core/state/step.c, above two operations:
 * "read a row" and "replace the row if nobody did so before". Only the optional `acquire` decides
 * anything: it does in one request what a step would do for a plain request. See
 * doc/adding-a-driver.md.
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
    HF_PARTY_UNCLAIMED = 1, /* was handed the key while it waited, and hasn't claimed it yet */
    HF_PARTY_DETACHED = 2,  /* its session counts only while it waits: the hold ends by time */
    HF_PARTY_ENDING = 4,    /* released, but the key stays taken for a while: it has no holder */
    /* Never stored. The acquire must not wait for a disk, because other calls would wait
       behind it. */
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
    uint32_t claim_ms;  /* how long a handover waits for this party's claim; 0: it has claimed */
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
 * What a key's state is. `party` holds n_holders holders (in the order of their grants), then
 * n_queue waiters (in the order in which the store recorded them). Legal: a waiter while nobody
 * holds (somebody has to notice). Illegal: a holder without a token, a waiter with one, two parties
 * with one id, a token above rev.
 * A row owns its memory: hf_row_init first, hf_row_clear at the end; hf_row_room before appending.
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
    char result[HF_RESULT_CAP]; /* valid when done_us */
    hf_party inl[2];            /* room for the usual number of parties, without allocation */
} hf_row;

HF_API void hf_row_init(hf_row *row);                            /* no row: rev 0, nobody */
HF_API void hf_row_clear(hf_row *row);                           /* frees; leaves it initialized */
HF_API HF_MUST_USE int hf_row_room(hf_row *row, size_t parties); /* 0 or HF_NOMEM; keeps content */
HF_API HF_MUST_USE int hf_row_copy(hf_row *to, const hf_row *from); /* 0 or HF_NOMEM */
/* Copies only the used bytes of a party. */
HF_API void hf_party_copy(hf_party *to, const hf_party *from);
/* Checks a row that was read from outside. Returns 0, or HF_CORRUPT with what is wrong in *ret_why
   (constant text). */
HF_API int hf_row_check(const hf_row *row, const char **ret_why);
/* Returns the rev of the write that follows `previous`, at the store's clock `clock_us`. 0: the
   clock isn't known. For a new row, by a client that knows the clock within bounds: the latest
   reading. */
HF_API uint64_t hf_rev_next(uint64_t previous, int64_t clock_us);
/* Returns the earliest expires_us of the holders that have claimed; 0: none of them ends by
   time. */
HF_API int64_t hf_row_end(const hf_row *row);
/* Returns 1 if two rows are the same in every field. HF_PARTY_DEAD isn't compared, nor last_id,
   which a store without replies to lose may forget. */
HF_API int hf_row_equal(const hf_row *a, const hf_row *b);

/*
 * The rule of `acquire`, for drivers that hold the row in hand; clock_us is the store's clock, now.
 * What it stores is what core/state/step.c would store. It acts in two cases:
 *
 * Grants. Nobody holds or waits, and *party's grant isn't the one that ended last. (Else the
 * request was sent twice, and this one comes late: nobody waits for it any more.)
 *
 * Appends to the end of the queue. Fewer than may_queue wait. One party holds, exclusively, and its
 * time isn't over. *party is nowhere in the row, and isn't HF_PARTY_DETACHED.
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
    uint64_t *hint; /* a word for this key and store, 0 at first, in which a driver may note where
                       the key is, or what it knows of its row; NULL: none. The driver has to check
                       what it finds there. */
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
    /* Nonzero: `open` makes nothing that isn't there (no file, directory, table, collection): it is
       UNAVAILABLE, and `sys` is ENOENT. Neither does reading later: if the table or the collection
       was dropped since, there are no rows. Set by the caller of `open`; a parsed URL has 0. */
    int existing;
} hf_url;
/* Parses; INVALID if it can't. */
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
     * May be NULL. get and replace in one: no other client reads or writes the row between them, so
     * the write can't be refused, and a waiter that was granted a key claims it by one call. `step`
     * is shown the row and changes it (1, and its rev) or doesn't (0); negative: it failed, nothing
     * is stored, and that is returned (*err is the caller's to fill then). It may be called again,
     * with the row as it is then: if what it made needs a wait for a disk, or its rev isn't above
     * one that the store has forgotten. Of this store it may ask now, and nothing else. 0: *row is
     * the row as stored; else what is in *row means nothing. It wakes the sessions that replace
     * would wake.
     */
    int (*update)(hf_store *st, const hf_rowkey *key, int (*step)(void *arg, hf_row *row),
                  void *arg, hf_row *row, hf_error *err);
    /*
     * First wakeup_begin, then look at the rows, then sleep, until a wakeup of that number (0 to
     * 255) of this handle's session has come since, `interrupt` was called, or local time until_us
     * (CLOCK_BOOTTIME) is reached. Early is fine. replace and update wake inside the write.
     * n_waits: how many waits share the number. `sleep` by any number of threads at once, each with
     * a number of its own; EINTR isn't the end of it.
     */
    int (*wakeup_begin)(hf_store *st, uint8_t wakeup, size_t n_waits, hf_event_count *ret,
                        hf_error *err);
    int (*sleep)(hf_store *st, uint8_t wakeup, const hf_event_count *since, int64_t until_us,
                 hf_error *err);
    /* Makes the present sleep on that number return, or the next one. Any thread. */
    void (*interrupt)(hf_store *st, uint8_t wakeup);
    /* Returns the next event, as next_event of hf_notify_ops, for the waits that share that
       number. */
    int (*next_event)(hf_store *st, uint8_t wakeup, hf_key_event *ret);
} hf_local_ops;

/*
 * The store notifies a handle of changes of the keys to which it has subscribed. Without this group
 * the library polls. Needs `threads`; not together with hf_local_ops.
 *
 * One thread at a time calls all of them but `payload` and `interrupt`: the handle's own, or its
 * caller's, which may have signals. Its rounds are: subscribe and unsubscribe; flush; next_event
 * until there is none; read the rows concerned; sleep.
 */
typedef struct hf_notify_ops {
    /*
     * The handle wants notifications of the key, from the next flush that succeeds until
     * unsubscribe, also across connections that break. Never waits. For a key that is subscribed
     * already: key->in_line or key->who has changed. 0, or HF_NOMEM: it isn't subscribed.
     */
    int (*subscribe)(hf_store *st, const hf_rowkey *key);
    /* Ends the subscription. Never waits. Later notifications of the key may still become
       events. */
    void (*unsubscribe)(hf_store *st, const hf_rowkey *key);
    /*
     * Returns when the server has all changes of the subscriptions: each change of a row after that
     * becomes an event. Connects if need be; after a broken connection the next event has mask 0.
     * *ret is for `sleep`. Negative: the handle isn't notified of anything, and polls.
     */
    int (*flush)(hf_store *st, hf_event_count *ret, hf_error *err);
    /*
     * Until an event has come since the flush that filled *since, `interrupt` was called, or local
     * time until_us (CLOCK_BOOTTIME) is reached. hf_session_ops: the death of a session that the
     * row of a key names is an event of the key, too. Early is fine. Too late costs time only, for
     * the library polls slowly besides. For a request in the queue the events that count are the
     * writes that change the holders and leave it a holder or the first waiter. EINTR isn't the end
     * of it. Returns how many requests to the server it made; negative: no longer connected.
     */
    int (*sleep)(hf_store *st, const hf_event_count *since, int64_t until_us, hf_error *err);
    /* Takes the next event. Never waits. Returns 1: *ret is an event, each once, and the call is to
       be repeated; 0: there is none. */
    int (*next_event)(hf_store *st, hf_key_event *ret);
    /*
     * May be NULL: then the row is read. Any thread; never waits. What the last notification of the
     * key said. 1: *row (initialized; its old content is replaced) is the row as it was stored; or,
     * where a notification brings less, rev 0 and the only holder, of whom id, token, since_us,
     * expires_us and flags are known, with hf_session_ops the session, too. 0: there was none, it
     * said nothing, or later ones may be lost. Only of what is committed, as a read would show it;
     * it may be late, and overtaken. But that the holder is another than key->who of the last
     * subscribe, with no more than id and expires_us, may be untrue: that costs a delay, until the
     * wait polls.
     */
    int (*payload)(hf_store *st, const hf_rowkey *key, hf_row *row);
    /* Makes the present sleep return, or the next one. Any thread. */
    void (*interrupt)(hf_store *st);
} hf_notify_ops;

/* Tells whether a holder's process lives: holds need no lease. */
typedef struct hf_liveness_ops {
    /* Returns the session of this handle (nonzero, and never used before by any handle), made if
       need be. */
    int (*session)(hf_store *st, uint64_t *ret, hf_error *err);
    /* May be NULL. Returns the descriptor that carries the session's life, or -1. */
    int (*session_fd)(hf_store *st);
    /* Returns 1: it lives; 0: it is dead for ever; negative: not known. */
    int (*alive)(hf_store *st, uint64_t session, hf_error *err);
    /*
     * Both may be NULL: no session of this store dies while it holds or waits (a handle that is
     * closed gives everything back). death_fd: a descriptor that becomes readable when a session
     * may have died (a hint: somebody still has to ask alive, more than once, for it may come a
     * little early). Borrowed. -1: none, poll instead. death_read empties it and says whether it
     * was a death perhaps (1), or for certain nothing that a waiter should look at (0).
     */
    int (*death_fd)(hf_store *st);
    int (*death_read)(hf_store *st);
} hf_liveness_ops;

/*
 * Has no clock for leases, but sessions of a given length that end by themselves unless they are
 * kept: nothing in a row ends by time, every party has such a session. By any thread. Needs
 * `threads`; not together with hf_local_ops or hf_liveness_ops. make: a new session (nonzero, never
 * used before by anybody) that lives for *ret_ms from some moment of the call on, at least
 * lease_ms; *ret_clock_us as in get. keep: it lives for *ret_ms anew; HF_LOST: it is dead. It
 * returns at until_us (CLOCK_BOOTTIME) at the latest, but for the time that a new connection and a
 * second request need: what hasn't been answered is HF_UNAVAILABLE, and the next call goes by
 * another connection. It doesn't wait for a connection that other requests are using. left: how
 * long it lives at least, if it isn't kept; HF_LOST. end: it dies now, whichever handle made it.
 */
typedef struct hf_session_ops {
    int (*make)(hf_store *st, int64_t lease_ms, uint64_t *ret, int64_t *ret_ms,
                int64_t *ret_clock_us, hf_error *err);
    int (*keep)(hf_store *st, uint64_t session, int64_t until_us, int64_t *ret_ms, hf_error *err);
    int (*left)(hf_store *st, uint64_t session, int64_t *ret_ms, hf_error *err);
    int (*end)(hf_store *st, uint64_t session, hf_error *err);
    /* May be NULL; never waits. Returns 1 if other clients would learn of this session's death
       later than of a new one's. Then holds that go on are moved to a new session. */
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
    uint8_t queues;  /* 1: waiters stand in the row's queue unless they ask otherwise; 0 where
                        writes are expensive or rate-limited */
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
     * Connects; creates what is missing where permitted. Refuses a store that cannot keep the
     * promise, with the reason. `io_timeout_ms` bounds every later request. *caps is what the
     * driver says of itself, to be changed where this store is another.
     */
    int (*open)(const hf_url *url, int64_t io_timeout_ms, hf_store **ret, hf_caps *caps,
                hf_error *err);
    void (*close)(hf_store *st);

    /* The latest committed row; no row is rev 0. *ret_clock_us: the store's clock while it
       answered, or 0 where `now` is given or there is none. `row` is initialized; its old content
       is replaced. hf_session_ops: here and wherever a row is read each party has HF_PARTY_DEAD if
       its session is dead, for certain and for ever; a holder only if, besides, nobody can believe
       any more by what make or keep said that it lives. The clock may be two
       seconds behind (revs and markers go by it, leases don't). */
    int (*get)(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
               hf_error *err);

    /*
     * Atomically: if the stored rev is `seen` (0: there is none), store `row` (NULL: delete it) and
     * return 0; else HF_CONFLICT, with the current row in *cur if cur isn't NULL. One round trip;
     * two, if a shorter form was tried first. No reply, or an ambiguous one: HF_UNKNOWN, never
     * tried again here. `row` and `cur` differ.
     * A store with hf_local_ops wakes every party that holds in `row` but waited before; and the
     * first waiter, if the earliest end (expires_us) of the holders that aren't unclaimed has
     * changed (hf_row_end says it), or if there is one and another was first, for it planned by
     * that. hf_session_ops: HF_LOST, and nothing is written, if a session of this handle's that the
     * row names is dead.
     */
    int (*replace)(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                   hf_row *cur, int64_t *ret_clock_us, hf_error *err);

    /*
     * Optional. n replaces that have nothing to do with each other, in few round trips, each with
     * a result of its own. No key is named twice. No error, conflict or hang of one changes
     * anything for another one: a store that carries them out one after the other doesn't wait
     * long for one that is held up. Returns at until_us (CLOCK_BOOTTIME) at the latest, but for
     * the time that a new connection needs, a second at most: what hasn't been answered by then is
     * HF_UNKNOWN, and the next call goes by another connection. What was not sent is
     * HF_UNAVAILABLE. By several threads at once
     * (`threads`), each of which has a connection for itself, beside those of other requests
     * if these are in use. The core asks for at most 512; or for none, which only makes the
     * connection for a later call. Returns 0, or why there was no connection: nothing was sent.
     */
    int (*replace_many)(hf_store *st, hf_replace *item, size_t n, int64_t until_us);

    /*
     * Optional. One round trip: hf_row_acquire inside the store, whatever the rev is. A client that
     * is far away gets its place by it, however often others write. It is the only rule of the lock
     * that a store may hold; conformance compares it with core/state/step.c, row by row.
     *
     * may_queue is 0 for a request that doesn't wait, and on stores with sessions, where only the
     * core knows which holders are dead. A store may grant alone, and refuse all else.
     *
     * An append as the first waiter notifies as the replace would that appends it: the holder may
     * be subscribed, to hand the key over without a read. An append behind others notifies nobody.
     *
     * Returns:
     *   0              stored. *cur is the row; of a grant only the rev, the token, the marker and
     *                  the holder's token, since_us and expires_us need be told, the rest is
     *                  *party's. A reply that can't be read for lack of memory is HF_UNKNOWN.
     *   HF_CONFLICT    nothing was changed, and *cur is the current row. A request whose reply was
     *                  lost finds itself in it, if it was stored.
     *   HF_WOULD_WAIT  with hf_local_ops, if *party has HF_PARTY_AT_ONCE: nothing was done, for
     *                  the store would have to wait for a disk. The key is asked for again in a way
     *                  that may take time.
     */
    int (*acquire)(hf_store *st, const hf_rowkey *key, const hf_party *party, uint32_t may_queue,
                   hf_row *cur, int64_t *ret_clock_us, hf_error *err);

    /*
     * Optional. Returns when a power cut can't take the marker that this key had before, nor that
     * it had none. It says nothing of other keys.
     */
    int (*sync)(hf_store *st, const hf_rowkey *key, hf_error *err);

    /* Every row whose key has the prefix; nonzero from `see` ends it with success. Rows changed
       meanwhile may be seen before or after the change. `see` may call get and replace, but not
       where the core serializes calls (without caps.threads). A damaged row is shown as NULL, and
       the scan goes on: `get` tells the reason. A row whose key isn't legal may be shown, and is no
       lock. Where more than a row is damaged: HF_CORRUPT. */
    int (*scan)(hf_store *st, const char *prefix,
                int (*see)(void *arg, const hf_rowkey *, hf_row *), void *arg,
                int64_t *ret_clock_us, hf_error *err);

    /* Optional. Looks at the store's settings for `doctor`: calls say(arg, ok, text) for each. The
       text of one that isn't ok says what is wrong: it is quoted as the reason. */
    int (*inspect)(hf_store *st, void (*say)(void *arg, int ok, const char *text), void *arg,
                   hf_error *err);

    /*
     * Optional. One round trip, for data that a guard of ours protects in this store: raises the
     * fence of `where` (in the store's own words; NULL: what the guard has for the key) to the
     * token, unless a greater one is there: HF_LOST. So it is if the store sees in the same request
     * that no present holder has the token; and what of several holders is the smallest is what it
     * raises the fence to. `alone`: the grant is exclusive; if not, where the row isn't looked at:
     * HF_UNSUPPORTED. HF_INVALID: not a `where`. HF_UNSUPPORTED: no guard is there. HF_UNKNOWN: no
     * reply; asked again it does no harm, however late the first one lands.
     */
    int (*enter)(hf_store *st, const hf_rowkey *key, uint64_t token, int alone, const char *where,
                 hf_error *err);

    /*
     * Optional. Makes the URL name the same store from anywhere: another directory, another user's
     * environment (hf_url_set_path). Called before open; what becomes of `safe` is shown and passed
     * on to children. A URL that is resolved stays as it is.
     */
    int (*resolve)(hf_url *url, hf_error *err);

    /*
     * Optional, both or neither, for `doctor`: where a store keeps the space of rows that were
     * deleted, it is tried on another store. `scratch` names one for the (resolved) URL: beside it,
     * on the same filesystem, with the same options, its `existing` 0; `open` makes what it
     * hasn't made itself. The store of the URL needn't be there. DENIED: nothing may be made there.
     * `discard` removes it, by a signal handler too.
     */
    int (*scratch)(const hf_url *url, hf_url *ret, hf_error *err);
    void (*discard)(const hf_url *url);

    /* Optional. Returns 1 if something in this process may break this store's locks; `to` says in
       one line what, and what to do. 0: nothing is known of that. */
    int (*warning)(hf_store *st, char *to, size_t cap);
} hf_driver;

/* Fills *err (if not NULL) and returns `code`. The text should be like "file: replace 'k': no
   space". */
HF_API int hf_fail(hf_error *err, int code, int sys, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((cold, format(printf, 4, 5)))
#endif
    ;

/* Defines a driver: HF_DRIVER_ENTRY(SCHEME) = {.abi = HF_DRIVER_ABI, ...}. In a module the symbol
   is HF_DRIVER_SYMBOL. Built into the library the symbol is hf__SCHEME_driver, and hidden. */
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
