/*
 * ext.h - the extension module holdfast._holdfast: what its files share.
 *
 * No library thread ever asks for the GIL: what it has to tell goes into a C structure and wakes
 * a semaphore or an eventfd. So nothing can hang in it when the interpreter ends, and hf_release,
 * which waits for a running callback, can't wait for a thread that waits for the GIL.
 *
 * Every call that may block is made without the GIL and counted in its store's `users` meanwhile;
 * close() waits until there are none. Lists and counts are guarded by the GIL.
 *
 * A counted call runs no Python code: a finalizer or a signal's handler may close the store, and
 * would wait for its own thread. So objects that the collector looks after are made before,
 * since to make one may start it, and errors are raised after.
 */
#ifndef HOLDFAST_EXT_H
#define HOLDFAST_EXT_H

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x03090000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "holdfast.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>

typedef struct store store;
typedef struct lock lock;
typedef struct box box;
typedef struct waiting waiting;
typedef struct watching watching;

struct store {
    PyObject_HEAD hf *h; /* NULL: closed */
    unsigned generation; /* of the process that opened it */
    int closing;
    int users;      /* threads that are inside a call of the library */
    uint64_t tries; /* that were BUSY, and a wait followed: no `busy` of the caller's */
    lock *locks;    /* not released yet; the same by the hash of their keys (held.c): */
    lock **table, *one_bucket;
    size_t table_mask, n_locks;
    waiting *waits;                    /* that somebody will take */
    waiting *given_up, **given_up_end; /* the others, until they are told: the oldest first */
    watching *watches;                 /* going on */
};

/* Which caller asks; see caller.c. */
typedef struct caller {
    uint64_t mark;  /* the thread's number and, outside of event loops, its context's; 0: none */
    PyObject *task; /* a weak reference to the asyncio task, or NULL */
    int in_loop;    /* an event loop runs in this thread */
    uint64_t outer; /* in one: the mark of the code of this thread that runs it, or 0 */
} caller;

struct lock {
    PyObject_HEAD store *store;
    hf_lock *l; /* NULL: released, or its store was closed */
    /* An acquisition with recursive=True by the caller that holds the key already shares the grant
       of that lock, its root, and is one lock more of it. */
    lock *root;
    int depth; /* of a root: the locks of its grant that aren't released yet, itself included */
    PyObject *key, *owner;
    uint64_t token;
    int users; /* of a root: threads that are inside a call with it */
    enum hf_mode mode;
    int detached;
    int lasts;           /* nothing but its holder ends it: it has no lease, or is renewed */
    int once;            /* an event's */
    int ended, failed;   /* it was released, to this result */
    int touched;         /* its holder has used it (1), or see below */
    int64_t keep_ms;     /* of an event */
    unsigned generation; /* of the process that acquired it */
    caller by;
    int of_block;    /* a block of a Locking has it: this frame has the block */
    uintptr_t frame; /* that called acquire(), at this instruction; 0: not known */
    long place;
    unsigned how;          /* enum noted */
    uint64_t call;         /* which call of its thread it came from; see lock_note_frame */
    int handed_over;       /* it has the grant of a lock that was dropped */
    struct losing *losing; /* the mailboxes that get a number when it is lost */
    PyObject *weak;        /* references */
    lock *below;           /* the lock that its Locking had before it, or NULL */
    lock *next, **prev;
    size_t hash; /* of the key */
    lock *table_next, **table_prev;
};

/* What keyword arguments say. Holds references. */
typedef struct asked {
    hf_options o;
    int64_t keep_ms;
    const char *doing;      /* for errors: "acquire", "once" */
    PyObject *owner, *note; /* bytes */
    uint8_t request[16];
} asked;

/* ---- module.c ---- */

extern PyTypeObject *store_type, *lock_type, *locking_type, *wait_type, *box_type, *watch_type;
unsigned fork_generation(void);
enum { RAISED = 1 }; /* instead of a code of the library's: there is an exception */
/* Raises the exception of this code. Returns NULL. The key may be NULL. */
PyObject *raise_code(int code, const hf_error *err, PyObject *key);
/* The text is given away; NULL: there is an exception already. */
PyObject *raise_object(int code, PyObject *key, PyObject *text);
PyObject *raise_text(int code, PyObject *key, const char *text);
/* Objects of holdfast._errors. */
extern PyObject *unbound_error, *unavailable_error, *note_loss, *release_warning;
/* Raises the exception of this code, with the text "doing 'key': why". Returns NULL. */
PyObject *raise_why(int code, const char *doing, PyObject *key, const char *why);
/* The `tp_new` of types whose objects only a store makes: raises an exception. */
PyObject *made_by_hand(PyTypeObject *type, PyObject *args, PyObject *kwargs);

/* ---- caller.c ---- */

int callers_begin(void);     /* 0; -1 and an exception */
uint64_t this_thread(void);  /* a number; unlike Python's no later thread gets it, too */
int caller_read(caller *to); /* 0; -1 and an exception */
void caller_drop(caller *c);
int caller_same(const caller *a, const caller *b);
/* Returns which code this thread runs: its own function, a job of a pool, or a greenlet. -1: there
 * is an exception. */
int caller_kind(void);
enum { IN_THREAD, IN_POOL, IN_GREENLET };

/* ---- args.c ---- */

/* FOR_ACQUIRE: acquire() of a Locking, whose options are those of threading.Lock. */
enum { FOR_ONCE = 1, FOR_OPEN, FOR_ACQUIRE };
/* Reads keyword arguments. Returns 0: `to` has references that asked_done drops; -1: there is an
   exception. */
int asked_read(asked *to, PyObject *kwargs, int for_what, PyObject *key);
void asked_done(asked *a);
/* Raises the TypeError that Python itself raises for an unknown keyword argument. */
void unknown_option(const char *doing, PyObject *key, PyObject *name, int for_what);
/* How long a time may be, in ms; `text` says it. With `endless`, inf is HF_FOREVER. */
struct limits {
    int64_t least, most;
    int endless;
    const char *text;
};
extern const struct limits wait_limits, lease_limits, io_timeout_limits, idle_limits;
/* Reads a time: seconds, or a text such as "500ms". Returns 0; -1 if it is neither, or out of
   range: the exception says what was attempted on which key (or NULL). */
int time_read(const char *doing, PyObject *key, const char *name, PyObject *value,
              const struct limits *limits, int64_t *ret_ms);
/* Returns 0 or 1; -1, with an exception: the value is no bool. The key may be NULL. */
int flag_read(const char *doing, PyObject *key, const char *name, PyObject *value);
/* Reads a token, for `what` with this key (a str). Returns 0; -1, with an exception: it is no
   token. */
int token_read(const char *what, PyObject *value, PyObject *key, uint64_t *ret);
/* Returns a str without NUL as bytes; NULL: there is an exception. The key may be NULL. */
PyObject *text_bytes(const char *doing, PyObject *key, const char *name, PyObject *value);
/* Returns the only positional argument, a key, as bytes; *ret_key is the key itself, borrowed. */
PyObject *key_bytes(const char *doing, PyObject *args, PyObject **ret_key);
PyObject *option_names(void);

/* ---- hints.c ---- */

/* How the option is written that other libraries call so: "write wait"; 0: nothing is known. The
   name is a str. */
int hint_read(PyObject *name, int for_what, char *ret, size_t cap);
/* _open_hint(name): the same for the options of a store, or None. */
PyObject *open_hint(PyObject *module, PyObject *name);

/* ---- store.c ---- */

/* Returns the handle, and counts the call in `users`; NULL: there is an exception. The key may be
   NULL. */
hf *store_enter(store *s, const char *doing, PyObject *key);
void store_leave(store *s);
/* Returns 1 if the store is closed. In the child of a fork it first drops the parent's locks and
   waits. */
int store_closed_here(store *s);
int store_is_near(const store *s); /* it takes no request to a server */
PyObject *store_acquire_asked(store *s, PyObject *key, const asked *a);
/* Acquires without waiting for a server. Returns a Lock, or None. */
PyObject *store_try_asked(store *s, PyObject *key, const asked *a);
/* Starts a wait that tells the mailbox; a Wait. */
PyObject *store_start_asked(store *s, PyObject *key, const asked *a, PyObject *mailbox, uint64_t id,
                            int once);
extern PyType_Spec store_spec;

/* ---- lock.c ---- */

/* Makes a lock that holds nothing yet, of this caller (whose reference it takes over; NULL: of
   none). */
lock *lock_blank(store *s, PyObject *key, const asked *a, caller *by);
/* Returns 0; RAISED: there was no memory, and the grant was released. */
int lock_begin(lock *to, hf_lock *l);
/* Makes `to` share the grant of `held`. */
void lock_nest(lock *to, lock *held);
/* Returns a lock of the key that the caller may acquire once more, or NULL. */
lock *lock_of_caller(store *s, PyObject *key, enum hf_mode mode, const caller *by);
/* Would a wait without end for the key be one for its own caller? 0; HF_RECURSIVE and *ret_why;
   HF_CANCELED: the store was closed meanwhile; RAISED. `sits`: the wait keeps its thread. */
int lock_waits_for_itself(store *s, PyObject *key, enum hf_mode mode, const caller *by, int sits,
                          const char **ret_why);
/* `raised`: the exception that its block ends with, to be told of a loss; else NULL. */
PyObject *lock_release_now(lock *l, PyObject *raised);
/* As lock_release_now, but a release that isn't confirmed is a warning. */
PyObject *lock_leave_block(lock *l, PyObject *raised);
PyObject *raised_of(PyObject *args); /* of __exit__: borrowed, or NULL */
/* The store is being closed: no call uses its locks any more. Losses may still be reported to the
   mailboxes until hf_close is done; only then the caller frees the returned list. */
struct losing *locks_closed(store *s);
void losing_free(struct losing *all);
extern PyType_Spec lock_spec, locking_spec;
PyObject *locking_new(store *s, PyObject *key, asked *a, int has_options);

/* ---- several.c ---- */

/* Adds to the module what Locks and Event take as their methods. 0; -1 and an exception. */
int several_begin(PyObject *m);

/* ---- held.c ---- */

size_t key_hash(PyObject *key);
void lock_enlist(lock *to);
void lock_delist(lock *l); /* l->prev is NULL then */
/* The first of the locks whose keys may be this one; the next one is its table_next. */
lock *locks_like(store *s, PyObject *key);
void locks_forget_all(store *s); /* they are the parent's */

/* ---- dropped.c ---- */

/* In lock.touched: its truth value was asked for, which raised; an attribute was read, no more. */
enum { ASKED_WRONGLY = 2, READ_ONLY = 3 };
/* WITHIN: the object that keeps the lock may be dropped within the call. SEVERAL: of acquire_all.
   AWAITED: the frame awaits the call. FOLLOWS: of the same call as the lock that was noted last. */
enum noted { WITHIN = 1, SEVERAL = 2, AWAITED = 4, FOLLOWS = 8 };
/* The lock came from a call that this frame makes (NULL: the running one). */
void lock_note_frame(lock *l, PyObject *frame, unsigned how);
PyObject *lock_note(lock *l, PyObject *args);
PyObject *lock_warn_of_release(const hf_error *err); /* None; NULL: warnings are errors */
void lock_complain(lock *l);                         /* it was dropped without being released */

/* A lock that takes over the grant of one that is dropped, and a release of it in a thread (the
   reference is given away); NULL: the grant is released at once. */
lock *lock_successor(lock *l);
void lock_release_later(lock *to);

/* ---- wait.c ---- */

struct waiting {
    hf_wait *w;
    pthread_mutex_t mu; /* what follows */
    int told, abandoned;
    int unwanted; /* the store is being closed: what it brings is given back, its end is told */
    int code;
    hf_lock *lock;
    hf_error err;
    hf_once once;
    sem_t sem;
    box *box; /* NULL: the semaphore alone */
    uint64_t id;
    int detached;
    unsigned generation;   /* of the process that started it */
    waiting *next, **prev; /* of its store; under the GIL */
    store *store;
};

/* An eventfd, closed on exec and above 2: what the program prints while its standard output is
   closed would land in it. -1 and errno: none. */
int event_fd(void);
/* Starts one (once: keep_ms as asked), or says why not. */
int waiting_start(store *s, hf *h, const char *key, const asked *a, int once, box *to, uint64_t id,
                  waiting **ret, hf_error *err);
/* Waits until the result is there. Returns 0; -1, with an exception: the wait was abandoned. */
int waiting_sit(waiting *w);
void waiting_abandon(waiting *w);
void waiting_free(waiting *w); /* told, and nobody's */
/* Frees the oldest abandoned waits, up to the first whose result isn't there yet. */
void waiting_reap(store *s);
/* The store is being closed, which leaves alone what is detached: what such waits have brought, for
   the caller to give back and free. What they bring later on is given back at once. */
hf_lock **waits_closed(store *s, size_t *ret_n);
void box_push(box *b, uint64_t id);
box *box_of(PyObject *mailbox); /* one more reference, which may push; or NULL, an exception */
void box_drop(box *b);
PyObject *wait_blank(store *s, PyObject *key, const asked *a, int once);
void wait_begin(PyObject *wait, waiting *w);
PyObject *once_tuple(lock *held, const hf_once *once); /* the lock is given away, or NULL */
extern PyType_Spec wait_spec, box_spec;

/* ---- look.c ---- */

PyObject *store_peek(store *s, PyObject *args);
PyObject *store_list(store *s, PyObject *args);
PyObject *store_watch(store *s, PyObject *args);
void watching_stop_all(store *s);
void watching_forget_all(store *s); /* they are the parent's */
extern PyType_Spec watch_spec;

#endif
