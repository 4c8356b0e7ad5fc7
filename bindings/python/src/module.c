/*
 * module.c - the extension module itself: its types, the errors, and what a fork changes.
 */
#include "ext.h"

PyTypeObject *store_type, *lock_type, *locking_type, *wait_type, *box_type, *watch_type;

PyObject *unbound_error, *unavailable_error, *note_loss, *release_warning;
static PyObject *error_of; /* holdfast._errors.error(code, text, key) */
static unsigned generation;

unsigned fork_generation(void) { return generation; }

/* Makes the child's copies of its parent's objects unusable. */
static void forked(void) { generation++; }

PyObject *raise_object(int code, PyObject *key, PyObject *text)
{
    if (!text) return NULL;
    if (code == HF_NOMEM) {
        PyErr_SetObject(PyExc_MemoryError, text);
        Py_DECREF(text);
        return NULL;
    }
    PyObject *error =
        PyObject_CallFunction(error_of, "sNO", hf_code_name(code), text, key ? key : Py_None);
    if (error) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
    return NULL;
}

PyObject *raise_text(int code, PyObject *key, const char *text)
{
    PyObject *object = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
    return raise_object(code, key, object);
}

PyObject *raise_why(int code, const char *doing, PyObject *key, const char *why)
{
    if (!key || !PyUnicode_Check(key))
        return raise_object(code, NULL, PyUnicode_FromFormat("%s: %s", doing, why));
    return raise_object(code, key, PyUnicode_FromFormat("%s '%.100U': %s", doing, key, why));
}

PyObject *raise_code(int code, const hf_error *err, PyObject *key)
{
    return raise_text(code, key, err->text);
}

PyObject *made_by_hand(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)args, (void)kwargs;
    PyErr_Format(PyExc_TypeError, "%R: only a store makes one", (PyObject *)type);
    return NULL;
}

static PyObject *codes(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    PyObject *to = PyDict_New();
#define ADD(name, number, status, text, state, action)                      \
    if (to) {                                                               \
        PyObject *value = Py_BuildValue("(iis)", number, status, text);     \
        if (!value || PyDict_SetItemString(to, #name, value)) Py_CLEAR(to); \
        Py_XDECREF(value);                                                  \
    }
    HF_CODES(ADD)
#undef ADD
    return to;
}

static PyObject *options(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return option_names();
}

enum { STORE, LOCK, LOCKING, WAIT, BOX, WATCH, TYPES };

/* The types of this module, made once, because the module may be imported again. */
static PyTypeObject *base[TYPES];

/* _use(Lock, Locking): sets the subclasses whose objects a store makes from now on */
static PyObject *use(PyObject *self, PyObject *args)
{
    PyObject *of[2];
    (void)self;
    if (!PyArg_ParseTuple(args, "OO:_use", &of[0], &of[1])) return NULL;
    PyTypeObject **types[2] = {&lock_type, &locking_type};
    for (int i = 0; i < 2; i++) {
        if (!PyType_Check(of[i]) || !PyType_IsSubtype((PyTypeObject *)of[i], base[LOCK + i])) {
            PyErr_SetString(PyExc_TypeError, "_use: not a subclass");
            return NULL;
        }
        Py_INCREF(of[i]);
        Py_DECREF(*types[i]);
        *types[i] = (PyTypeObject *)of[i];
    }
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"codes", codes, METH_NOARGS,
     "codes()\n--\n\n{name: (number, exit status, text)} of holdfast.h"},
    {"options", options, METH_NOARGS, "options()\n--\n\n{keyword: its name in holdfast.h}"},
    {"_open_hint", open_hint, METH_O,
     "_open_hint(name, /)\n--\n\nHow the option of open is written that is called so elsewhere."},
    {"_use", use, METH_VARARGS,
     "_use(lock, locking, /)\n--\n\nThe subclasses whose objects stores make."},
    {NULL, NULL, 0, NULL},
};

static int add_type(PyObject *m, int at, const char *name, PyType_Spec *spec, PyTypeObject **ret)
{
    PyObject *type = base[at] ? (PyObject *)base[at] : PyType_FromSpec(spec);
    if (!type) return -1;
    base[at] = (PyTypeObject *)type;
    Py_INCREF(type);
    Py_INCREF(type);
    *ret = (PyTypeObject *)type;
    return PyModule_AddObject(m, name, type);
}

/* Refuses a subinterpreter: this module's variables exist once in a process, and interpreters must
   not share objects. */
static int refuse_subinterpreter(void)
{
    if (!PyInterpreterState_GetID(PyInterpreterState_Get())) return 0;
    PyErr_SetString(PyExc_ImportError,
                    "holdfast can't be imported in a subinterpreter. Under mod_wsgi: "
                    "WSGIApplicationGroup %{GLOBAL} runs the application in the main one");
    return -1;
}

static int begin(PyObject *m)
{
    PyObject *errors = NULL;
    if (refuse_subinterpreter()) return -1;
    int bad = add_type(m, STORE, "Store", &store_spec, &store_type) ||
              add_type(m, LOCK, "Lock", &lock_spec, &lock_type) ||
              add_type(m, LOCKING, "Locking", &locking_spec, &locking_type) ||
              add_type(m, WAIT, "Wait", &wait_spec, &wait_type) ||
              add_type(m, BOX, "Mailbox", &box_spec, &box_type) ||
              add_type(m, WATCH, "Watch", &watch_spec, &watch_type) ||
              PyModule_AddStringConstant(m, "library_version", hf_version()) || callers_begin() ||
              several_begin(m) || !(errors = PyImport_ImportModule("holdfast._errors")) ||
              !(error_of = PyObject_GetAttrString(errors, "error")) ||
              !(unbound_error = PyObject_GetAttrString(errors, "UnboundLock")) ||
              !(release_warning = PyObject_GetAttrString(errors, "ReleaseWarning")) ||
              !(unavailable_error = PyObject_GetAttrString(errors, "LockUnavailable")) ||
              !(note_loss = PyObject_GetAttrString(errors, "note_loss"));
    Py_XDECREF(errors);
    if (!bad && pthread_atfork(NULL, NULL, forked)) {
        PyErr_NoMemory();
        bad = 1;
    }
    return bad ? -1 : 0;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, (void *)begin},
    {0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    "_holdfast",
    "The C library holdfast, for the package of that name.",
    0,
    functions,
    module_slots,
    NULL,
    NULL,
    NULL,
};

PyMODINIT_FUNC PyInit__holdfast(void);
PyMODINIT_FUNC PyInit__holdfast(void) { return PyModuleDef_Init(&module); }
