/*
 * args.c - what the caller's arguments say: keys, times, options.
 */
#include "ext.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum kind { A_TIME, A_FLAG, A_OWNER, A_NOTE, A_REQUEST, A_SHARED, A_LIMIT, A_KEEP };

/* The ranges are those of the command, and for io_timeout that of hf_open. For lease, max_hold and
   io_timeout the library takes 0 for "not given", so there a caller's 0 is refused. */
static const int64_t DAY_MS = INT64_C(86400000);
const struct limits wait_limits = {0, 365 * DAY_MS, 1, "0s to 365d, or not given"},
                    lease_limits = {100, DAY_MS, 0, "100ms to 1d, or not given"},
                    io_timeout_limits = {100, 3600000, 0, "100ms to 1h, or not given"},
                    idle_limits = {60000, 36500 * DAY_MS, 0, "60s to 36500d"};
static const struct limits max_hold_limits = {1, 365 * DAY_MS, 0, "1ms to 365d, or not given"},
                           at_least_limits = {0, DAY_MS, 0, "0s to 1d"},
                           keep_limits = {1, 36500 * DAY_MS, 1, "1ms to 36500d, or inf"};

/* One line each: the keyword, its name in holdfast.h. */
static const struct option {
    const char *name, *c_name;
    enum kind kind;
    size_t at;
    unsigned flag;
    const struct limits *limits;
} table[] = {
    {"wait", "wait_ms", A_TIME, offsetof(hf_options, wait_ms), 0, &wait_limits},
    {"lease", "lease_ms", A_TIME, offsetof(hf_options, lease_ms), 0, &lease_limits},
    {"max_hold", "max_hold_ms", A_TIME, offsetof(hf_options, max_hold_ms), 0, &max_hold_limits},
    {"at_least", "at_least_ms", A_TIME, offsetof(hf_options, at_least_ms), 0, &at_least_limits},
    {"shared", "mode", A_SHARED, 0, 0, NULL},
    {"limit", "limit", A_LIMIT, 0, 0, NULL},
    {"detached", "HF_DETACHED", A_FLAG, 0, HF_DETACHED, NULL},
    {"unqueued", "HF_UNQUEUED", A_FLAG, 0, HF_UNQUEUED, NULL},
    {"recursive", "HF_ALLOW_RECURSIVE", A_FLAG, 0, HF_ALLOW_RECURSIVE, NULL},
    {"no_renew", "HF_NO_RENEW", A_FLAG, 0, HF_NO_RENEW, NULL},
    {"owner", "owner", A_OWNER, 0, 0, NULL},
    {"note", "note", A_NOTE, 0, 0, NULL},
    {"request_id", "request_id", A_REQUEST, 0, 0, NULL},
    /* options of `once` only */
    {"at_most_once", "HF_AT_MOST_ONCE", A_FLAG, 0, HF_AT_MOST_ONCE, NULL},
    {"keep", "keep_ms", A_KEEP, 0, 0, &keep_limits},
};
enum { OPTIONS = sizeof table / sizeof *table, ONCE_ALONE = 2 };

PyObject *option_names(void)
{
    PyObject *to = PyDict_New();
    for (size_t i = 0; to && i < OPTIONS; i++) {
        PyObject *value = PyUnicode_FromString(table[i].c_name);
        if (!value || PyDict_SetItemString(to, table[i].name, value)) Py_CLEAR(to);
        Py_XDECREF(value);
    }
    return to;
}

/* Writes "acquire 'key': wait: why"; the key itself is checked later. */
static PyObject *said(const char *doing, PyObject *key, const char *name, const char *why)
{
    if (key && PyUnicode_Check(key))
        return PyUnicode_FromFormat("%s '%.100U': %s: %s", doing, key, name, why);
    return PyUnicode_FromFormat("%s: %s: %s", doing, name, why);
}

static int invalid(const char *doing, PyObject *key, const char *name, const char *why)
{
    raise_object(HF_INVALID, key, said(doing, key, name, why));
    return -1;
}

void unknown_option(const char *doing, PyObject *key, PyObject *name, int for_what)
{
    char write[80], why[100] = "unknown option";
    if (hint_read(name, for_what, write, sizeof write))
        snprintf(why, sizeof why, "unknown option: %s", write);
    PyObject *quoted = PyUnicode_FromFormat("'%U'", name), *bytes = NULL, *text = NULL;
    if (quoted) bytes = PyUnicode_AsEncodedString(quoted, "utf-8", "replace");
    if (bytes) text = said(doing, key, PyBytes_AsString(bytes), why);
    if (text) PyErr_SetObject(PyExc_TypeError, text);
    Py_XDECREF(quoted);
    Py_XDECREF(bytes);
    Py_XDECREF(text);
}

PyObject *text_bytes(const char *doing, PyObject *key, const char *name, PyObject *value)
{
    if (!PyUnicode_Check(value)) {
        invalid(doing, key, name, "must be a str");
        return NULL;
    }
    PyObject *bytes = PyUnicode_AsUTF8String(value);
    if (!bytes) { /* half a surrogate pair */
        PyErr_Clear();
        invalid(doing, key, name, "not UTF-8");
        return NULL;
    }
    if (strlen(PyBytes_AsString(bytes)) != (size_t)PyBytes_Size(bytes)) {
        invalid(doing, key, name, "control character: NUL");
        Py_CLEAR(bytes);
    }
    return bytes;
}

PyObject *key_bytes(const char *doing, PyObject *args, PyObject **ret_key)
{
    if (PyTuple_Size(args) != 1) {
        PyErr_Format(PyExc_TypeError, "%s: one positional argument: the key", doing);
        return NULL;
    }
    *ret_key = PyTuple_GetItem(args, 0);
    return text_bytes(doing, NULL, "key", *ret_key);
}

/* ---- times ---- */

/* A text '10' is refused: it is ten seconds to the command, and ten milliseconds to the Node
   package. */
enum { NO_UNIT = -2 };

/* Reads digits with at most one point in them, and a unit, which only 0 may lack; rounds up to
   milliseconds. Returns -1 if the text isn't that. */
static int64_t parse_time(const char *s)
{
    static const struct {
        const char *name;
        int64_t ms;
    } units[] = {{"", 1000}, {"s", 1000}, {"ms", 1}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};
    const int64_t most = INT64_C(4000000000000);
    int64_t whole = 0, milli = 0, unit = 100;
    int digits = 0, more = 0;
    for (; *s >= '0' && *s <= '9'; s++, digits++) {
        whole = whole * 10 + (*s - '0');
        if (whole > most) whole = most;
    }
    if (*s == '.')
        for (s++; *s >= '0' && *s <= '9'; s++, digits++, unit /= 10) {
            milli += (*s - '0') * unit;
            if (!unit && *s > '0') more = 1;
        }
    int64_t thousandths = whole * 1000 + milli + more;
    for (size_t i = 0; digits && i < sizeof units / sizeof *units; i++)
        if (!strcmp(s, units[i].name)) {
            if (!i && thousandths) return NO_UNIT;
            if (thousandths > INT64_MAX / 2 / units[i].ms) return INT64_MAX / 2;
            return (thousandths * units[i].ms + 999) / 1000;
        }
    return -1;
}

static void no_unit(const char *doing, PyObject *key, const char *name, const char *text)
{
    char why[160];
    snprintf(why, sizeof why,
             "'%.30s' has no unit: write '%.30ss' or '%.30sms', or a number of seconds", text, text,
             text);
    invalid(doing, key, name, why);
}

static int is_number(PyObject *value) { return PyLong_Check(value) || PyFloat_Check(value); }

/* Returns the seconds of an int, a float or a timedelta; below 0: it is none of them. */
static double seconds_of(PyObject *value)
{
    double seconds = -1;
    if (is_number(value)) {
        /* an int that is too large for a double becomes -1, so it is refused, too */
        seconds = PyFloat_AsDouble(value);
    } else {
        PyObject *total = PyObject_CallMethod(value, "total_seconds", NULL);
        if (total && PyFloat_Check(total)) seconds = PyFloat_AsDouble(total);
        Py_XDECREF(total);
    }
    PyErr_Clear();
    return seconds;
}

static int is_endless(PyObject *value)
{
    return PyFloat_Check(value) && isinf(PyFloat_AsDouble(value)) && PyFloat_AsDouble(value) > 0;
}

/* Raises the exception for a time that is out of range. Returns -1. */
static int out_of_range(const char *doing, PyObject *key, const char *name, PyObject *value,
                        const struct limits *limits)
{
    PyObject *why = PyUnicode_FromFormat("'%.40S%s' is out of range: it must be %s", value,
                                         is_number(value) ? " s" : "", limits->text);
    PyObject *bytes = why ? PyUnicode_AsEncodedString(why, "utf-8", "replace") : NULL;
    if (bytes) invalid(doing, key, name, PyBytes_AsString(bytes));
    Py_XDECREF(bytes);
    Py_XDECREF(why);
    return -1;
}

int time_read(const char *doing, PyObject *key, const char *name, PyObject *value,
              const struct limits *limits, int64_t *ret_ms)
{
    static const char why[] = "not a time such as 10 (seconds), 0.5, '500ms', '5m' or a timedelta";
    int64_t ms = -1;
    if (limits->endless && is_endless(value)) {
        *ret_ms = HF_FOREVER;
        return 0;
    }
    if (PyUnicode_Check(value)) {
        PyObject *bytes = PyUnicode_AsUTF8String(value);
        if (bytes && strlen(PyBytes_AsString(bytes)) == (size_t)PyBytes_Size(bytes))
            ms = parse_time(PyBytes_AsString(bytes));
        if (ms == NO_UNIT) no_unit(doing, key, name, PyBytes_AsString(bytes));
        Py_XDECREF(bytes);
        if (ms == NO_UNIT) return -1;
        PyErr_Clear();
    } else if (!PyBool_Check(value)) {
        double seconds = seconds_of(value);
        /* A double may be a little above the decimal number that was written. That excess isn't
           rounded up to a whole millisecond. */
        if (seconds >= 0 && seconds < 4e12) ms = (int64_t)ceil(seconds * 1000 - 1e-6);
        if (seconds >= 4e12) ms = INT64_MAX / 2;
        if (seconds > 0 && !ms) ms = 1;
    }
    if (ms < 0) return invalid(doing, key, name, why);
    if (ms < limits->least || ms > limits->most)
        return out_of_range(doing, key, name, value, limits);
    *ret_ms = ms;
    return 0;
}

int token_read(const char *what, PyObject *value, PyObject *key, uint64_t *ret)
{
    const unsigned long long most = (1ULL << 53) - 1;
    unsigned long long token = 0;
    if (PyLong_Check(value) && !PyBool_Check(value)) {
        token = PyLong_AsUnsignedLongLong(value);
        PyErr_Clear(); /* negative, or above the limit: out of range */
    }
    if (token < 1 || token > most) {
        PyObject *text = PyUnicode_FromFormat("%s '%.100U': token: must be an int from 1 to %llu",
                                              what, key, most);
        raise_object(HF_INVALID, key, text);
        return -1;
    }
    *ret = token;
    return 0;
}

/* ---- options ---- */

static int hex(Py_UCS4 c)
{
    if (c >= '0' && c <= '9') return (int)c - '0';
    if (c >= 'a' && c <= 'f') return (int)c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return (int)c - 'A' + 10;
    return -1;
}

static int read_request(asked *to, PyObject *value, PyObject *key)
{
    static const char why[] = "must be 16 bytes or 32 hexadecimal digits";
    if (PyBytes_Check(value)) {
        if (PyBytes_Size(value) != 16) return invalid(to->doing, key, "request_id", why);
        memcpy(to->request, PyBytes_AsString(value), 16);
    } else if (PyUnicode_Check(value)) {
        if (PyUnicode_GetLength(value) != 32) return invalid(to->doing, key, "request_id", why);
        for (int i = 0; i < 16; i++) {
            int high = hex(PyUnicode_ReadChar(value, 2 * i));
            int low = hex(PyUnicode_ReadChar(value, 2 * i + 1));
            if (high < 0 || low < 0) return invalid(to->doing, key, "request_id", why);
            to->request[i] = (uint8_t)(high << 4 | low);
        }
    } else {
        return invalid(to->doing, key, "request_id", why);
    }
    to->o.request_id = to->request;
    return 0;
}

static int read_limit(asked *to, PyObject *value, PyObject *key)
{
    if (!PyLong_Check(value) || PyBool_Check(value))
        return invalid(to->doing, key, "limit", "must be an int");
    long n = PyLong_AsLong(value);
    if (n == -1) PyErr_Clear();
    if (n < 0 || n > 1000000) return invalid(to->doing, key, "limit", "must be 1 to 1,000");
    to->o.limit = (uint32_t)n;
    if (to->o.mode == HF_SHARED)
        return invalid(to->doing, key, "limit", "not together with shared");
    to->o.mode = HF_LIMITED;
    return 0;
}

/* Accepts only a bool: in Python a text such as 'false' would count as true. */
int flag_read(const char *doing, PyObject *key, const char *name, PyObject *value)
{
    if (PyBool_Check(value)) return value == Py_True;
    return invalid(doing, key, name, "must be a bool");
}

static int read_shared(asked *to, PyObject *value, PyObject *key)
{
    int is = flag_read(to->doing, key, "shared", value);
    if (is <= 0) return is;
    if (to->o.mode == HF_LIMITED)
        return invalid(to->doing, key, "limit", "not together with shared");
    to->o.mode = HF_SHARED;
    return 0;
}

static int read_text(const asked *to, const char *name, PyObject *value, PyObject *key,
                     PyObject **ret, const char **ret_text)
{
    Py_XDECREF(*ret);
    *ret = text_bytes(to->doing, key, name, value);
    if (!*ret) return -1;
    *ret_text = PyBytes_AsString(*ret);
    return 0;
}

static int read_one(asked *to, const struct option *as, PyObject *value, PyObject *key)
{
    int is;
    if (value == Py_None) return 0; /* the default */
    switch (as->kind) {
    case A_TIME:
        return time_read(to->doing, key, as->name, value, as->limits,
                         (int64_t *)((char *)&to->o + as->at));
    case A_FLAG:
        is = flag_read(to->doing, key, as->name, value);
        if (is > 0) to->o.flags |= as->flag;
        return is < 0 ? -1 : 0;
    case A_OWNER: return read_text(to, "owner", value, key, &to->owner, &to->o.owner);
    case A_NOTE: return read_text(to, "note", value, key, &to->note, &to->o.note);
    case A_REQUEST: return read_request(to, value, key);
    case A_SHARED: return read_shared(to, value, key);
    case A_LIMIT: return read_limit(to, value, key);
    case A_KEEP: return time_read(to->doing, key, "keep", value, as->limits, &to->keep_ms);
    }
    return 0;
}

int asked_read(asked *to, PyObject *kwargs, int for_what, PyObject *key)
{
    PyObject *name, *value;
    Py_ssize_t at = 0;
    to->o = (hf_options)HF_OPTIONS_INIT;
    to->owner = to->note = NULL;
    to->keep_ms = 7 * DAY_MS;
    to->doing = for_what == FOR_ONCE ? "once" : "acquire";
    while (kwargs && PyDict_Next(kwargs, &at, &name, &value)) {
        size_t i = 0, n = for_what == FOR_ONCE ? OPTIONS : OPTIONS - ONCE_ALONE;
        while (i < n && PyUnicode_CompareWithASCIIString(name, table[i].name)) i++;
        if (i == n) unknown_option(to->doing, key, name, for_what);
        if (i == n || read_one(to, &table[i], value, key)) {
            asked_done(to);
            return -1;
        }
    }
    return 0;
}

void asked_done(asked *a)
{
    Py_CLEAR(a->owner);
    Py_CLEAR(a->note);
}
