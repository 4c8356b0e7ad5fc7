/*
 * module.c - the extension module itself: its types, the errors, and what a fork changes.
 */
#include "ext.h"

PyTypeObject *store_type, *lock_type, *locking_type, *wait_type, *box_type, *watch_type;

static PyObject *error_of; /* holdfast._errors.error(code, text, key) */
static unsigned generation;

unsigned fork_generation(void) { return generation; }

uint64_t this_thread(void)
{
    static _Thread_local uint64_t number;
    static uint64_t last;
    if (!number) number = ++last; /* under the GIL */
    return number;
}

/* The child's copies of what the parent had are dead. */
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
#define ADD(name, number, status, text)                                     \
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

static PyMethodDef functions[] = {
    {"codes", codes, METH_NOARGS, "codes() -> {name: (number, exit status, text)}"},
    {"options", options, METH_NOARGS, "options() -> {keyword: its name in holdfast.h}"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    "_holdfast",
    "The C library holdfast, for the package of that name.",
    -1,
    functions,
    NULL,
    NULL,
    NULL,
    NULL,
};

static int add_type(PyObject *m, const char *name, PyType_Spec *spec, PyTypeObject **ret)
{
    PyObject *type = PyType_FromSpec(spec);
    if (!type) return -1;
    *ret = (PyTypeObject *)type;
    Py_INCREF(type);
    return PyModule_AddObject(m, name, type);
}

PyMODINIT_FUNC PyInit__holdfast(void);
PyMODINIT_FUNC PyInit__holdfast(void)
{
    PyObject *m = PyModule_Create(&module), *errors = NULL;
    if (!m) return NULL;
    if (add_type(m, "Store", &store_spec, &store_type) ||
        add_type(m, "Lock", &lock_spec, &lock_type) ||
        add_type(m, "Locking", &locking_spec, &locking_type) ||
        add_type(m, "Wait", &wait_spec, &wait_type) ||
        add_type(m, "Mailbox", &box_spec, &box_type) ||
        add_type(m, "Watch", &watch_spec, &watch_type) ||
        PyModule_AddStringConstant(m, "library_version", hf_version()) ||
        !(errors = PyImport_ImportModule("holdfast._errors")) ||
        !(error_of = PyObject_GetAttrString(errors, "error")) ||
        pthread_atfork(NULL, NULL, forked)) {
        Py_DECREF(m);
        m = NULL;
    }
    Py_XDECREF(errors);
    return m;
}
