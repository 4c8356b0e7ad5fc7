/*
 * lock.c - the types Lock, one grant, and Locking, what store.lock(key) makes: a with block.
 */
#include "ext.h"

#include <structmember.h>

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Who is told of a loss. */
struct losing {
    box *box;
    uint64_t id;
    struct losing *next;
};

lock *lock_blank(store *s, PyObject *key, const asked *a)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(lock_type, Py_tp_alloc);
    lock *to = (lock *)alloc(lock_type, 0);
    if (!to) return NULL;
    PyObject_GC_UnTrack(to); /* nobody finds it before it is whole */
    Py_INCREF(s);
    Py_INCREF(key);
    to->store = s;
    to->key = key;
    to->exclusive = !a || a->o.mode == HF_EXCLUSIVE;
    to->detached = a && a->o.flags & HF_DETACHED;
    to->keep_ms = a ? a->keep_ms : 0;
    return to;
}

int lock_begin(lock *to, hf_lock *l, int waited)
{
    store *s = to->store;
    const char *owner = hf_owner(l);
    to->owner = PyUnicode_DecodeUTF8(owner, (Py_ssize_t)strlen(owner), "replace");
    if (!to->owner) {
        Py_BEGIN_ALLOW_THREADS hf_release(l, NULL);
        Py_END_ALLOW_THREADS return RAISED;
    }
    to->l = l;
    to->token = hf_token(l);
    if (waited) {
        to->waited = 1;
        to->thread = this_thread();
        s->waited++;
    }
    to->next = s->locks;
    to->prev = &s->locks;
    if (to->next) to->next->prev = &to->next;
    s->locks = to;
    PyObject_GC_Track(to);
    return 0;
}

static int dead(const lock *l) { return l->store->generation != fork_generation(); }

/* From here on it is the caller's alone. NULL: given back already, or its store was closed. */
static hf_lock *take(lock *l)
{
    hf_lock *held = l->l;
    if (!l->prev) return NULL;
    *l->prev = l->next;
    if (l->next) l->next->prev = l->prev;
    l->prev = NULL;
    l->l = NULL;
    if (l->waited) l->store->waited--;
    while (l->users && !dead(l)) { /* a renewal, in another thread */
        struct timespec little = {0, 1000000};
        Py_BEGIN_ALLOW_THREADS nanosleep(&little, NULL);
        Py_END_ALLOW_THREADS
    }
    return held;
}

static PyObject *gone(lock *l, const char *what)
{
    const char *why =
        l->store->h && !l->store->closing ? "given back already" : "its store was closed";
    return raise_why(HF_LOST, what, l->key, why);
}

/* NULL and an exception, or the lock, counted: see leave. */
static hf_lock *enter(lock *l, const char *what)
{
    if (!l->l || l->store->closing) return (void *)gone(l, what);
    l->users++;
    l->store->users++;
    return l->l;
}

static void leave(lock *l)
{
    l->users--;
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

/* `quiet`: whoever gives it back is in trouble already. */
PyObject *lock_release_now(lock *l, int quiet)
{
    hf_error err = {0, 0, ""};
    int rc = 0;
    store *s = l->store;
    if (quiet && (s->closing || l->ended)) Py_RETURN_NONE;
    if (l->ended && l->failed)
        return raise_why(l->failed, "release", l->key, hf_code_text(l->failed));
    if (l->ended) Py_RETURN_NONE;
    if (s->closing || !l->l) return gone(l, "release");
    s->users++;
    l->ended = 1;
    hf_lock *held = take(l);
    if (held) {
        Py_BEGIN_ALLOW_THREADS rc = hf_release(held, &err);
        Py_END_ALLOW_THREADS
    }
    l->failed = rc;
    s->users--;
    forget_losing(l);
    if (rc && !quiet) return raise_code(rc, &err, l->key);
    Py_RETURN_NONE;
}

static PyObject *lock_release(lock *l, PyObject *unused)
{
    (void)unused;
    return lock_release_now(l, 0);
}

static PyObject *lock_exit(lock *l, PyObject *args)
{
    int failed = PyTuple_Size(args) > 0 && PyTuple_GetItem(args, 0) != Py_None;
    if (l->ended) Py_RETURN_NONE; /* inside */
    return lock_release_now(l, failed);
}

static PyObject *lock_enter(PyObject *l, PyObject *unused)
{
    (void)unused;
    Py_INCREF(l);
    return l;
}

static PyObject *lock_renew(lock *l, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"lease", NULL};
    PyObject *lease = Py_None;
    int64_t lease_ms = 0;
    hf_error err = {0, 0, ""};
    int rc;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:renew", names, &lease)) return NULL;
    if (lease != Py_None && time_read("renew", l->key, "lease", lease, &lease_ms)) return NULL;
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

/* _finish(result): the event is done */
static PyObject *lock_finish(lock *l, PyObject *args)
{
    PyObject *result, *bytes;
    hf_error err = {0, 0, ""};
    int rc = HF_LOST;
    store *s = l->store;
    if (!PyArg_ParseTuple(args, "O:finish", &result)) return NULL;
    if (!(bytes = text_bytes("once", l->key, "result", result))) return NULL;
    if (s->closing || !l->l) {
        Py_DECREF(bytes);
        return gone(l, "once");
    }
    s->users++;
    l->ended = 1;
    hf_lock *held = take(l);
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

/* _tell(mailbox, id): once it is lost the mailbox has the id */
static PyObject *lock_tell(lock *l, PyObject *args)
{
    PyObject *mailbox;
    unsigned long long id;
    box *to;
    if (!PyArg_ParseTuple(args, "OK:tell", &mailbox, &id)) return NULL;
    if (dead(l) || !l->l) return gone(l, "on_lost");
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

/* on_lost(callback): see holdfast/_aio.py */
static PyObject *lock_on_lost(PyObject *l, PyObject *callback)
{
    if (!PyCallable_Check(callback))
        return raise_why(HF_INVALID, "on_lost", ((lock *)l)->key, "the callback can't be called");
    PyObject *module = PyImport_ImportModule("holdfast._aio");
    PyObject *ret = module ? PyObject_CallMethod(module, "on_lost", "OO", l, callback) : NULL;
    Py_XDECREF(module);
    return ret;
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

static PyObject *lock_key(lock *l, void *unused)
{
    (void)unused;
    Py_INCREF(l->key);
    return l->key;
}

static PyObject *lock_token(lock *l, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(l->token);
}

static PyObject *lock_owner(lock *l, void *unused)
{
    (void)unused;
    Py_INCREF(l->owner);
    return l->owner;
}

/* Where that takes no request the store is asked: else nobody might have noticed that the grant was
   broken. */
static int64_t left_ms(lock *l)
{
    int rc = 0;
    int64_t left;
    if (!l->l || l->store->closing) return 0;
    hf_lock *held = enter(l, "held");
    int near = store_is_near(l->store);
    Py_BEGIN_ALLOW_THREADS if (near) rc = hf_confirm(held, NULL);
    left = rc == HF_LOST || rc == HF_CORRUPT ? 0 : hf_left_ms(held);
    Py_END_ALLOW_THREADS leave(l);
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

static PyObject *lock_is_mine(lock *l, void *unused)
{
    (void)unused;
    return PyBool_FromLong(l->l && !l->store->closing);
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
                                l->l ? "" : ", given back");
}

/* ---- the end ---- */

/* Nobody gave it back: said, and done. */
static void drop(lock *l)
{
    store *s = l->store;
    if (dead(l)) { /* the parent has it */
        take(l);
        return;
    }
    if (l->detached) {
        if (l->losing) hf_on_lost(l->l, NULL, NULL);
        l->losing = NULL; /* which may be being called just now */
        take(l);
        return;
    }
    if (PyErr_WarnFormat(PyExc_ResourceWarning, 1, "lock '%U' (token %llu) was never given back",
                         l->key, (unsigned long long)l->token))
        PyErr_WriteUnraisable(l->key);
    if (!l->l) return; /* the store was closed by who handles warnings */
    s->users++;
    hf_lock *held = take(l);
    Py_BEGIN_ALLOW_THREADS hf_release(held, NULL);
    Py_END_ALLOW_THREADS s->users--;
}

static void lock_dealloc(lock *l)
{
    PyTypeObject *type = Py_TYPE(l);
    PyObject_GC_UnTrack(l);
    if (l->weak) PyObject_ClearWeakRefs((PyObject *)l);
    if (l->l) {
        PyObject *t, *v, *b;
        PyErr_Fetch(&t, &v, &b);
        drop(l);
        PyErr_Restore(t, v, b);
    }
    if (l->prev) take(l); /* its store was closed, perhaps just now */
    if (l->store) forget_losing(l);
    Py_XDECREF(l->store);
    Py_XDECREF(l->key);
    Py_XDECREF(l->owner);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(l);
    Py_DECREF(type);
}

static int lock_traverse(lock *l, visitproc visit, void *arg)
{
    Py_VISIT(l->store);
    return 0;
}

#define METHOD(name, function, flags, doc)                      \
    {                                                           \
        name, (PyCFunction)(void (*)(void))function, flags, doc \
    }

static PyMethodDef lock_methods[] = {
    METHOD("release", lock_release, METH_NOARGS,
           "gives the key back; once: asked again it does nothing more, and says the same"),
    METHOD("renew", lock_renew, METH_VARARGS | METH_KEYWORDS,
           "renew(lease=None): extends the lease"),
    METHOD("confirm", lock_confirm, METH_NOARGS, "asks the store; raises LockLost if it is lost"),
    METHOD("enter", lock_show, METH_VARARGS | METH_KEYWORDS,
           "enter(where=None): shows the token to the guard of the data, before they are read"),
    METHOD(
        "on_lost", lock_on_lost, METH_O,
        "on_lost(callback): calls it with the lock once it is lost, in the running event loop or "
        "else in a thread"),
    METHOD("lost_fd", lock_lost_fd, METH_NOARGS, "a descriptor, readable once it is lost"),
    METHOD("_finish", lock_finish, METH_VARARGS, NULL),
    METHOD("_tell", lock_tell, METH_VARARGS, NULL),
    METHOD("__enter__", lock_enter, METH_NOARGS, NULL),
    METHOD("__exit__", lock_exit, METH_VARARGS, NULL),
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef lock_attributes[] = {
    {"key", (getter)lock_key, NULL, "the key", NULL},
    {"token", (getter)lock_token, NULL, "the fencing token", NULL},
    {"owner", (getter)lock_owner, NULL, "who holds it", NULL},
    {"left_ms", (getter)lock_left_ms, NULL, "believe for so long; inf: as long as the process",
     NULL},
    {"held", (getter)lock_held, NULL, "is it neither lost nor given back?", NULL},
    {"store", (getter)lock_store, NULL, "the store", NULL},
    {"_is_mine", (getter)lock_is_mine, NULL, NULL, NULL},
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
    {Py_tp_methods, lock_methods},
    {Py_tp_getset, lock_attributes},
    {Py_tp_doc, "One grant of one key."},
    {Py_tp_new, (void *)made_by_hand},
    {0, NULL},
};

PyType_Spec lock_spec = {"holdfast._holdfast.Lock", sizeof(lock), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, lock_slots};
