/*
 * dropped.c - a lock that its program lets go of without releasing it.
 */
#include "ext.h"

/* What acquire() returned last in this thread; only compared. */
static _Thread_local const lock *last_acquired;

/* The offset of the instruction that the frame is at. */
static long place_in(PyObject *frame)
{
    PyObject *place = PyObject_GetAttrString(frame, "f_lasti");
    long is = place ? PyLong_AsLong(place) : -1;
    Py_XDECREF(place);
    PyErr_Clear();
    return is;
}

void lock_note_frame(lock *l, int within)
{
    PyObject *frame = (PyObject *)PyEval_GetFrame();
    l->frame = (uintptr_t)frame;
    l->place = frame ? place_in(frame) : 0;
    l->within = within;
    last_acquired = l;
}

/* Of a call's instruction and its inline caches, before the next instruction. */
static long call_bytes(void)
{
    PyObject *hex = PySys_GetObject("hexversion"); /* borrowed */
    long version = hex ? PyLong_AsLong(hex) >> 16 : 0;
    return version < 0x30b ? 2 : version < 0x30c ? 10 : 8;
}

/* Was it dropped by the instruction behind the call that acquired it, as in `store.acquire(key)`
   alone? What follows believes that it holds the key. */
static int unbound(lock *l)
{
    PyObject *frame = (PyObject *)PyEval_GetFrame();
    if (l->touched || last_acquired != l || !frame || (uintptr_t)frame != l->frame) return 0;
    long went = place_in(frame) - l->place;
    return went >= !l->within && went <= call_bytes();
}

/* Warns that it wasn't released. A destructor can't raise: an exception is raised in this thread
   soon after, before another function of Python's runs. */
void lock_complain(lock *l)
{
    PyObject *kind = PyExc_ResourceWarning, *error;
    if (l->touched == ASKED_WRONGLY) return; /* an exception has said so */
    if (unbound(l)) {
        error = PyObject_CallMethod(unbound_error, "of", "O", l->key);
        if (error) PyThreadState_SetAsyncExc(PyThread_get_thread_ident(), unbound_error);
        if (!error) PyErr_WriteUnraisable(l->key);
        Py_XDECREF(error);
        return;
    }
    if (!l->touched) kind = PyExc_RuntimeWarning; /* shown by default */
    if (PyErr_WarnFormat(kind, 1, "lock '%U' (token %llu) was never released%s", l->key,
                         (unsigned long long)l->token,
                         l->touched ? "" : ", nor used: keep what acquire() returns"))
        PyErr_WriteUnraisable(l->key);
}

/* An event loop runs in this thread, and a release may wait for a server: a lock that takes the
   grant over, to be released in a thread. NULL: released at once. */
lock *lock_successor(lock *l)
{
    caller by;
    if (store_is_near(l->store) || l->handed_over || caller_read(&by)) {
        PyErr_Clear();
        return NULL;
    }
    lock *to = NULL;
    if (by.in_loop)
        to = lock_blank(l->store, l->key, NULL, &by);
    else
        caller_drop(&by);
    if (to) to->touched = to->handed_over = 1;
    PyErr_Clear();
    return to;
}

/* The reference is given away. Should it fail, `to` is released as it is dropped. */
void lock_release_later(lock *to)
{
    PyObject *module = PyImport_ImportModule("holdfast._aio");
    PyObject *release = module ? PyObject_GetAttrString((PyObject *)to, "release") : NULL;
    PyObject *none = release ? PyObject_CallMethod(module, "later", "O", release) : NULL;
    if (!none) PyErr_WriteUnraisable(to->key);
    Py_XDECREF(none);
    Py_XDECREF(release);
    Py_XDECREF(module);
    Py_DECREF(to);
}
