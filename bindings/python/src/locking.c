/*
 * locking.c - the type Locking, which store.lock(key, **options) makes: a `with` block. What it
 * does in an `async with` is in holdfast/_locks.py. Several threads and tasks may use one object:
 * at the same time if the key admits several holders, and one caller several times
 * (recursive=True). A lock that was lost may still be there beside the next one. So an object has a
 * chain of locks. Only the end of a block takes the block's lock off. A lock of acquire() may be
 * released by any thread, as a threading.Lock may.
 */
#include "ext.h"

struct locking {
    PyObject_HEAD store *store;
    PyObject *key;
    lock *held;   /* the last of its locks; NULL: there is none */
    asked *asked; /* NULL: all defaults */
};

PyObject *locking_new(store *s, PyObject *key, asked *a, int has_options)
{
    asked *own = has_options ? PyMem_Malloc(sizeof *own) : NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(locking_type, Py_tp_alloc);
    struct locking *to = has_options && !own ? NULL : (struct locking *)alloc(locking_type, 0);
    if (!to) {
        if (has_options) asked_done(a);
        PyMem_Free(own);
        return PyErr_NoMemory();
    }
    if (own) {
        *own = *a;
        if (own->o.request_id) own->o.request_id = own->request;
    }
    Py_INCREF(s);
    Py_INCREF(key);
    to->store = s;
    to->key = key;
    to->asked = own;
    return (PyObject *)to;
}

/* Puts the lock onto the chain, which takes over the caller's reference. */
static void push(struct locking *g, lock *held)
{
    held->below = g->held;
    g->held = held;
}

/* Takes the lock off the chain. Returns the chain's reference to it. */
static lock *take_off(struct locking *g, lock *is)
{
    lock **at = &g->held;
    while (*at != is) at = &(*at)->below;
    *at = is->below;
    is->below = NULL;
    return is;
}

/* Returns the frame that enters the block, a borrowed reference. NULL: no Python code runs, as in a
   thread that runs __enter__ itself; or the frame isn't needed to tell the block from others of the
   object, because there is no other. To find the frame costs a tenth of the time of a block. */
static PyObject *frame_to_note(const struct locking *g)
{
    int alone = !g->asked ||
                (g->asked->o.mode == HF_EXCLUSIVE && !(g->asked->o.flags & HF_ALLOW_RECURSIVE));
    return alone && !g->held ? NULL : (PyObject *)PyEval_GetFrame();
}

/* Returns how likely it is that the block which this caller leaves, in this stack or frame, holds
   the lock. 5: its ExitStack is left, which any caller may close; 4: same caller and frame; 3: same
   caller, as if a class like ExitStack leaves the block in another frame; 2: same frame, as if
   another thread leaves a generator; 1: it isn't known which code entered the lock's block; 0: it
   is another block's. Of equally likely locks, the one that was put last is taken. */
static int likeness(const lock *l, const caller *by, PyObject *stack, PyObject *frame)
{
    if (stack && l->stack == stack) return 5;
    int here = !stack && frame && l->frame == (uintptr_t)frame;
    if (caller_same(&l->by, by)) return here ? 4 : 3;
    return here ? 2 : !l->frame && !l->stack;
}

/* Removes from the chain the lock of the block that is being left. `frame`: the frame that leaves
   block; NULL: the running one. Returns the chain's reference; NULL: the chain is empty, or there
   is an exception, as if it isn't known which of several locks is meant. */
static lock *pop_block(struct locking *g, PyObject *frame)
{
    lock *best = NULL;
    int n = 0, most = 0;
    caller by;
    if (!g->held) return NULL;
    if (!g->held->below) return take_off(g, g->held);
    if (caller_read(&by)) return NULL;
    if (!frame) frame = (PyObject *)PyEval_GetFrame();
    PyObject *stack = stack_of_frame(frame);
    for (lock *l = g->held; l; l = l->below) {
        if (!l->of_block) continue;
        int like = likeness(l, &by, stack, frame);
        if (!n++ || like > most) {
            best = l;
            most = like;
        }
    }
    /* The calls above may run Python code (of the event loop, of a finalizer) that leaves blocks of
       this object, and so may the lines below that give up references. No Python code runs while
       the lock is chosen and taken off. */
    lock *is = n > 1 && !most ? NULL : best ? best : g->held;
    if (is) take_off(g, is);
    Py_XDECREF(stack);
    caller_drop(&by);
    if (n > 1 && !most)
        PyErr_Format(PyExc_RuntimeError,
                     "lock '%U': several blocks hold it, and none was entered by this thread or "
                     "task: leave a block where it was entered, or give each block a "
                     "store.lock(key) of its own",
                     g->key);
    return is;
}

/* Returns a reference to the lock that release() ends: the one that this caller acquired last; if
   it has none, the oldest lock of acquire(). Only its own caller ends the lock of a block, which
   stays on the chain until the block is left. NULL: there is an exception. */
static lock *pick_to_release(struct locking *g)
{
    lock *mine = NULL, *oldest = NULL, *others = NULL;
    caller by;
    int any = g->held != NULL;
    if (any && caller_read(&by)) return NULL;
    for (lock *l = g->held; l; l = l->below) {
        if (l->of_block && l->ended) continue;
        if (!mine && caller_same(&l->by, &by)) mine = l;
        if (!l->of_block)
            oldest = l;
        else if (l->generation == fork_generation())
            others = l;
    }
    lock *is = mine ? mine : oldest;
    if (is && !is->of_block)
        take_off(g, is);
    else
        Py_XINCREF(is);
    if (any) caller_drop(&by);
    if (!is && others)
        PyErr_Format(PyExc_RuntimeError,
                     "release '%U': the block of another thread or task holds it, and releases it "
                     "at its end",
                     g->key);
    else if (!is)
        PyErr_SetString(PyExc_RuntimeError, "release unlocked lock");
    return is;
}

/* Puts the lock of a block onto the chain. `frame`: the frame that enters the block; NULL: not
   known. */
static void push_block(struct locking *g, lock *held, PyObject *frame)
{
    held->touched = held->of_block = 1;
    Py_XDECREF(held->stack);
    held->stack = stack_of_frame(frame);
    held->frame = held->stack ? 0 : (uintptr_t)frame;
    Py_INCREF(held);
    push(g, held);
}

static PyObject *locking_enter(struct locking *g, PyObject *unused)
{
    (void)unused;
    lock *held = (lock *)store_acquire_asked(g->store, g->key, g->asked);
    if (held) push_block(g, held, frame_to_note(g));
    return (PyObject *)held;
}

static PyObject *locking_exit(struct locking *g, PyObject *args)
{
    lock *held = pop_block(g, NULL);
    if (!held && PyErr_Occurred()) return NULL;
    if (!held) Py_RETURN_NONE;
    PyObject *ret = Py_None;
    if (held->ended)
        Py_INCREF(ret); /* released inside the block */
    else
        ret = lock_leave_block(held, raised_of(args));
    Py_DECREF(held);
    return ret;
}

/* Fills *now with the options of this object, and with the time limit `timeout` (None or -1: that
   of lock()). Returns `now`; NULL, with an exception: `timeout` is no time limit. */
static asked *with_timeout(struct locking *g, asked *now, int blocking, PyObject *timeout)
{
    if (g->asked)
        *now = *g->asked;
    else if (asked_read(now, NULL, 0, g->key))
        return NULL;
    if (now->o.request_id) now->o.request_id = now->request;
    int number = PyLong_Check(timeout) || PyFloat_Check(timeout);
    double seconds = number ? PyFloat_AsDouble(timeout) : 0;
    int none = timeout == Py_None || (seconds == -1 && !PyErr_Occurred());
    PyErr_Clear();
    if (!none && time_read("acquire", g->key, "timeout", timeout, &wait_limits, &now->o.wait_ms))
        return NULL;
    if (!blocking && !none) {
        PyErr_SetString(PyExc_ValueError, "can't specify a timeout for a non-blocking call");
        return NULL;
    }
    if (!blocking) now->o.wait_ms = 0;
    return now;
}

/* Refuses keyword arguments that aren't acquire's. Returns 0; -1, with an exception. */
static int no_others(struct locking *g, PyObject *kwargs)
{
    PyObject *name, *value;
    Py_ssize_t at = 0;
    while (kwargs && PyDict_Next(kwargs, &at, &name, &value)) {
        if (!PyUnicode_CompareWithASCIIString(name, "blocking") ||
            !PyUnicode_CompareWithASCIIString(name, "timeout"))
            continue;
        unknown_option("acquire", g->key, name, FOR_ACQUIRE);
        return -1;
    }
    return 0;
}

/* _no_others(**kwargs): raises TypeError for an argument that acquire() doesn't have */
static PyObject *locking_no_others(struct locking *g, PyObject *args, PyObject *kwargs)
{
    (void)args;
    if (no_others(g, kwargs)) return NULL;
    Py_RETURN_NONE;
}

/* Reads `blocking`, which must be a bool: in other libraries the first argument is a time. Returns
   -1, with an exception, if it isn't one. */
static int read_blocking(const struct locking *g, PyObject *value)
{
    if (!value) return 1;
    long is = PyLong_Check(value) ? PyLong_AsLong(value) : -1;
    PyErr_Clear(); /* too large */
    if (is == 0 || is == 1) return (int)is;
    raise_object(HF_INVALID, g->key,
                 PyUnicode_FromFormat(
                     "acquire '%.100U': blocking: must be a bool; a time is timeout=5", g->key));
    return -1;
}

/* acquire(blocking=True, timeout=-1) -> bool: as threading.Lock has it */
static PyObject *locking_acquire(struct locking *g, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"blocking", "timeout", NULL};
    PyObject *timeout = Py_None, *first = NULL;
    int blocking;
    asked now;
    if (no_others(g, kwargs) ||
        !PyArg_ParseTupleAndKeywords(args, kwargs, "|OO:acquire", names, &first, &timeout) ||
        (blocking = read_blocking(g, first)) < 0)
        return NULL;
    if (!with_timeout(g, &now, blocking, timeout)) return NULL;
    lock *held = (lock *)store_acquire_asked(g->store, g->key, &now);
    if (held) {
        lock_note_frame(held, NULL, WITHIN);
        push(g, held);
        Py_RETURN_TRUE;
    }
    if (!PyErr_ExceptionMatches(unavailable_error)) return NULL;
    PyErr_Clear();
    Py_RETURN_FALSE;
}

/* release(): RuntimeError if it isn't held, as threading.Lock has it */
static PyObject *locking_release(struct locking *g, PyObject *unused)
{
    (void)unused;
    lock *held = pick_to_release(g);
    if (!held) return NULL;
    PyObject *ret = lock_release_now(held, NULL);
    Py_DECREF(held);
    return ret;
}

/* _try(blocking=True, timeout=-1) -> Lock or None: acquires the key if that needs no wait for a
   server or for a holder */
static PyObject *locking_try(struct locking *g, PyObject *args)
{
    PyObject *timeout = Py_None, *first = NULL;
    int blocking;
    asked now;
    if (!PyArg_ParseTuple(args, "|OO:try", &first, &timeout) ||
        (blocking = read_blocking(g, first)) < 0 || !with_timeout(g, &now, blocking, timeout))
        return NULL;
    return store_try_asked(g->store, g->key, &now);
}

/* _start(blocking, timeout, mailbox, id) -> Wait: starts a wait that puts the id into the
   mailbox */
static PyObject *locking_start(struct locking *g, PyObject *args)
{
    PyObject *mailbox, *timeout;
    unsigned long long id;
    int blocking;
    asked now;
    if (!PyArg_ParseTuple(args, "pOOK:start", &blocking, &timeout, &mailbox, &id) ||
        !with_timeout(g, &now, blocking, timeout))
        return NULL;
    return store_start_asked(g->store, g->key, &now, mailbox, id, 0);
}

/* _push(Lock, frame): puts the lock of the block that this frame enters onto the chain; frame None:
   a lock of acquire() */
static PyObject *locking_push(struct locking *g, PyObject *args)
{
    PyObject *held, *frame;
    if (!PyArg_ParseTuple(args, "OO:push", &held, &frame)) return NULL;
    if (!PyObject_TypeCheck(held, lock_type) || ((lock *)held)->below) {
        PyErr_SetString(PyExc_TypeError, "not a Lock");
        return NULL;
    }
    if (frame != Py_None) {
        push_block(g, (lock *)held, frame);
    } else {
        ((lock *)held)->touched = 1;
        Py_INCREF(held);
        push(g, (lock *)held);
    }
    Py_RETURN_NONE;
}

/* _pop(frame) -> Lock or None: removes from the chain the lock of the block that this frame leaves,
   and returns it; None: the chain is empty */
static PyObject *locking_pop(struct locking *g, PyObject *frame)
{
    lock *held = pop_block(g, frame);
    if (held) return (PyObject *)held;
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

/* _pick() -> Lock: the lock that release() ends */
static PyObject *locking_pick(struct locking *g, PyObject *unused)
{
    (void)unused;
    return (PyObject *)pick_to_release(g);
}

static int locking_bool(struct locking *g)
{
    PyErr_Format(PyExc_TypeError,
                 "lock('%U') has no truth value, and holds nothing yet. Write "
                 "'with store.lock(key, wait=0) as held:', or ask acquire(blocking=False)",
                 g->key);
    return -1;
}

static PyObject *locking_store(struct locking *g, void *unused)
{
    (void)unused;
    Py_INCREF(g->store);
    return (PyObject *)g->store;
}

static PyObject *locking_key(struct locking *g, void *unused)
{
    (void)unused;
    Py_INCREF(g->key);
    return g->key;
}

static int locking_traverse(struct locking *g, visitproc visit, void *arg)
{
    Py_VISIT(g->store);
    Py_VISIT(g->held);
    return 0;
}

static void locking_dealloc(struct locking *g)
{
    PyTypeObject *type = Py_TYPE(g);
    PyObject_GC_UnTrack(g);
    Py_XDECREF(g->held);
    Py_XDECREF(g->store);
    Py_XDECREF(g->key);
    if (g->asked) asked_done(g->asked);
    PyMem_Free(g->asked);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(g);
    Py_DECREF(type);
}

#define METHOD(name, function, flags, doc)                      \
    {                                                           \
        name, (PyCFunction)(void (*)(void))function, flags, doc \
    }

static PyMethodDef methods[] = {
    METHOD("__enter__", locking_enter, METH_NOARGS,
           "__enter__($self)\n--\n\nAcquires the key: the Lock."),
    METHOD("__exit__", locking_exit, METH_VARARGS,
           "__exit__($self, kind, value, traceback, /)\n--\n\nReleases the key."),
    METHOD("acquire", locking_acquire, METH_VARARGS | METH_KEYWORDS,
           "acquire($self, blocking=True, timeout=-1)\n--\n\nAs threading.Lock.acquire: False if "
           "the key isn't obtained. Without arguments it waits as the options of lock() say."),
    METHOD("release", locking_release, METH_NOARGS,
           "release($self)\n--\n\nAs threading.Lock.release; raises LockLost if the lock was "
           "lost."),
    METHOD("_no_others", locking_no_others, METH_VARARGS | METH_KEYWORDS,
           "_no_others($self, /, **options)\n--\n\nRaises the TypeError that acquire() raises for "
           "options that it doesn't have."),
    METHOD("_try", locking_try, METH_VARARGS,
           "_try($self, blocking=True, timeout=-1, /)\n--\n\nThe Lock if it is to be had without "
           "waiting for a server, or None."),
    METHOD(
        "_start", locking_start, METH_VARARGS,
        "_start($self, blocking, timeout, mailbox, number, /)\n--\n\nStarts a wait that tells the "
        "mailbox."),
    METHOD("_push", locking_push, METH_VARARGS,
           "_push($self, lock, frame, /)\n--\n\nThe block of this frame is entered with this "
           "lock; None: acquire() has brought it."),
    METHOD("_pop", locking_pop, METH_O,
           "_pop($self, frame, /)\n--\n\nThe block of this frame is left: its Lock, or None."),
    METHOD("_pick", locking_pick, METH_NOARGS, "_pick($self)\n--\n\nThe Lock that release() ends."),
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef attributes[] = {
    {"store", (getter)locking_store, NULL, "the store", NULL},
    {"key", (getter)locking_key, NULL, "the key", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, (void *)made_by_hand},
    {Py_tp_doc, "A key to be held: a block, and what threading.Lock has."},
    {Py_tp_dealloc, (void *)locking_dealloc},
    {Py_tp_traverse, (void *)locking_traverse},
    {Py_nb_bool, (void *)locking_bool},
    {Py_tp_methods, methods},
    {Py_tp_getset, attributes},
    {0, NULL},
};

PyType_Spec locking_spec = {"holdfast._holdfast.Locking", sizeof(struct locking), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, slots};
