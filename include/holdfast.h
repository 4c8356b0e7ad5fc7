/*
 * holdfast.h - one holder at a time, by key.
 *
 * Executions that share nothing but a store (a file on one machine, one process's memory, a
 * database server) take turns on a key. A grant is a lease with a fencing token that only grows;
 * the library renews it in the background and tells the holder when it is lost.
 *
 *     hf *store;
 *     hf_lock *lock;
 *     hf_error err;
 *     if (hf_open("file:/var/lib/shop/locks", NULL, &store, &err)) die(err.text);
 *     if (hf_acquire(store, "seats/12/A/5", NULL, &lock, &err)) die(err.text);
 *     sell(hf_token(lock));
 *     hf_release(lock, &err);
 *     hf_close(store);
 *
 * Rules for every function, unless it says otherwise:
 *   - The result is 0 (HF_OK) or one negative code of HF_CODES. A function that fails leaves its
 *     outputs untouched.
 *   - What comes through a `ret` pointer is the caller's; what is returned directly is borrowed
 *     from the object that it was asked of, and lives as long as that object.
 *   - Options start with their own size (use the _INIT macros); NULL means all defaults.
 *   - `err` comes last, may be NULL, and is written only on failure.
 *   - A handle may be used by any number of threads. An hf_lock may be used by several threads,
 *     but only one may release it, as the last thing that anybody does with it.
 *   - A thread that is canceled (pthread_cancel) in a call ends after the call, so give a wait a
 *     limit, or end it by hf_wait_cancel. A signal handler must not call any function.
 *   - After fork() the child has the parent's handles, but none of its locks and waits: each call
 *     with one of these answers HF_LOST and touches nothing. A handle opens its store anew at the
 *     first call in the child, and fails as hf_open does. The parent is unaffected.
 *   - Times are in milliseconds (_ms) or microseconds (_us). Keys are UTF-8, 1 to 512 bytes,
 *     without control characters.
 *
 * What no lock can prevent: a program is paused after it has checked that it holds, and writes when
 * its lease is over. If such a late write would do damage, pass hf_token() with each write, and let
 * the resource refuse a smaller token than it has seen.
 */
#ifndef HOLDFAST_H
#define HOLDFAST_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HF_API      __attribute__((visibility("default")))
#define HF_MUST_USE __attribute__((warn_unused_result))
#else
#define HF_API
#define HF_MUST_USE
#endif

#define HF_VERSION "0.1.0"

#define HF_KEY_CAP    513 /* bytes of a key, with its NUL */
#define HF_OWNER_CAP  128 /* bytes of an owner, with its NUL */
#define HF_NOTE_CAP   256 /* bytes of a note, with its NUL */
#define HF_RESULT_CAP 256 /* bytes of the result of a once event, with its NUL */
#define HF_TEXT_CAP   512 /* bytes of an error text, with its NUL */
#define HF_FOREVER    INT64_C(-1)

/* The owner that rows show for a hold that was released and is kept for a while (at_least_ms). No
   caller may have that name: INVALID. */
#define HF_OWNER_ENDED "(ended)"

/* Each code: name, number, exit status of the command, text; the state after it; what to do.
   hf_code_text, hf_code_state and hf_code_action, the advice of the command's -v, and
   doc/messages.md are made from this table. */
#define HF_CODES(X)                                                                          \
    X(OK, 0, 0, "ok", "it was done", "")                                                     \
    X(BUSY, -1, 75, "held by another", "nothing was changed",                                \
      "wait for it, or look at the holder: holdfast show KEY")                               \
    X(TIMEOUT, -2, 75, "not obtained within the time given", "the request is withdrawn",     \
      "wait for longer, or look at the holder: holdfast show KEY")                           \
    X(CANCELED, -3, 75, "given up by the caller", "the request is withdrawn",                \
      "acquire again if the key is still wanted")                                            \
    X(LOST, -4, 76, "no longer held", "another client may hold the key",                     \
      "stop work that relies on the lock; to go on, acquire again")                          \
    X(UNKNOWN, -5, 69, "the store may or may not have done it",                              \
      "the change may still be made; a grant ends with its lease",                           \
      "see whether it was done before you try again: holdfast show KEY")                     \
    X(UNAVAILABLE, -6, 69, "the store cannot be reached",                                    \
      "nothing was changed; locks stay held until their lease or their process ends",        \
      "check that the store is there and can be reached, then try again")                    \
    X(DENIED, -7, 77, "permission denied", "the store refused the request",                  \
      "check the user, the password and the rights that the store requires")                 \
    X(INVALID, -8, 64, "invalid argument", "nothing was changed",                            \
      "correct what the message names")                                                      \
    X(RECURSIVE, -9, 64, "already held by the caller", "the caller holds the key as before", \
      "release it first, or pass the lock on to the code that needs it")                     \
    X(UNSUPPORTED, -10, 64, "not offered by this store", "nothing was changed",              \
      "use another option or another store: holdfast doctor URL")                            \
    X(CORRUPT, -11, 65, "the store or the row is damaged", "nothing was repaired",           \
      "see what is damaged: holdfast doctor URL; holdfast ls")                               \
    X(FULL, -12, 69, "no room left", "nothing was added",                                    \
      "make room, or delete unused rows: holdfast prune")                                    \
    X(NOMEM, -13, 70, "out of memory", "locks that were held are still held",                \
      "free memory or end threads, then try again")

enum hf_code {
#define HF_CODE_ENUM(name, number, status, text, state, action) HF_##name = number,
    HF_CODES(HF_CODE_ENUM)
#undef HF_CODE_ENUM
};

typedef struct hf hf;           /* a store, opened */
typedef struct hf_lock hf_lock; /* one grant of one key */
typedef struct hf_wait hf_wait; /* one pending acquisition */

/* What went wrong. Plain data: needs no freeing, holds no secret. */
typedef struct hf_error {
    int code;               /* one of enum hf_code */
    int sys;                /* the errno of a failed system call; for LOST by max_hold_ms, ETIME;
                               for UNAVAILABLE of a store that is there and has no room for a
                               client now, or isn't ready yet, or of an SQLite database that other
                               connections have locked, EBUSY; else 0 */
    char text[HF_TEXT_CAP]; /* one line: the store or driver, what was attempted on which key, and
                               why it failed */
} hf_error;

enum hf_mode {
    HF_EXCLUSIVE = 0,
    HF_SHARED = 1, /* together with any number of other shared holders */
    HF_LIMITED = 2 /* together with others, up to `limit` holders in all */
};

enum hf_open_flag {
    /* Opens only a store that exists: neither hf_open nor reading makes a file, directory, table or
       collection. If the store doesn't exist hf_open is UNAVAILABLE, and err->sys is ENOENT. For
       programs that only look (hf_peek, hf_list, hf_watch). */
    HF_OPEN_EXISTING = 1
};

typedef struct hf_open_options {
    size_t size;
    const char *owner;     /* the caller's identity in this handle, not HF_OWNER_ENDED; NULL:
                              random, 128 bits */
    const char *note;      /* for people: shown by `holdfast ls`; NULL: host, pid, user, command */
    int64_t io_timeout_ms; /* the longest one request may take, 100 to 3,600,000; 0: 5,000 */
    unsigned flags;        /* enum hf_open_flag */
} hf_open_options;
#define HF_OPEN_OPTIONS_INIT                      \
    {                                             \
        sizeof(hf_open_options), NULL, NULL, 0, 0 \
    }

enum hf_flag {
    /* The grant isn't bound to this process or handle: it ends by hf_release, by its lease, or
       through the process that adopts it (hf_adopt). Needs lease_ms; isn't renewed. */
    HF_DETACHED = 1,
    /* Don't wait in the store's queue: try again now and then instead. */
    HF_UNQUEUED = 2,
    /* Don't return RECURSIVE: wait without end even for a grant that the waiting thread or owner
       itself holds, because another thread releases it. */
    HF_ALLOW_RECURSIVE = 4,
    /* hf_once_begin: mark the event as done before it runs. */
    HF_AT_MOST_ONCE = 8,
    /* Don't renew in the background: the caller calls hf_renew. */
    HF_NO_RENEW = 16
};

typedef struct hf_options {
    size_t size;
    int64_t wait_ms;     /* how long to wait: 0 tries once, HF_FOREVER (the default) has no limit */
    int64_t lease_ms;    /* 0: the store's default (see hf_open); else 100 to 86,400,000 */
    int64_t max_hold_ms; /* 0: no limit; else the lock is lost after so long, renewed or not. The
                            key becomes free when the holder releases it, or when the lease runs
                            out; on etcd that is only after this process has ended */
    int64_t at_least_ms; /* 0: none; else the key stays taken for so long after the grant, even if
                            hf_release is called before; not above max_hold_ms, if that is given */
    enum hf_mode mode;
    uint32_t limit;            /* HF_LIMITED: 1 to 1,000 */
    unsigned flags;            /* of enum hf_flag */
    const char *owner;         /* NULL: the handle's */
    const char *note;          /* NULL: the handle's */
    const uint8_t *request_id; /* NULL: random; else 16 bytes: a request that is repeated with the
                                  same id gets the same grant, with the same token; the grant is
                                  bound to the process that asked last */
} hf_options;
#define HF_OPTIONS_INIT                                                               \
    {                                                                                 \
        sizeof(hf_options), HF_FOREVER, 0, 0, 0, HF_EXCLUSIVE, 0, 0, NULL, NULL, NULL \
    }

/*
 * Opens a store. `url` is "mem:", "mem:NAME", "file:", "file:/path" or "scheme://..." of a loadable
 * driver; NULL means $HOLDFAST_STORE (INVALID if empty or relative), else the first line of
 * /etc/holdfast/store, else "file:" in the user's state directory.
 * "file:" holds last as long as their process unless a lease is asked for; on stores that cannot
 * tell whether a process lives the default lease is 30 s. INVALID: bad URL ("" is one), unknown
 * scheme.
 */
HF_API HF_MUST_USE int hf_open(const char *url, const hf_open_options *options, hf **ret,
                               hf_error *err);

/* Cancels every wait, awaits the calls under way, releases every lock that is still held (but
   HF_DETACHED ones), and closes the store. NULL is accepted. Locks that weren't released before
   must not be used any more. If the store doesn't answer for io_timeout_ms, the locks that are left
   end by their leases. */
HF_API void hf_close(hf *store);

/* Begins to close, for a program that awaits its own threads before it calls hf_close: cancels
   every wait, and refuses new calls (CANCELED), except hf_release, hf_renew and hf_once_finish. An
   hf_once_finish that is under way is tried for io_timeout_ms more. Doesn't block. NULL is
   accepted. */
HF_API void hf_close_begin(hf *store);

/*
 * Acquires `key`, waiting in the store's queue (FIFO) for up to wait_ms. On HF_OK the lock is the
 * caller's to release. BUSY: wait_ms is 0, and another holds the key or waits for it. TIMEOUT:
 * wait_ms passed. RECURSIVE: wait_ms is HF_FOREVER, and this thread, or the owner that the options
 * name, holds the key through this handle: the call would wait for itself for ever. (A request that
 * is repeated with its request_id gets its grant again instead.)
 * UNKNOWN: the store didn't answer, or didn't confirm that the request was withdrawn. The store may
 * have granted it, or may yet; that grant ends by itself.
 */
HF_API HF_MUST_USE int hf_acquire(hf *store, const char *key, const hf_options *options,
                                  hf_lock **ret, hf_error *err);

/* Acquires `n` keys (1 to 64, no two the same) in sorted order, all or nothing, wait_ms for all
   together. ret[i] belongs to keys[i]. */
HF_API HF_MUST_USE int hf_acquire_all(hf *store, const char *const *keys, size_t n,
                                      const hf_options *options, hf_lock **ret, hf_error *err);

/* Called once, on a library thread, when a pending acquisition has ended: with HF_OK and the lock
   (the callee's to release), or with a code, NULL and the reason. May call any function of this
   header except hf_close and hf_wait_free. An acquisition made in it, on any handle, never waits:
   it is BUSY at once instead. A child that is forked in it ends with status 70 if it returns; it is
   to call _exit or to execute another program before that. */
typedef void hf_acquired_fn(void *arg, int code, hf_lock *lock, const hf_error *err);

/* Starts an acquisition and returns at once. If this fails, `done` is never called; otherwise
   exactly once, on a library thread, perhaps before this returns. A wait costs neither thread nor
   connection. */
HF_API HF_MUST_USE int hf_acquire_start(hf *store, const char *key, const hf_options *options,
                                        hf_acquired_fn *done, void *arg, hf_wait **ret,
                                        hf_error *err);

/* Gives up the acquisition: `done` gets CANCELED, unless the acquisition has ended already. Any
   thread. NULL is accepted. */
HF_API void hf_wait_cancel(hf_wait *wait);

/* Cancels the acquisition if need be, waits until `done` has returned, and frees the wait. NULL is
   accepted. */
HF_API void hf_wait_free(hf_wait *wait);

/*
 * Releases the key, wakes the next waiter, and frees the lock, whatever the result. HF_OK also if
 * the reply was lost but the store shows that the grant is gone, and if the lease ended during this
 * call. LOST: the grant had ended before this call, or was broken; the next holder is not affected.
 * UNAVAILABLE, UNKNOWN: not confirmed; the grant ends by its lease. With NULL: HF_OK.
 */
HF_API int hf_release(hf_lock *lock, hf_error *err);

/* Extends the lease now, to lease_ms from now. 0: to the lease that was asked for at first; if
   there was none, the hold lasts as long as its process again. LOST if the hold is over. INVALID:
   too short a lease for the store's clock; the hold goes on. */
HF_API int hf_renew(hf_lock *lock, int64_t lease_ms, hf_error *err);

HF_API uint64_t hf_token(const hf_lock *lock);    /* the fencing token, below 2^53 */
HF_API const char *hf_key(const hf_lock *lock);   /* borrowed */
HF_API const char *hf_owner(const hf_lock *lock); /* borrowed */
HF_API int64_t hf_left_ms(const hf_lock *lock); /* for how long the holder may rely on the lock; 0:
                                                   it is lost (an adopted lock: perhaps).
                                                   INT64_MAX: as long as this process lives */

/* Returns a descriptor that becomes readable when the lock is lost; borrowed; -1: out of
   descriptors. */
HF_API int hf_lost_fd(hf_lock *lock);

/* Calls `lost(arg, lock)` once, on a library thread, when the lock is lost before it is released;
   at once if it is lost already. The callback must not wait for long: other losses are reported
   after it. It keeps to the rules of hf_acquired_fn. A lock has one callback; a later call replaces
   it, NULL removes it. hf_release waits for a running callback, unless the callback calls it.
   Returns: HF_OK. UNAVAILABLE, NOMEM: the thread that would call `lost` could not be started, and
   the callback is as it was before. LOST: the lock belongs to the parent of a fork. */
HF_API int hf_on_lost(hf_lock *lock, void (*lost)(void *arg, hf_lock *lock), void *arg);

/* Tells why a lock was lost, without asking the store.
   Returns: 0: not lost, as far as the handle knows. LOST: `err` names the cause: the store has
   ended the grant; max_hold_ms is over (err->sys is ETIME); or the lease has run out, with the
   error of the first renewal that failed. CORRUPT: lost because the store, or the row, is damaged.
 */
HF_API int hf_lost_reason(const hf_lock *lock, hf_error *err);

/* Asks the store whether the lock is held at this moment. 0: it is. LOST: it isn't. CORRUPT: the
   store, or the row, is damaged or was replaced, so the lock is lost. */
HF_API HF_MUST_USE int hf_confirm(hf_lock *lock, hf_error *err);

/*
 * Raises a fence to the lock's token, by one round trip. The fence belongs to a guard that protects
 * the caller's data in the same store (see `holdfast guard`). Once this has returned 0, the guard
 * refuses what an earlier holder still writes. Call it before the first read of the data, which the
 * caller reads and writes by its own connection. `where` names the fence in the store's own syntax;
 * NULL: the fence that the guard has for the key. LOST: the grant is over. UNSUPPORTED: this store
 * has no fences, or the guard is missing. UNKNOWN: the fence may not be raised; call this again
 * before reading.
 */
HF_API HF_MUST_USE int hf_enter(hf_lock *lock, const char *where, hf_error *err);

/*
 * Makes a lock for a grant that was made elsewhere (HF_DETACHED, or by another process), named by
 * key and token. LOST: that grant is over.
 *
 * The lock isn't renewed in the background, and hf_close doesn't release it. A hold that is bound
 * to another process stays bound to it; hf_confirm tells whether that process lives, hf_left_ms
 * doesn't. The lock knows what the store has at this moment: mode, owner, the lease and its end. It
 * may not notice renewals by others. It doesn't know at_least_ms (hf_release frees the key at
 * once), max_hold_ms, or the thread that acquired it (which doesn't get RECURSIVE if it asks
 * again).
 */
HF_API HF_MUST_USE int hf_adopt(hf *store, const char *key, uint64_t token, hf_lock **ret,
                                hf_error *err);

typedef struct hf_once {
    hf_lock *lock;              /* RUN: the lock, to be ended by hf_once_finish or hf_release; NULL:
                                   the event is done */
    int64_t done_us;            /* when it was done, by the store's clock (about the time of day) */
    char owner[HF_OWNER_CAP];   /* the owner of the run that marked it */
    char result[HF_RESULT_CAP]; /* that run's result */
} hf_once;

/* Begins the event `key`: HF_OK with ret->lock: the caller is to run it; HF_OK without: it is done.
   BUSY (or TIMEOUT): another run is under way. A run that dies or releases its lock leaves the
   event undone. A run with the same owner as a dead run also waits until that run's hold has ended.
   With HF_AT_MOST_ONCE the event is marked as done (for keep_ms) before this returns, and the
   marker is durable. INVALID: another mode than HF_EXCLUSIVE. RECURSIVE: as hf_acquire. */
HF_API HF_MUST_USE int hf_once_begin(hf *store, const char *key, int64_t keep_ms,
                                     const hf_options *options, hf_once *ret, hf_error *err);

/* Does what hf_once_begin does, started as by hf_acquire_start. `done` gets HF_OK and the lock: run
   the event; or HF_OK and NULL: it is done, and *ret says when, by which owner and with what
   result. `ret` has to last until then. */
HF_API HF_MUST_USE int hf_once_start(hf *store, const char *key, int64_t keep_ms,
                                     const hf_options *options, hf_once *ret, hf_acquired_fn *done,
                                     void *arg, hf_wait **wait, hf_error *err);

/* Turns the hold into a marker that is kept for keep_ms (HF_FOREVER: never pruned) and is durable
   on return, and frees the lock whatever the result. `result` may be NULL; it is cut to 255 bytes,
   and bytes that aren't UTF-8 become '?'. If the store doesn't answer, the call tries again for as
   long as the hold lasts, a minute at most. LOST: the hold was over; the event isn't marked.
   UNKNOWN: the event may be marked. UNAVAILABLE: it isn't. INVALID: keep_ms is neither HF_FOREVER
   nor at least 1, the hold isn't exclusive, or `lock` is NULL (the event was done already). */
HF_API int hf_once_finish(hf_lock *lock, const char *result, int64_t keep_ms, hf_error *err);

/* One holder or waiter, for display. */
typedef struct hf_party_info {
    char owner[HF_OWNER_CAP];
    char note[HF_NOTE_CAP];
    uint64_t token;   /* 0 for a waiter */
    int64_t since_us; /* by the store's clock */
    int64_t left_ms;  /* a holder's lease; HF_FOREVER: as long as its process lives; 0: waiter */
    enum hf_mode mode;
    uint32_t limit;
    int claimed; /* 0: the key was handed over, and the holder hasn't claimed it yet */
} hf_party_info;

typedef struct hf_info {
    char key[HF_KEY_CAP];
    uint64_t rev;                   /* 0: the store has no row of this key */
    uint64_t token;                 /* of the last grant */
    int64_t now_us;                 /* the store's clock */
    int64_t done_us, keep_until_us; /* 0, 0: no marker; keep_until_us HF_FOREVER: for ever */
    char result[HF_RESULT_CAP];
    char done_by[HF_OWNER_CAP]; /* the owner of the run that marked it */
    size_t n_holders, n_waiters;
    const hf_party_info *parties; /* the holders, then the waiters in order */
} hf_info;

/* Called for each key; `info` is valid during the call only. Nonzero ends the listing with success.
   Must not call hf_close, which waits for the callback (and ends the listing with CANCELED). A
   child that is forked in it must not return from it. */
typedef int hf_info_fn(void *arg, const hf_info *info);

/* Shows one key, also an unused one (rev 0). Holders that are over or dead are not shown. */
HF_API int hf_peek(hf *store, const char *key, hf_info_fn *see, void *arg, hf_error *err);

/* Shows every key with the prefix ("" or NULL: all), in no order. A damaged row is passed over;
   then the result is CORRUPT, after all others were shown, and `err` describes the first damaged
   row. */
HF_API int hf_list(hf *store, const char *prefix, hf_info_fn *see, void *arg, hf_error *err);

/* Shows every key with the prefix that is held or waited for, then each key that has changed, until
   `see` returns nonzero. Looks at the store about four times a second, and calls `see` with NULL
   after each look. */
HF_API int hf_watch(hf *store, const char *prefix, hf_info_fn *see, void *arg, hf_error *err);

/* Ends the grant with this token, so that its holder loses it. LOST: that grant is over already. */
HF_API int hf_break(hf *store, const char *key, uint64_t token, hf_error *err);

/* Removes the marker of an event that is done, durably on return: the event may run again.
   Returns: HF_OK. LOST: the event isn't marked as done. */
HF_API int hf_forget(hf *store, const char *key, hf_error *err);

/* Deletes rows that are free, have no marker in force, and were not written for idle_ms (at least
   60,000). Adds the number of deleted rows to *ret_n. */
HF_API int hf_prune(hf *store, int64_t idle_ms, uint64_t *ret_n, hf_error *err);

typedef struct hf_stats {
    size_t size; /* set by the caller: sizeof(hf_stats) */
    uint64_t acquired, released, busy, timeouts, canceled, lost, renewals, unknown, errors;
    uint64_t store_ops;     /* requests sent to the store */
    uint64_t wait_us_total; /* time that successful acquisitions waited */
    uint32_t held, waiting; /* now */
} hf_stats;
HF_API int hf_get_stats(hf *store, hf_stats *ret);

/* Returns the descriptor on which this handle's holds depend (`file:` only; otherwise -1): they
   last until the last copy of it is closed. Borrowed. A child that inherits a dup of it keeps the
   holds alive. */
HF_API int hf_session_fd(const hf *store);

HF_API const char *hf_version(void);              /* "0.1.0" */
HF_API const char *hf_code_name(int code);        /* "BUSY"; "?" if there is none */
HF_API const char *hf_code_text(int code);        /* "held by another" */
HF_API const char *hf_code_state(int code);       /* the state after this error: "nothing was
                                                     changed" */
HF_API const char *hf_code_action(int code);      /* what to do: "wait for it, or ..."; or "" */
HF_API int hf_code_exit_status(int code);         /* of the command: 75 */
HF_API const char *hf_store_url(const hf *store); /* borrowed; without secrets */

/* Looks for something in this process that may break the store's locks: for `sqlite:`, a second
   copy of SQLite. Returns 1 with a line in `ret`, which is cut to `cap` bytes; 0: nothing was
   found. */
HF_API int hf_store_warning(hf *store, char *ret, size_t cap);

/* Releases the lock and clears the pointer, for HF_SCOPED. */
HF_API void hf_release_scope(hf_lock **lock);

/*
 * A lock that is released when its scope is left, by return, break or goto:
 *     HF_SCOPED hf_lock *lock = NULL;
 *     if (hf_acquire(store, key, NULL, &lock, &err)) return err.code;
 */
#if defined(__GNUC__)
#define HF_SCOPED __attribute__((cleanup(hf_release_scope)))
#endif

#ifdef __cplusplus
}
#endif
#endif
