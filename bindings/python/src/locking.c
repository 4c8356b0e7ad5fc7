/*
 * locking.c - the type Locking, which store.lock(key, **options) makes: a `with` block. What it
 * does in an `async with` is in holdfast/_aio.py.
 */
#include "ext.h"

struct locking {
    PyObject_HEAD store *store;
    PyObject *key;
    lock *held;   /* NULL: outside of the block */
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

static int outside(struct locking *g)
{
    if (!g->held) return 1;
    PyErr_SetString(PyExc_RuntimeError, "this block is entered already: each needs its own "
                                        "store.lock(key)");
    return 0;
}

static PyObject *locking_enter(struct locking *g, PyObject *unused)
{
    (void)unused;
    if (!outside(g)) return NULL;
    PyObject *held = store_acquire_asked(g->store, g->key, g->asked);
    if (!held) return NULL;
    if (g->held) { /* by another thread meanwhile */
        Py_DECREF(held);
        outside(g);
        return NULL;
    }
    g->held = (lock *)held;
    Py_INCREF(held);
    return held;
}

static PyObject *locking_exit(struct locking *g, PyObject *args)
{
    lock *held = g->held;
    if (!held) Py_RETURN_NONE;
    g->held = NULL;
    int failed = PyTuple_Size(args) > 0 && PyTuple_GetItem(args, 0) != Py_None;
    PyObject *ret = Py_None;
    if (held->ended)
        Py_INCREF(ret); /* inside */
    else
        ret = lock_release_now(held, failed);
    Py_DECREF(held);
    return ret;
}

/* _start(mailbox, id) -> Wait */
static PyObject *locking_start(struct locking *g, PyObject *args)
{
    PyObject *mailbox;
    unsigned long long id;
    if (!PyArg_ParseTuple(args, "OK:start", &mailbox, &id) || !outside(g)) return NULL;
    return store_start_asked(g->store, g->key, g->asked, mailbox, id, 0);
}

/* _swap(Lock or None) -> what was there: the block is entered, or left */
static PyObject *locking_swap(struct locking *g, PyObject *args)
{
    PyObject *to, *was = (PyObject *)g->held;
    if (!PyArg_ParseTuple(args, "O:swap", &to)) return NULL;
    if (to != Py_None && !PyObject_TypeCheck(to, lock_type)) {
        PyErr_SetString(PyExc_TypeError, "not a Lock");
        return NULL;
    }
    g->held = to == Py_None ? NULL : (lock *)to;
    if (g->held) Py_INCREF(to);
    if (was) return was;
    Py_RETURN_NONE;
}

static PyObject *aio(const char *function, PyObject *self)
{
    PyObject *module = PyImport_ImportModule("holdfast._aio");
    PyObject *ret = module ? PyObject_CallMethod(module, function, "O", self) : NULL;
    Py_XDECREF(module);
    return ret;
}

static PyObject *locking_aenter(PyObject *g, PyObject *unused)
{
    (void)unused;
    return aio("enter", g);
}

static PyObject *locking_aexit(PyObject *g, PyObject *args)
{
    PyObject *module = PyImport_ImportModule("holdfast._aio"), *ret = NULL;
    int failed = PyTuple_Size(args) > 0 && PyTuple_GetItem(args, 0) != Py_None;
    if (module) ret = PyObject_CallMethod(module, "leave", "OO", g, failed ? Py_True : Py_False);
    Py_XDECREF(module);
    return ret;
}

static PyObject *locking_store(struct locking *g, void *unused)
{
    (void)unused;
    Py_INCREF(g->store);
    return (PyObject *)g->store;
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

#define METHOD(name, function, flags)                            \
    {                                                            \
        name, (PyCFunction)(void (*)(void))function, flags, NULL \
    }

static PyMethodDef methods[] = {
    METHOD("__enter__", locking_enter, METH_NOARGS),
    METHOD("__exit__", locking_exit, METH_VARARGS),
    METHOD("__aenter__", locking_aenter, METH_NOARGS),
    METHOD("__aexit__", locking_aexit, METH_VARARGS),
    METHOD("_start", locking_start, METH_VARARGS),
    METHOD("_swap", locking_swap, METH_VARARGS),
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef attributes[] = {
    {"store", (getter)locking_store, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, (void *)made_by_hand},
    {Py_tp_dealloc, (void *)locking_dealloc},
    {Py_tp_traverse, (void *)locking_traverse},
    {Py_tp_methods, methods},
    {Py_tp_getset, attributes},
    {0, NULL},
};

PyType_Spec locking_spec = {"holdfast._holdfast.Locking", sizeof(struct locking), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};
