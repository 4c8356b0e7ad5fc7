/*
 * several.c - blocks that hold more than a lock: the begin and the end of one that holds the locks
 * of several keys, and the end of an event's.
 *
 * Each is one call of a C function. So a Python signal handler, which may raise
 * KeyboardInterrupt, runs before or after it. If a release fails, a handler may also run while that
 * exception is made; the other locks are released nevertheless.
 */
#include "ext.h"

/* The exception to be raised; NULLs: there is none. Of several it is the last, whose context is the
   one before. */
struct raised {
    PyObject *type, *value, *trace;
};

static void add_raised(struct raised *to)
{
    struct raised now;
    PyErr_Fetch(&now.type, &now.value, &now.trace);
    PyErr_NormalizeException(&now.type, &now.value, &now.trace);
    if (to->value && to->trace) PyException_SetTraceback(to->value, to->trace);
    if (to->value && now.value && to->value != now.value)
        PyException_SetContext(now.value, to->value); /* takes the reference */
    else
        Py_XDECREF(to->value);
    Py_XDECREF(to->type);
    Py_XDECREF(to->trace);
    *to = now;
}

static PyObject *none_or(struct raised *of)
{
    if (!of->type) Py_RETURN_NONE;
    PyErr_Restore(of->type, of->value, of->trace);
    return NULL;
}

static void ended(PyObject *result, struct raised *all)
{
    if (!result) add_raised(all);
    Py_XDECREF(result);
}

/* Calls this method of each lock of the list, from the last to the first, even if some of the calls
   raise. */
static PyObject *call_each(PyObject *list, const char *method, PyObject *args)
{
    struct raised all = {NULL, NULL, NULL};
    PyObject *name = PyUnicode_FromString(method);
    if (!name) return NULL;
    for (Py_ssize_t i = PyList_Size(list); i-- > 0;) {
        PyObject *held = i < PyList_Size(list) ? PyList_GetItem(list, i) : NULL;
        if (!held) continue; /* another thread has changed the list */
        Py_INCREF(held);
        PyObject *call = PyObject_GetAttr(held, name);
        ended(call ? PyObject_CallObject(call, args) : NULL, &all);
        Py_XDECREF(call);
        Py_DECREF(held);
    }
    Py_DECREF(name);
    return none_or(&all);
}

static PyObject *release_all(PyObject *list, PyObject *unused)
{
    (void)unused;
    return call_each(list, "release", NULL);
}

static PyObject *leave_all(PyObject *list, PyObject *args)
{
    return call_each(list, "__exit__", args);
}

/* If one of the locks isn't held any more, releases the others. */
static PyObject *enter_all(PyObject *list, PyObject *unused)
{
    struct raised all = {NULL, NULL, NULL};
    (void)unused;
    for (Py_ssize_t i = 0; !all.type && i < PyList_Size(list); i++) {
        PyObject *held = PyList_GetItem(list, i);
        Py_INCREF(held);
        ended(PyObject_CallMethod(held, "__enter__", NULL), &all);
        Py_DECREF(held);
    }
    if (!all.type) {
        Py_INCREF(list);
        return list;
    }
    PyObject *released = release_all(list, NULL);
    if (!released && PyErr_ExceptionMatches(PyExc_Exception)) PyErr_Clear();
    if (PyErr_Occurred()) add_raised(&all);
    Py_XDECREF(released);
    return none_or(&all);
}

/* Another block may be entered with the event. */
static void event_left(PyObject *event)
{
    if (PyObject_DelAttrString(event, "_inside")) PyErr_Clear(); /* it was left already */
}

/* Marks the event as done unless its block raised; releases its key if that didn't free it. */
static PyObject *leave_event(PyObject *event, PyObject *args)
{
    struct raised all = {NULL, NULL, NULL};
    PyObject *kind, *value, *trace;
    if (!PyArg_ParseTuple(args, "OOO:__exit__", &kind, &value, &trace)) return NULL;
    PyObject *held = PyObject_GetAttrString(event, "lock"), *mine = NULL;
    if (held && held != Py_None && kind == Py_None) {
        PyObject *result = PyObject_GetAttrString(event, "_result");
        ended(result ? PyObject_CallMethod(held, "_finish", "(O)", result) : NULL, &all);
        Py_XDECREF(result);
        kind = PyExc_RuntimeError;
    }
    if (held && held != Py_None) mine = PyObject_GetAttrString(held, "_is_mine");
    if (mine && PyObject_IsTrue(mine))
        ended(PyObject_CallMethod(held, "__exit__", "OOO", kind, value, Py_None), &all);
    if (PyErr_Occurred()) add_raised(&all);
    event_left(event);
    Py_XDECREF(mine);
    Py_XDECREF(held);
    return none_or(&all);
}

static PyMethodDef of_list[] = {
    {"_release_all", release_all, METH_NOARGS,
     "_release_all($self)\n--\n\nReleases all, whatever comes of one; LockLost if one was "
     "no longer held."},
    {"_enter_all", enter_all, METH_NOARGS,
     "_enter_all($self)\n--\n\nThe list itself; LockLost if one of its locks is no longer held."},
    {"_leave_all", leave_all, METH_VARARGS,
     "_leave_all($self, kind, value, traceback, /)\n--\n\nReleases all."},
};
static PyMethodDef leaves_event = {
    "_leave_event", leave_event, METH_VARARGS,
    "_leave_event($self, kind, value, traceback, /)\n--\n\nMarks the event as done unless "
    "there is an exception, and frees its key."};

static int add_method(PyObject *m, PyTypeObject *of, PyMethodDef *def)
{
    PyObject *method = PyDescr_NewMethod(of, def);
    if (!method) return -1;
    int rc = PyModule_AddObject(m, def->ml_name, method);
    if (rc) Py_DECREF(method);
    return rc;
}

int several_begin(PyObject *m)
{
    int rc = add_method(m, &PyBaseObject_Type, &leaves_event);
    for (size_t i = 0; !rc && i < sizeof of_list / sizeof *of_list; i++)
        rc = add_method(m, &PyList_Type, &of_list[i]);
    return rc;
}
