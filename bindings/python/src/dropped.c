/*
 * dropped.c - warns about a lock object that the program drops without releasing it, and about a
 * release at the end of a block that isn't confirmed.
 */
#include "ext.h"

/* The number of this thread's latest call that returned a lock. */
static _Thread_local uint64_t last_call;

/* Returns the offset of the instruction that the frame is at. */
static long place_in(PyObject *frame)
{
    PyObject *place = PyObject_GetAttrString(frame, "f_lasti");
    long is = place ? PyLong_AsLong(place) : -1;
    Py_XDECREF(place);
    PyErr_Clear();
    return is;
}

void lock_note_frame(lock *l, PyObject *frame, unsigned how)
{
    if (!frame) frame = (PyObject *)PyEval_GetFrame();
    l->frame = (uintptr_t)frame;
    l->place = frame ? place_in(frame) : 0;
    l->how = how;
    l->call = how & FOLLOWS ? last_call : ++last_call;
}

/* _note(frame, awaited, several, same): notes that the program hasn't used the lock yet and, unless
   `frame` is None, from where it was acquired (lock_note_frame) */
PyObject *lock_note(lock *l, PyObject *args)
{
    PyObject *frame;
    int awaited, several, same;
    if (!PyArg_ParseTuple(args, "Oppp:note", &frame, &awaited, &several, &same)) return NULL;
    unsigned how = (awaited ? AWAITED : 0U) | (several ? SEVERAL : 0U) | (same ? FOLLOWS : 0U);
    l->touched = 0; /* only the package has used the lock so far */
    if (frame != Py_None) lock_note_frame(l, frame, how);
    Py_RETURN_NONE;
}

/* Returns how many bytes of bytecode a call takes: its instruction with the inline caches; for an
   awaited call, the instructions of the `await`, from the one that runs the coroutine. */
static long call_bytes(unsigned how)
{
    PyObject *hex = PySys_GetObject("hexversion"); /* borrowed */
    long version = hex ? PyLong_AsLong(hex) >> 16 : 0;
    if (how & AWAITED) return version < 0x30b ? 2 : version < 0x30c ? 8 : 12;
    return version < 0x30b ? 2 : version < 0x30c ? 10 : 8;
}

static int is_used(const lock *l) { return l->touched && l->touched != READ_ONLY; }

/* Returns 1 if the lock was dropped by the instruction after the call that acquired it, as in
   `store.acquire(key)` alone, or `store.acquire(key).token`. The code that follows believes that it
   holds the key. */
static int unbound(lock *l)
{
    PyObject *frame = (PyObject *)PyEval_GetFrame();
    if (is_used(l) || last_call != l->call || !frame || (uintptr_t)frame != l->frame) return 0;
    long went = place_in(frame) - l->place;
    return went >= !(l->how & WITHIN) && went <= call_bytes(l->how);
}

/* Warns that the lock was dropped without being released. If it is `unbound`, the code after the
   call has to be stopped. A destructor can't raise, so the exception is raised in this thread soon
   after, before another Python function runs. If a task awaited the call, there is only a warning:
   at the end of a task the next function is asyncio's own, which must not fail. `raised`: an
   exception drops the lock. If it isn't used, the exception came before the program could keep it,
   such as a signal handler's, and stops the code. */
void lock_complain(lock *l, int raised)
{
    PyObject *kind = PyExc_ResourceWarning, *error;
    if (l->touched == ASKED_WRONGLY) return; /* lock_bool has raised an exception that says so */
    if (raised && !is_used(l)) return;
    if (unbound(l)) {
        if (l->how & FOLLOWS) return; /* the first lock of the call warns: it is dropped last */
        error = PyObject_CallMethod(unbound_error, "of", "Oi", l->key, !!(l->how & SEVERAL));
        int bad = !error;
        if (error && l->how & AWAITED)
            bad = PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "%U", error);
        else if (error)
            PyThreadState_SetAsyncExc(PyThread_get_thread_ident(), unbound_error);
        if (bad) PyErr_WriteUnraisable(l->key);
        Py_XDECREF(error);
        return;
    }
    if (!l->touched) kind = PyExc_RuntimeWarning; /* shown by default */
    if (PyErr_WarnFormat(kind, 1, "lock '%U' (token %llu) was never released%s", l->key,
                         (unsigned long long)l->token,
                         l->touched ? "" : ", nor used: keep what acquire() returns"))
        PyErr_WriteUnraisable(l->key);
}

/* Makes a lock object that takes over the grant of a dropped one, to be released in a thread, if an
   event loop runs in this thread and the release may wait for a server. Returns NULL otherwise: the
   caller releases the grant at once. */
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

/* Has a thread release the lock, and gives up the caller's reference to it. If no thread takes the
   lock, dropping it releases the grant. */
void lock_release_later(lock *to)
{
    PyObject *module = PyImport_ImportModule("holdfast._aio");
    PyObject *release = module ? PyObject_GetAttrString((PyObject *)to, "release") : NULL;
    PyObject *none =
        release ? PyObject_CallMethod(module, "later", "OO", release, to->store) : NULL;
    if (!none) PyErr_WriteUnraisable(to->key);
    Py_XDECREF(none);
    Py_XDECREF(release);
    Py_XDECREF(module);
    Py_DECREF(to);
}

/* ---- blocks ---- */

PyObject *raised_of(PyObject *args)
{
    PyObject *kind = PyTuple_Size(args) > 0 ? PyTuple_GetItem(args, 0) : Py_None;
    PyObject *value = PyTuple_Size(args) > 1 ? PyTuple_GetItem(args, 1) : Py_None;
    return kind == Py_None ? NULL : value == Py_None ? kind : value;
}

/* Warns that a release wasn't confirmed, with the reason. The block's work was done under the lock,
   but the key may stay held. */
PyObject *lock_warn_of_release(const hf_error *err)
{
    PyObject *text = PyUnicode_DecodeUTF8(err->text, (Py_ssize_t)strlen(err->text), "replace");
    int bad = !text || PyErr_WarnFormat(release_warning, 1, "%U", text);
    Py_XDECREF(text);
    if (bad) return NULL;
    Py_RETURN_NONE;
}
