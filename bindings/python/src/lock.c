/*
 * lock.c - the type Lock: one grant.
 */
#include "ext.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>
#include <time.h>

/* A mailbox that gets a number when the lock is lost. */
struct losing {
    box *box;
    uint64_t id;
    struct losing *next;
};

/* The lock that has the grant. */
static lock *top(lock *l) { return l->root ? l->root : l; }

lock *lock_blank(store *s, PyObject *key, const asked *a, caller *by)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(lock_type, Py_tp_alloc);
    lock *to = (lock *)alloc(lock_type, 0);
    if (!to) {
        if (by) caller_drop(by);
        return NULL;
    }
    PyObject_GC_UnTrack(to); /* the garbage collector must not see it before it is complete */
    Py_INCREF(s);
    Py_INCREF(key);
    to->store = s;
    to->key = key;
    to->hash = key_hash(key);
    to->mode = a ? a->o.mode : HF_EXCLUSIVE;
    to->detached = a && a->o.flags & HF_DETACHED;
    to->lasts = !a || !(a->o.lease_ms || !store_is_near(s)) ||
                !(a->o.flags & (HF_NO_RENEW | HF_DETACHED) || a->o.max_hold_ms);
    to->once = a && !strcmp(a->doing, "once");
    to->keep_ms = a ? a->keep_ms : 0;
    to->generation = fork_generation();
    if (by) to->by = *by;
    return to;
}

int lock_begin(lock *to, hf_lock *l)
{
    const char *owner = hf_owner(l);
    to->owner = PyUnicode_DecodeUTF8(owner, (Py_ssize_t)strlen(owner), "replace");
    if (!to->owner) {
        Py_BEGIN_ALLOW_THREADS hf_release(l, NULL);
        Py_END_ALLOW_THREADS return RAISED;
    }
    to->l = l;
    to->token = hf_token(l);
    to->depth = 1;
    lock_enlist(to);
    return 0;
}

void lock_nest(lock *to, lock *held)
{
    to->root = top(held);
    Py_INCREF(to->root);
    to->root->depth++;
    to->l = to->root->l;
    to->token = to->root->token;
    to->owner = to->root->owner;
    Py_INCREF(to->owner);
    to->lasts = to->root->lasts;
    to->detached = to->root->detached;
    lock_enlist(to);
}

static int dead(const lock *l) { return l->generation != fork_generation(); }

/* Takes the grant out of the lock object, and waits until other threads don't use it any more.
   Returns NULL if the lock was released already, or its store was closed. */
static hf_lock *take(lock *l)
{
    hf_lock *held = l->l;
    if (!l->prev) return NULL;
    lock_delist(l);
    l->l = NULL;
    while (l->users && !dead(l)) { /* a renewal, in another thread */
        struct timespec little = {0, 1000000};
        Py_BEGIN_ALLOW_THREADS nanosleep(&little, NULL);
        Py_END_ALLOW_THREADS
    }
    return held;
}

/* Marks this lock as released. Returns the grant if this was its last lock, otherwise NULL. */
static hf_lock *end(lock *l)
{
    lock *of = top(l);
    l->ended = 1;
    if (of != l && l->prev) {
        lock_delist(l);
        l->l = NULL;
    }
    return --of->depth ? NULL : take(of);
}

static PyObject *gone(lock *l, const char *what)
{
    const char *why = dead(l) ? "it is held by the parent of this process, from before a fork"
                      : l->store->h && !l->store->closing ? "released already"
                                                          : "its store was closed";
    return raise_why(HF_LOST, what, l->key, why);
}

/* Returns the grant for a call with it, and counts the call until leave(). NULL: there is an
   exception. */
static hf_lock *enter(lock *l, const char *what)
{
    l->touched = 1;
    if (!l->l || l->ended || l->store->closing || dead(l)) return (void *)gone(l, what);
    top(l)->users++;
    l->store->users++;
    return l->l;
}

static void leave(lock *l)
{
    top(l)->users--;
    l->store->users--;
}

static void forget_losing(lock *l)
{
    if (l->losing && !dead(l)) box_drop(l->losing->box);
    if (!dead(l)) free(l->losing);
    l->losing = NULL;
}

struct losing *locks_closed(store *s)
{
    struct losing *all = NULL;
    for (lock *l = s->locks; l; l = l->next) {
        l->l = NULL;
        if (!l->losing) continue;
        l->losing->next = all;
        all = l->losing;
        l->losing = NULL;
    }
    return all;
}

void losing_free(struct losing *all)
{
    for (struct losing *next; all; all = next) {
        next = all->next;
        box_drop(all->box);
        free(all);
    }
}

/* Adds to the exception that is being raised a note that the lock was lost meanwhile. */
static PyObject *note(lock *l, PyObject *raised, PyObject *text)
{
    PyObject *ret = NULL;
    if (!text) text = PyUnicode_FromFormat("the lock '%U' was lost: its store was closed", l->key);
    if (text) ret = PyObject_CallFunctionObjArgs(note_loss, raised, l->key, text, NULL);
    Py_XDECREF(text);
    return ret;
}

static PyObject *release_as(lock *l, PyObject *raised, int leaving)
{
    hf_error err = {0, 0, ""};
    int rc = 0;
    store *s = l->store;
    l->touched = 1;
    if (raised && l->ended) Py_RETURN_NONE;
    if (l->ended && l->failed)
        return raise_why(l->failed, "release", l->key, hf_code_text(l->failed));
    if (l->ended) Py_RETURN_NONE;
    if (s->closing || !l->l || dead(l)) {
        if (raised && dead(l)) Py_RETURN_NONE;
        return raised ? note(l, raised, NULL) : gone(l, "release");
    }
    s->users++;
    hf_lock *held = end(l);
    if (held) {
        Py_BEGIN_ALLOW_THREADS rc = hf_release(held, &err);
        Py_END_ALLOW_THREADS
    }
    l->failed = rc;
    s->users--;
    if (held) forget_losing(top(l));
    if (rc == HF_LOST && raised)
        return note(l, raised,
                    PyUnicode_DecodeUTF8(err.text, (Py_ssize_t)strlen(err.text), "replace"));
    if (rc && rc != HF_LOST && leaving) return lock_warn_of_release(&err);
    if (rc && !raised) return raise_code(rc, &err, l->key);
    Py_RETURN_NONE;
}

PyObject *lock_release_now(lock *l, PyObject *raised) { return release_as(l, raised, 0); }

PyObject *lock_leave_block(lock *l, PyObject *raised) { return release_as(l, raised, 1); }

static PyObject *lock_release(lock *l, PyObject *unused)
{
    (void)unused;
    return lock_release_now(l, NULL);
}

static PyObject *lock_exit(lock *l, PyObject *args)
{
    if (l->ended) Py_RETURN_NONE; /* released inside the block */
    return lock_leave_block(l, raised_of(args));
}

static int lock_bool(lock *l)
{
    l->touched = ASKED_WRONGLY;
    PyErr_Format(PyExc_TypeError,
                 "a Lock has no truth value: acquire('%U') raises LockUnavailable if the key isn't "
                 "obtained. Write 'with store.lock(key, wait=0) as held:', or keep the lock and "
                 "ask held.held",
                 l->key);
    return -1;
}

static PyObject *lock_renew(lock *l, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"lease", NULL};
    PyObject *lease = Py_None;
    int64_t lease_ms = 0;
    hf_error err = {0, 0, ""};
    int rc;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:renew", names, &lease)) return NULL;
    if (lease != Py_None && time_read("renew", l->key, "lease", lease, &lease_limits, &lease_ms))
        return NULL;
    hf_lock *held = enter(l, "renew");
    if (!held) return NULL;
    Py_BEGIN_ALLOW_THREADS rc = hf_renew(held, lease_ms, &err);
    Py_END_ALLOW_THREADS leave(l);
    if (rc) return raise_code(rc, &err, l->key);
    Py_RETURN_NONE;
}

static PyObject *lock_confirm(lock *l, PyObject *unused)
{
    hf_error err = {0, 0, ""};
    int rc;
    (void)unused;
    hf_lock *held = enter(l, "confirm");
    if (!held) return NULL;
    Py_BEGIN_ALLOW_THREADS rc = hf_confirm(held, &err);
    Py_END_ALLOW_THREADS leave(l);
    if (rc) return raise_code(rc, &err, l->key);
    Py_RETURN_NONE;
}

/* enter(where=None): shows the token to the guard of the data */
static PyObject *lock_show(lock *l, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"where", NULL};
    PyObject *where = Py_None, *bytes = NULL;
    hf_error err = {0, 0, ""};
    int rc;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:enter", names, &where)) return NULL;
    if (where != Py_None && !(bytes = text_bytes("enter", l->key, "where", where))) return NULL;
    hf_lock *held = enter(l, "enter");
    if (!held) {
        Py_XDECREF(bytes);
        return NULL;
    }
    const char *text = bytes ? PyBytes_AsString(bytes) : NULL;
    Py_BEGIN_ALLOW_THREADS rc = hf_enter(held, text, &err);
    Py_END_ALLOW_THREADS leave(l);
    Py_XDECREF(bytes);
    if (rc) return raise_code(rc, &err, l->key);
    Py_RETURN_NONE;
}

/* _finish(result): marks the event as done, which releases the lock */
static PyObject *lock_finish(lock *l, PyObject *args)
{
    PyObject *result, *bytes;
    hf_error err = {0, 0, ""};
    int rc = HF_LOST;
    store *s = l->store;
    if (!PyArg_ParseTuple(args, "O:finish", &result)) return NULL;
    if (!(bytes = text_bytes("once", l->key, "result", result))) return NULL;
    if (s->closing || !l->l || dead(l)) {
        Py_DECREF(bytes);
        return gone(l, "once");
    }
    s->users++;
    hf_lock *held = end(l);
    const char *text = PyBytes_AsString(bytes);
    Py_BEGIN_ALLOW_THREADS if (held) rc = hf_once_finish(held, text, l->keep_ms, &err);
    Py_END_ALLOW_THREADS l->failed = rc;
    s->users--;
    forget_losing(l);
    Py_DECREF(bytes);
    if (rc) return raise_code(rc, &err, l->key);
    Py_RETURN_NONE;
}

/* ---- being told of a loss ---- */

static void lost(void *arg, hf_lock *unused)
{
    struct losing *losing = arg;
    (void)unused;
    box_push(losing->box, losing->id);
}

/* _tell(mailbox, id): puts the id into the mailbox when the lock is lost */
static PyObject *lock_tell(lock *l, PyObject *args)
{
    PyObject *mailbox;
    unsigned long long id;
    box *to;
    if (!PyArg_ParseTuple(args, "OK:tell", &mailbox, &id)) return NULL;
    l->touched = 1;
    if (dead(l) || !l->l || l->ended) return gone(l, "on_lost");
    l = top(l);
    if (l->losing) Py_RETURN_FALSE;
    if (!(to = box_of(mailbox))) return NULL;
    l->losing = malloc(sizeof *l->losing);
    if (!l->losing) {
        box_drop(to);
        return PyErr_NoMemory();
    }
    *l->losing = (struct losing){to, id, NULL};
    int rc = hf_on_lost(l->l, lost, l->losing);
    if (rc) {
        free(l->losing);
        l->losing = NULL;
        box_drop(to);
        return raise_why(rc, "on_lost", l->key, "its thread could not be started");
    }
    Py_RETURN_TRUE;
}

static PyObject *lock_lost_fd(lock *l, PyObject *unused)
{
    (void)unused;
    hf_lock *held = enter(l, "lost_fd");
    if (!held) return NULL;
    int fd = hf_lost_fd(held);
    leave(l);
    return PyLong_FromLong(fd);
}

/* ---- attributes ---- */

static void was_read(lock *l)
{
    if (!l->touched) l->touched = READ_ONLY;
}

static PyObject *lock_key(lock *l, void *unused)
{
    (void)unused;
    was_read(l);
    Py_INCREF(l->key);
    return l->key;
}

static PyObject *lock_token(lock *l, void *unused)
{
    (void)unused;
    was_read(l);
    return PyLong_FromUnsignedLongLong(l->token);
}

static PyObject *lock_owner(lock *l, void *unused)
{
    (void)unused;
    was_read(l);
    Py_INCREF(l->owner);
    return l->owner;
}

/* Returns for how long the holder may believe, in ms. Asks the store first, if that takes no
   request to a server: a break by an operator may not have been noticed yet. */
static int64_t left_ms(lock *l)
{
    int rc = 0;
    int64_t left;
    was_read(l);
    int touched = l->touched;
    if (!l->l || l->ended || l->store->closing || dead(l)) return 0;
    hf_lock *held = enter(l, "held");
    int near = store_is_near(l->store);
    Py_BEGIN_ALLOW_THREADS if (near) rc = hf_confirm(held, NULL);
    left = rc == HF_LOST || rc == HF_CORRUPT ? 0 : hf_left_ms(held);
    Py_END_ALLOW_THREADS leave(l);
    l->touched = touched;
    return left;
}

static PyObject *lock_left_ms(lock *l, void *unused)
{
    (void)unused;
    int64_t left = left_ms(l);
    return left == INT64_MAX ? PyFloat_FromDouble(HUGE_VAL) : PyLong_FromLongLong(left);
}

static PyObject *lock_held(lock *l, void *unused)
{
    (void)unused;
    return PyBool_FromLong(left_ms(l) > 0);
}

/* The body of a block without a hold must not begin. The release says why the hold is over. */
static PyObject *lock_enter(lock *l, PyObject *unused)
{
    (void)unused;
    l->touched = 1;
    if (left_ms(l) > 0) {
        Py_INCREF(l);
        return (PyObject *)l;
    }
    PyObject *ended = lock_release_now(l, NULL);
    if (!ended) return NULL;
    Py_DECREF(ended);
    return raise_why(HF_LOST, "enter the block of", l->key,
                     "this lock was released; 'with store.lock(key)' acquires the key each time");
}

static PyObject *lock_is_mine(lock *l, void *unused)
{
    (void)unused;
    return PyBool_FromLong(l->l && !l->ended && !l->store->closing && !dead(l));
}

/* Returns the first of the locks that share this grant. */
static PyObject *lock_root(lock *l, void *unused)
{
    (void)unused;
    l = top(l);
    Py_INCREF(l);
    return (PyObject *)l;
}

static PyObject *lock_store(lock *l, void *unused)
{
    (void)unused;
    Py_INCREF(l->store);
    return (PyObject *)l->store;
}

static PyObject *lock_repr(lock *l)
{
    return PyUnicode_FromFormat("<holdfast.Lock '%U' %llu%s>", l->key, (unsigned long long)l->token,
                                l->l && !l->ended ? "" : ", released");
}

/* ---- the end ---- */

/* Ends a lock object that was dropped without being released: warns, and releases the grant. A
   detached grant isn't released, and a lock from before a fork is only forgotten; neither warns.
   `raised`: an exception is pending. */
static void drop(lock *l, int raised)
{
    store *s = l->store;
    if (dead(l)) { /* the lock is the parent's, from before a fork */
        if (l->prev) lock_delist(l);
        l->l = NULL;
        return;
    }
    if (l->detached) {
        if (l->root) {
            end(l);
            return;
        }
        if (l->losing) hf_on_lost(l->l, NULL, NULL);
        l->losing = NULL; /* not freed: the callback may be running */
        take(l);
        return;
    }
    if (!l->handed_over) lock_complain(l, raised);
    lock *to = lock_successor(l);
    if (!l->l) { /* code that handles the warning has closed the store */
        Py_XDECREF(to);
        return;
    }
    s->users++;
    hf_lock *held = end(l);
    int later = held && to && !lock_begin(to, held); /* lock_begin releases the grant if memory runs
                                                        out */
    if (held && !to) {
        Py_BEGIN_ALLOW_THREADS hf_release(held, NULL);
        Py_END_ALLOW_THREADS
    }
    s->users--;
    PyErr_Clear();
    if (later)
        lock_release_later(to);
    else
        Py_XDECREF(to);
}

static void lock_dealloc(lock *l)
{
    PyTypeObject *type = Py_TYPE(l);
    PyObject_GC_UnTrack(l);
    if (l->weak) PyObject_ClearWeakRefs((PyObject *)l);
    if (l->l && !l->ended) {
        PyObject *t, *v, *b;
        PyErr_Fetch(&t, &v, &b);
        drop(l, !!t);
        PyErr_Restore(t, v, b);
    }
    if (l->prev) lock_delist(l); /* its store was closed, perhaps just now */
    if (l->store) forget_losing(l);
    caller_drop(&l->by);
    Py_XDECREF(l->stack);
    Py_XDECREF(l->root);
    Py_XDECREF(l->below);
    Py_XDECREF(l->callbacks);
    Py_XDECREF(l->store);
    Py_XDECREF(l->key);
    Py_XDECREF(l->owner);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(l);
    Py_DECREF(type);
}

#define METHOD(name, function, flags, doc)                      \
    {                                                           \
        name, (PyCFunction)(void (*)(void))function, flags, doc \
    }

static PyMethodDef lock_methods[] = {
    METHOD("release", lock_release, METH_NOARGS,
           "release($self)\n--\n\nReleases the key. A second call does nothing more, and raises "
           "what the first one raised."),
    METHOD("renew", lock_renew, METH_VARARGS | METH_KEYWORDS,
           "renew($self, lease=None)\n--\n\nExtends the lease, to what was asked for at first if "
           "none is given."),
    METHOD("confirm", lock_confirm, METH_NOARGS,
           "confirm($self)\n--\n\nAsks the store whether the lock is held; raises LockLost if "
           "not."),
    METHOD("enter", lock_show, METH_VARARGS | METH_KEYWORDS,
           "enter($self, where=None)\n--\n\nShows the token to the guard of the data, before "
           "they are read."),
    METHOD("lost_fd", lock_lost_fd, METH_NOARGS,
           "lost_fd($self)\n--\n\nA descriptor that is readable once the lock is lost."),
    METHOD("_finish", lock_finish, METH_VARARGS,
           "_finish($self, result, /)\n--\n\nMarks the event as done."),
    METHOD("_note", lock_note, METH_VARARGS,
           "_note($self, frame, awaited, several, same, /)\n--\n\nIt came from a call that this "
           "frame makes, perhaps the same call as the lock before it."),
    METHOD("_tell", lock_tell, METH_VARARGS,
           "_tell($self, mailbox, number, /)\n--\n\nPuts the number into the mailbox once the "
           "lock is lost; False: the grant has such a number already."),
    METHOD("__enter__", lock_enter, METH_NOARGS, "__enter__($self)\n--\n\nThe lock itself."),
    METHOD("__exit__", lock_exit, METH_VARARGS,
           "__exit__($self, kind, value, traceback, /)\n--\n\nReleases the key."),
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef lock_attributes[] = {
    {"key", (getter)lock_key, NULL, "the key", NULL},
    {"token", (getter)lock_token, NULL, "the fencing token", NULL},
    {"owner", (getter)lock_owner, NULL, "the holder's name", NULL},
    {"left_ms", (getter)lock_left_ms, NULL,
     "for how many milliseconds the holder may believe that it holds; inf: as long as the process "
     "lives",
     NULL},
    {"held", (getter)lock_held, NULL, "is it neither lost nor released?", NULL},
    {"store", (getter)lock_store, NULL, "the store", NULL},
    {"_is_mine", (getter)lock_is_mine, NULL, "is it neither released nor closed?", NULL},
    {"_root", (getter)lock_root, NULL, "the first of the locks that share its grant", NULL},
    {"_callbacks", (getter)lock_callbacks, (setter)lock_keep_callbacks, "for on_lost", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef lock_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(lock, weak), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot lock_slots[] = {
    {Py_tp_members, lock_members},
    {Py_tp_dealloc, (void *)lock_dealloc},
    {Py_tp_traverse, (void *)lock_traverse},
    {Py_tp_repr, (void *)lock_repr},
    {Py_nb_bool, (void *)lock_bool},
    {Py_tp_methods, lock_methods},
    {Py_tp_getset, lock_attributes},
    {Py_tp_doc, "One grant of one key."},
    {Py_tp_new, (void *)made_by_hand},
    {Py_tp_clear, (void *)lock_clear},
    {0, NULL},
};

PyType_Spec lock_spec = {"holdfast._holdfast.Lock", sizeof(lock), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, lock_slots};
