/*
 * ext.h - the extension module holdfast._holdfast: what its files share.
 *
 * A thread of the library never takes the GIL. It writes a result into a C structure, and then
 * posts a semaphore or writes to an eventfd. So no such thread hangs when the interpreter ends. And
 * hf_release, which waits for a running callback, never waits for a thread that waits for the GIL.
 *
 * Every call that may block is made without the GIL, and counted in `users` of its store meanwhile;
 * close() waits until that count is 0. The GIL protects lists and counts.
 *
 * No Python code runs during a counted call: a finalizer or a signal handler may close the store,
 * and close() would wait for its own thread. To make an object that the garbage collector tracks
 * may start the collector. So such objects are made before the call, and errors are raised after
 * it.
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
    unsigned generation; /* the fork generation of the process that opened it */
    int closing;
    int users;      /* how many threads are inside a call of the library */
    uint64_t tries; /* attempts that found the key held and were followed by a wait; stats() takes
                       them off `busy` */
    lock *locks;    /* the locks that aren't released yet; and by the hash of their keys
                       (held.c): */
    lock **table, *one_bucket;
    size_t table_mask, n_locks;
    waiting *waits;                    /* waits whose results the program will take */
    waiting *given_up, **given_up_end; /* abandoned waits, until their end is reported; the oldest
                                          first */
    watching *watches;                 /* watches that haven't ended */
};

/* Identifies the caller of a function; see caller.c. */
typedef struct caller {
    uint64_t mark;  /* the thread's number and, outside of event loops, a number of its context in
                       the low 32 bits; 0: no caller */
    PyObject *task; /* a weak reference to the asyncio task, or NULL */
    int in_loop;    /* an event loop runs in this thread */
    uint64_t outer; /* inside an event loop: the mark of the code of this thread that runs the loop,
                       or 0 */
} caller;

struct lock {
    PyObject_HEAD store *store;
    hf_lock *l; /* NULL: released, or its store was closed */
    /* An acquisition with recursive=True by the caller that holds the key already shares the grant
       of that lock, its root, and is one lock more of it. */
    lock *root;
    PyObject *callbacks; /* of a root: those of on_lost, or NULL */
    int depth; /* of a root: how many locks of its grant aren't released yet, itself included */
    PyObject *key, *owner;
    uint64_t token;
    int users; /* of a root: how many threads are inside a call with it */
    enum hf_mode mode;
    int detached;
    int lasts;           /* only its holder ends it: it has no lease, or is renewed */
    int once;            /* an event's */
    int ended, failed;   /* the lock was released, with this result */
    int touched;         /* 0: the program hasn't used the lock object yet; 1: it has; or
                            ASKED_WRONGLY or READ_ONLY */
    int64_t keep_ms;     /* of an event */
    unsigned generation; /* the fork generation of the process that acquired it */
    caller by;
    int of_block;    /* 1: a `with` block of a Locking holds it */
    PyObject *stack; /* of a block: the ExitStack that entered it, see stack_of_frame(); or NULL */
    uintptr_t frame; /* the frame that called acquire() (`place`: the offset of its instruction) or
                        entered the block; 0: not known, or the block has a stack */
    long place;
    unsigned how;          /* enum noted */
    uint64_t call;         /* the number of the call of its thread that returned it; see
                              lock_note_frame */
    int handed_over;       /* it took over the grant of a lock that was dropped */
    struct losing *losing; /* the mailbox that gets a number when the lock is lost; NULL: none */
    PyObject *weak;        /* the list of weak references to it */
    lock *below;           /* the lock that its Locking held before this one, or NULL */
    lock *next, **prev;
    size_t hash; /* of the key */
    lock *table_next, **table_prev;
};

/* The values of keyword arguments. Holds references. */
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
enum { RAISED = 1 }; /* returned instead of a code of the library: an exception is set */
/* Raises the exception of this code. Returns NULL. The key may be NULL. */
PyObject *raise_code(int code, const hf_error *err, PyObject *key);
/* raise_object takes over the reference to the text (NULL: an exception is set already). */
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
uint64_t this_thread(void);  /* returns the thread's number, which, unlike Python's, no later thread
                                gets */
int caller_read(caller *to); /* 0; -1 and an exception */
void caller_drop(caller *c);
int caller_same(const caller *a, const caller *b);
/* If the frame runs a method of an ExitStack, returns a weak reference that identifies the stack,
   which enters a block in one frame and leaves it in another. The reference is to the stack's
   callbacks, because pop_all() moves those to another stack. Returns NULL, without an exception, if
   the frame runs other code or is NULL. An object has at most one weak reference without a
   callback, so references to the same stack are the same pointer. */
PyObject *stack_of_frame(PyObject *frame);
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
/* The limit of a time, in ms, and its text. With `endless`, inf is allowed: HF_FOREVER. */
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
/* Returns the UTF-8 bytes of a str; NULL, with an exception: it is no str, or has a NUL. The key
   may be NULL. */
PyObject *text_bytes(const char *doing, PyObject *key, const char *name, PyObject *value);
/* Returns the only positional argument, a key, as bytes; *ret_key is the key itself, borrowed. */
PyObject *key_bytes(const char *doing, PyObject *args, PyObject **ret_key);
PyObject *option_names(void);

/* ---- hints.c ---- */

/* Returns how an option with another library's name is written here: "write wait"; 0: not known.
   The name is a str. */
int hint_read(PyObject *name, int for_what, char *ret, size_t cap);
/* _open_hint(name): returns the same for the options of a store, or None. */
PyObject *open_hint(PyObject *module, PyObject *name);

/* ---- store.c ---- */

/* Returns the handle, and counts the call in `users`; NULL: there is an exception. The key may be
   NULL. */
hf *store_enter(store *s, const char *doing, PyObject *key);
void store_leave(store *s);
/* Returns 1 if the store is closed. In the child of a fork it first drops the parent's locks and
   waits. */
int store_closed_here(store *s);
int store_is_near(const store *s); /* returns 1 if a call needs no request to a server */
PyObject *store_acquire_asked(store *s, PyObject *key, const asked *a);
/* Acquires without waiting for a server. Returns a Lock, or None. */
PyObject *store_try_asked(store *s, PyObject *key, const asked *a);
/* Starts a wait that notifies the mailbox. Returns a Wait. */
PyObject *store_start_asked(store *s, PyObject *key, const asked *a, PyObject *mailbox, uint64_t id,
                            int once);
extern PyType_Spec store_spec;

/* ---- lock.c ---- */

/* Makes a lock that holds nothing yet, for this caller, whose reference it takes over (NULL: no
   caller). */
lock *lock_blank(store *s, PyObject *key, const asked *a, caller *by);
/* Gives the grant to the lock. Returns 0; RAISED: there was no memory, and the grant was
   released. */
int lock_begin(lock *to, hf_lock *l);
/* Makes `to` share the grant of `held`. */
void lock_nest(lock *to, lock *held);
/* Returns the lock by which this caller holds the key already, and whose grant one more lock may
   share; NULL: there is none. */
lock *lock_of_caller(store *s, PyObject *key, enum hf_mode mode, const caller *by);
/* Checks whether a wait without a limit for the key would wait for its own caller. Returns 0: it
   wouldn't; HF_RECURSIVE: it would, and *ret_why says why; HF_CANCELED: the store was closed
   meanwhile; RAISED. `sits`: the wait blocks its thread. */
int lock_waits_for_itself(store *s, PyObject *key, enum hf_mode mode, const caller *by, int sits,
                          const char **ret_why);
/* Releases the lock. `raised`: the exception that its block ends with, which gets a note of a loss;
   or NULL. */
PyObject *lock_release_now(lock *l, PyObject *raised);
/* Does what lock_release_now does, but a release that isn't confirmed is a warning. */
PyObject *lock_leave_block(lock *l, PyObject *raised);
PyObject *raised_of(PyObject *args); /* returns the exception in the arguments of __exit__,
                                        borrowed; NULL: there is none */
/* Called when the store is being closed: no call uses its locks any more. Losses may still be
   reported to the mailboxes until hf_close is done; only then the caller frees the returned
   list. */
struct losing *locks_closed(store *s);
void losing_free(struct losing *all);
extern PyType_Spec lock_spec, locking_spec;
PyObject *locking_new(store *s, PyObject *key, asked *a, int has_options);

/* ---- several.c ---- */

/* Adds functions to the module. The Python classes Locks (_several.py) and Event
   (__init__.py) take them as methods. Returns 0; -1 and an exception. */
int several_begin(PyObject *m);

/* ---- held.c ---- */

size_t key_hash(PyObject *key);
void lock_enlist(lock *to);
void lock_delist(lock *l); /* l->prev is NULL then */
/* Returns the first of the locks whose keys may be this one; the next one is its table_next. */
lock *locks_like(store *s, PyObject *key);
void locks_forget_all(store *s); /* they are the parent's */

/* ---- dropped.c ---- */

/* Values of lock.touched: its truth value was asked for, which raised; or only an attribute was
   read. */
enum { ASKED_WRONGLY = 2, READ_ONLY = 3 };
/* WITHIN: the object that keeps the lock may be dropped within the call. SEVERAL: of acquire_all.
   AWAITED: the frame awaits the call. FOLLOWS: of the same call as the lock that was noted last. */
enum noted { WITHIN = 1, SEVERAL = 2, AWAITED = 4, FOLLOWS = 8 };
/* Notes that the lock came from a call that this frame makes (NULL: the running frame). */
void lock_note_frame(lock *l, PyObject *frame, unsigned how);
PyObject *lock_callbacks(lock *l, void *unused);
int lock_keep_callbacks(lock *l, PyObject *to, void *unused);
int lock_traverse(lock *l, visitproc visit, void *arg);
int lock_clear(lock *l);
PyObject *lock_note(lock *l, PyObject *args);
PyObject *lock_warn_of_release(const hf_error *err); /* returns None; NULL: the program has warnings
                                                        raised as exceptions */
void lock_complain(lock *l, int raised);             /* called when the lock was dropped without
                                                        being released */

/* Makes a lock that takes over the grant of a dropped one, and releases it in a thread (the
   reference is passed on). Returns NULL if the grant is to be released at once. */
lock *lock_successor(lock *l);
void lock_release_later(lock *to);

/* ---- wait.c ---- */

struct waiting {
    hf_wait *w;
    pthread_mutex_t mu; /* protects what follows */
    int told;           /* 1: the library has reported the result */
    int abandoned;      /* 1: no code takes the result any more */
    int unwanted; /* the store is being closed: a grant is released, and the wait's end is still
                     reported */
    int code;
    hf_lock *lock;
    hf_error err;
    hf_once once;
    sem_t sem;
    box *box; /* NULL: the semaphore alone */
    uint64_t id;
    int detached;
    unsigned generation;   /* the fork generation of the process that started it */
    waiting *next, **prev; /* in the list of its store; under the GIL */
    store *store;
};

/* Makes an eventfd that is closed on exec and above 2: if the program's standard output is closed,
   what it prints must not land there. Returns -1 and errno if that fails. */
int event_fd(void);
/* Starts a wait for the key, or for its event (`once`). Returns 0, or the code if it can't be
   started. */
int waiting_start(store *s, hf *h, const char *key, const asked *a, int once, box *to, uint64_t id,
                  waiting **ret, hf_error *err);
/* Waits until the result is there. Returns 0; -1, with an exception: the wait was abandoned. */
int waiting_sit(waiting *w);
void waiting_abandon(waiting *w);
void waiting_free(waiting *w); /* called once the result is there, when no code refers to the wait
                                  any more */
/* Frees the oldest abandoned waits, up to the first whose result isn't there yet. */
void waiting_reap(store *s);
/* Called when the store is being closed, which doesn't cancel detached waits. Returns the grants
   that such waits have got so far, for the caller to release, and to free the list. Grants that
   they get later are released at once. */
hf_lock **waits_closed(store *s, size_t *ret_n);
void box_push(box *b, uint64_t id);
box *box_of(PyObject *mailbox); /* returns one more reference, by which the library may push; or
                                   NULL, an exception */
void box_drop(box *b);
PyObject *wait_blank(store *s, PyObject *key, const asked *a, int once);
void wait_begin(PyObject *wait, waiting *w);
PyObject *once_tuple(lock *held, const hf_once *once); /* takes over the reference to the lock,
                                                          which may be NULL */
extern PyType_Spec wait_spec, box_spec;

/* ---- look.c ---- */

PyObject *store_peek(store *s, PyObject *args);
PyObject *store_list(store *s, PyObject *args);
PyObject *store_watch(store *s, PyObject *args);
void watching_stop_all(store *s);
void watching_forget_all(store *s); /* they are the parent's */
extern PyType_Spec watch_spec;

#endif
