/*
 * store.c - the type Store: a store, opened.
 */
#include "ext.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- going in and out ---- */

/* Forgets, in the child of a fork, the parent's locks, waits and watches without touching them. The
   library opens the store anew at the first call. */
static void begin_here(store *s)
{
    if (s->generation == fork_generation()) return;
    s->generation = fork_generation();
    locks_forget_all(s);
    watching_forget_all(s);
    s->waits = s->given_up = NULL;
    s->users = 0;
    s->tries = 0;
}

int store_closed_here(store *s)
{
    begin_here(s);
    return !s->h;
}

int store_is_near(const store *s)
{
    const char *url = s->h ? hf_store_url(s->h) : "";
    return !strncmp(url, "mem:", 4) || !strncmp(url, "file:", 5);
}

hf *store_enter(store *s, const char *doing, PyObject *key)
{
    if (store_closed_here(s) || s->closing)
        return (void *)raise_why(HF_CANCELED, doing, key, "the store is closed");
    s->users++;
    return s->h;
}

void store_leave(store *s) { s->users--; }

/* ---- opening, closing ---- */

static PyObject *store_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"url", "owner", "note", "io_timeout", "existing", NULL};
    PyObject *existing = Py_False;
    PyObject *url = Py_None, *owner = Py_None, *note = Py_None, *io_timeout = Py_None;
    PyObject *text[3] = {NULL, NULL, NULL};
    hf_open_options o = HF_OPEN_OPTIONS_INIT;
    hf_error err = {0, 0, ""};
    hf *h = NULL;
    store *s = NULL;
    int rc = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O$OOOO:open", names, &url, &owner, &note,
                                     &io_timeout, &existing))
        return NULL;
    if (url != Py_None && !(text[0] = text_bytes("open", NULL, "url", url))) goto out;
    if (owner != Py_None && !(text[1] = text_bytes("open", NULL, "owner", owner))) goto out;
    if (note != Py_None && !(text[2] = text_bytes("open", NULL, "note", note))) goto out;
    if (io_timeout != Py_None &&
        time_read("open", NULL, "io_timeout", io_timeout, &io_timeout_limits, &o.io_timeout_ms))
        goto out;
    int only = flag_read("open", NULL, "existing", existing);
    if (only < 0) goto out;
    if (only) o.flags = HF_OPEN_EXISTING;
    if (text[1]) o.owner = PyBytes_AsString(text[1]);
    if (text[2]) o.note = PyBytes_AsString(text[2]);
    const char *where = text[0] ? PyBytes_AsString(text[0]) : NULL;
    if (where && !*where) {
        raise_text(HF_INVALID, NULL, "open '': an empty URL; the default is None");
        goto out;
    }
    char warning[HF_TEXT_CAP];
    int warns = 0;
    Py_BEGIN_ALLOW_THREADS rc = hf_open(where, &o, &h, &err);
    if (!rc) warns = hf_store_warning(h, warning, sizeof warning);
    Py_END_ALLOW_THREADS if (rc)
    {
        raise_code(rc, &err, NULL);
        goto out;
    }
    if (warns && PyErr_WarnEx(PyExc_RuntimeWarning, warning, 4)) {
        hf_close(h); /* the program has warnings raised as exceptions */
        goto out;
    }
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    s = (store *)alloc(type, 0);
    if (s) {
        s->h = h;
        s->generation = fork_generation();
    } else {
        hf_close(h);
    }
out:
    for (int i = 0; i < 3; i++) Py_XDECREF(text[i]);
    return (PyObject *)s;
}

/* Closes the store. Holders learn of it from hf_close, waiters by the results of their waits. */
static void shut(store *s)
{
    if (store_closed_here(s) || s->closing) return;
    s->closing = 1;
    watching_stop_all(s);
    for (waiting *w = s->waits; w; w = w->next)
        if (w->w) hf_wait_cancel(w->w);
    Py_BEGIN_ALLOW_THREADS hf_close_begin(s->h);
    Py_END_ALLOW_THREADS while (s->users)
    { /* each of these calls ends soon, because none waits for a key */
        struct timespec little = {0, 1000000};
        Py_BEGIN_ALLOW_THREADS nanosleep(&little, NULL);
        Py_END_ALLOW_THREADS
    }
    struct losing *losing = locks_closed(s);
    size_t n;
    hf_lock **brought = waits_closed(s, &n);
    hf *h = s->h;
    s->h = NULL;
    Py_BEGIN_ALLOW_THREADS for (size_t i = 0; i < n; i++)
    {
        int rc = hf_release(brought[i], NULL);
        if (rc && rc != HF_LOST) break; /* the store doesn't answer: the rest is left to hf_close */
    }
    hf_close(h);
    Py_END_ALLOW_THREADS free(brought);
    losing_free(losing);
    waiting_reap(s);
}

static PyObject *store_close(store *s, PyObject *unused)
{
    (void)unused;
    shut(s);
    Py_RETURN_NONE;
}

static PyObject *store_self(PyObject *s, PyObject *unused)
{
    (void)unused;
    Py_INCREF(s);
    return s;
}

static PyObject *store_exit(store *s, PyObject *args)
{
    (void)args;
    shut(s);
    Py_RETURN_NONE;
}

static void store_dealloc(store *s)
{
    PyTypeObject *type = Py_TYPE(s);
    PyObject *t, *v, *b;
    PyErr_Fetch(&t, &v, &b);
    shut(s);
    waiting_reap(s);
    free(s->table);
    PyErr_Restore(t, v, b);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(s);
    Py_DECREF(type);
}

/* ---- acquiring ---- */

/* Returns 1 if `to` now shares a grant that its caller has already. */
static int nests(store *s, const asked *a, lock *to)
{
    if (!a || to->once || !(a->o.flags & HF_ALLOW_RECURSIVE) || a->o.request_id) return 0;
    lock *held = lock_of_caller(s, to->key, to->mode, &to->by);
    if (held) lock_nest(to, held);
    return held != NULL;
}

/* Refuses a wait for a key that its own caller holds. The library sees threads, not tasks, so it
   can't do that.
   Returns: 0; HF_RECURSIVE, with the text; HF_CANCELED without a text: the store is closed;
   RAISED. */
static int refuse_endless(store *s, const asked *a, lock *to, int sits, hf_error *err)
{
    const char *why;
    if (a && (a->o.wait_ms != HF_FOREVER || a->o.request_id)) return 0;
    int rc = lock_waits_for_itself(s, to->key, to->mode, &to->by, sits, &why);
    err->text[0] = 0;
    if (rc == HF_RECURSIVE) snprintf(err->text, sizeof err->text, "%s", why);
    return rc;
}

/* Tries without waiting. Returns 0, HF_BUSY, or another code. `once` as for hf_once_begin. */
static int try_once(hf *h, const char *text, const asked *a, hf_lock **l, hf_once *once,
                    hf_error *err)
{
    hf_options now = HF_OPTIONS_INIT;
    int rc;
    if (a) now = a->o;
    now.wait_ms = 0;
    Py_BEGIN_ALLOW_THREADS rc = once ? hf_once_begin(h, text, a->keep_ms, &now, once, err)
                                     : hf_acquire(h, text, &now, l, err);
    Py_END_ALLOW_THREADS if (!rc && once) *l = once->lock;
    return rc;
}

/* Tries once, then waits. A try needs no other thread, and a wait can be canceled.
   Returns: 0: `to` has the lock, unless the event is done; HF_RECURSIVE: the text is the reason
   alone; a code without a text: the store is closed; RAISED. */
static int obtain(store *s, hf *h, const char *text, const asked *a, lock *to, hf_once *once,
                  hf_error *err)
{
    hf_lock *l = NULL;
    if (nests(s, a, to)) return 0;
    int rc = try_once(h, text, a, &l, once, err);
    if (rc == HF_BUSY && (!a || a->o.wait_ms)) {
        waiting *w;
        s->tries++;
        rc = refuse_endless(s, a, to, 1, err);
        if (!rc) rc = waiting_start(s, h, text, a, once != NULL, NULL, 0, &w, err);
        if (rc) return rc;
        if (waiting_sit(w)) return RAISED;
        rc = w->code;
        *err = w->err;
        l = w->lock;
        if (once) *once = w->once;
        waiting_free(w);
        if (rc ? rc == HF_CANCELED && s->closing : !s->h) { /* closing released the lock */
            err->text[0] = 0;
            return HF_CANCELED;
        }
    }
    return rc || !l ? rc : lock_begin(to, l);
}

/* Raises the exception for a code that obtain() has returned. Returns NULL. */
static void *not_obtained(int rc, const char *doing, PyObject *key, const hf_error *err)
{
    if (rc == RAISED) return NULL;
    if (!*err->text) return raise_why(rc, doing, key, "the store is closed");
    /* Otherwise the text is the library's own, which names the key. */
    if (rc == HF_RECURSIVE && strncmp(err->text, doing, strlen(doing)))
        return raise_why(rc, doing, key, err->text);
    return raise_code(rc, err, key);
}

/* Returns the lock, which holds nothing if the event is done; or NULL, with an exception. */
static lock *get(store *s, PyObject *key, const asked *a, hf_once *once)
{
    const char *doing = once ? "once" : "acquire";
    hf_error err = {0, 0, ""};
    int rc = RAISED;
    caller by;
    PyObject *bytes = text_bytes(doing, NULL, "key", key);
    lock *to = bytes && !caller_read(&by) ? lock_blank(s, key, a, &by) : NULL;
    hf *h = to ? store_enter(s, doing, key) : NULL;
    if (h) {
        rc = obtain(s, h, PyBytes_AsString(bytes), a, to, once, &err);
        store_leave(s);
    }
    Py_XDECREF(bytes);
    if (!rc) return to;
    Py_XDECREF(to);
    return not_obtained(rc, doing, key, &err);
}

PyObject *store_acquire_asked(store *s, PyObject *key, const asked *a)
{
    return (PyObject *)get(s, key, a, NULL);
}

static PyObject *store_acquire(store *s, PyObject *args, PyObject *kwargs)
{
    asked a;
    if (!PyTuple_Check(args) || PyTuple_Size(args) != 1) {
        PyErr_SetString(PyExc_TypeError, "acquire: one positional argument: the key");
        return NULL;
    }
    PyObject *key = PyTuple_GetItem(args, 0);
    if (kwargs && asked_read(&a, kwargs, 0, key)) return NULL;
    PyObject *ret = store_acquire_asked(s, key, kwargs ? &a : NULL);
    if (kwargs) asked_done(&a);
    if (ret) lock_note_frame((lock *)ret, NULL, 0);
    return ret;
}

PyObject *store_try_asked(store *s, PyObject *key, const asked *a)
{
    hf_error err = {0, 0, ""};
    hf_lock *l = NULL;
    caller by;
    int rc = RAISED;
    PyObject *bytes = text_bytes("acquire", NULL, "key", key);
    lock *to = bytes && !caller_read(&by) ? lock_blank(s, key, a, &by) : NULL;
    hf *h = to ? store_enter(s, "acquire", key) : NULL;
    if (h) {
        rc = nests(s, a, to) ? 0 : HF_BUSY;
        if (rc && store_is_near(s)) rc = try_once(h, PyBytes_AsString(bytes), a, &l, NULL, &err);
        if (!rc && l) rc = lock_begin(to, l);
        if (rc == HF_BUSY && (!a || a->o.wait_ms || !store_is_near(s))) {
            s->tries += store_is_near(s);
            rc = refuse_endless(s, a, to, 0, &err);
            if (!rc) Py_CLEAR(to);
        }
        store_leave(s);
    }
    Py_XDECREF(bytes);
    if (!rc && to) return (PyObject *)to;
    if (!rc) Py_RETURN_NONE;
    Py_XDECREF(to);
    return not_obtained(rc, "acquire", key, &err);
}

/* try(key, **options) -> Lock or None */
static PyObject *store_try(store *s, PyObject *args, PyObject *kwargs)
{
    asked a;
    PyObject *key, *bytes = key_bytes("acquire", args, &key);
    Py_XDECREF(bytes);
    if (!bytes || asked_read(&a, kwargs, 0, key)) return NULL;
    PyObject *ret = store_try_asked(s, key, &a);
    asked_done(&a);
    return ret;
}

static PyObject *store_lock(store *s, PyObject *args, PyObject *kwargs)
{
    asked a;
    if (PyTuple_Size(args) != 1) {
        PyErr_SetString(PyExc_TypeError, "lock: one positional argument: the key");
        return NULL;
    }
    PyObject *key = PyTuple_GetItem(args, 0);
    if (kwargs && asked_read(&a, kwargs, 0, key)) return NULL;
    return locking_new(s, key, &a, kwargs != NULL);
}

PyObject *once_tuple(lock *held, const hf_once *once)
{
    if (!held) Py_INCREF(Py_None);
    return Py_BuildValue("(NLss)", held ? (PyObject *)held : Py_None, (long long)once->done_us,
                         once->owner, once->result);
}

/* once_begin(key, **options) -> (Lock or None, done_us, owner, result) */
static PyObject *store_once_begin(store *s, PyObject *args, PyObject *kwargs)
{
    asked a;
    hf_once once;
    PyObject *key, *bytes = key_bytes("once", args, &key);
    if (!bytes) return NULL;
    Py_DECREF(bytes);
    if (asked_read(&a, kwargs, FOR_ONCE, key)) return NULL;
    memset(&once, 0, sizeof once);
    lock *to = get(s, key, &a, &once);
    asked_done(&a);
    if (!to) return NULL;
    if (!to->l) Py_CLEAR(to);
    return once_tuple(to, &once);
}

PyObject *store_start_asked(store *s, PyObject *key, const asked *a, PyObject *mailbox, uint64_t id,
                            int once)
{
    asked plain;
    hf_error err = {0, 0, ""};
    waiting *w;
    int rc = RAISED;
    if (!a && asked_read(&plain, NULL, 0, key)) return NULL;
    const char *doing = once ? "once" : "acquire";
    PyObject *bytes = text_bytes(doing, NULL, "key", key);
    PyObject *ret = bytes ? wait_blank(s, key, a ? a : &plain, once) : NULL;
    hf *h = ret ? store_enter(s, doing, key) : NULL;
    box *to = h ? box_of(mailbox) : NULL;
    if (to) rc = waiting_start(s, h, PyBytes_AsString(bytes), a, once, to, id, &w, &err);
    if (!rc) wait_begin(ret, w);
    if (h) store_leave(s);
    Py_XDECREF(bytes);
    if (!rc) return ret;
    Py_XDECREF(ret);
    return rc == RAISED ? NULL : raise_code(rc, &err, key);
}

/* start(mailbox, id, once, key, **options) -> Wait */
static PyObject *store_start(store *s, PyObject *args, PyObject *kwargs)
{
    asked a;
    PyObject *mailbox, *key;
    unsigned long long id;
    int once;
    if (!PyArg_ParseTuple(args, "OKpO:start", &mailbox, &id, &once, &key)) return NULL;
    if (asked_read(&a, kwargs, once ? FOR_ONCE : 0, key)) return NULL;
    PyObject *ret = store_start_asked(s, key, &a, mailbox, id, once);
    asked_done(&a);
    return ret;
}

/* _check(once, key, **options): raises what is wrong with them before anything is done */
static PyObject *store_check(PyObject *s, PyObject *args, PyObject *kwargs)
{
    asked a;
    PyObject *key, *bytes;
    int once;
    (void)s;
    if (!PyArg_ParseTuple(args, "pO:check", &once, &key)) return NULL;
    if (!(bytes = text_bytes(once ? "once" : "acquire", NULL, "key", key))) return NULL;
    Py_DECREF(bytes);
    if (asked_read(&a, kwargs, once ? FOR_ONCE : 0, key)) return NULL;
    asked_done(&a);
    Py_RETURN_NONE;
}

static PyObject *store_adopt(store *s, PyObject *args)
{
    PyObject *key, *number;
    uint64_t token;
    hf_error err = {0, 0, ""};
    hf_lock *l = NULL;
    int rc = RAISED;
    if (!PyArg_ParseTuple(args, "OO:adopt", &key, &number)) return NULL;
    PyObject *bytes = text_bytes("adopt", NULL, "key", key);
    int bad = !bytes || token_read("adopt", number, key, &token);
    lock *to = bad ? NULL : lock_blank(s, key, NULL, NULL);
    hf *h = to ? store_enter(s, "adopt", key) : NULL;
    if (h) {
        const char *text = PyBytes_AsString(bytes);
        Py_BEGIN_ALLOW_THREADS rc = hf_adopt(h, text, token, &l, &err);
        Py_END_ALLOW_THREADS if (!rc) rc = lock_begin(to, l);
        /* No warning if this object is dropped: the lock is held elsewhere, too. */
        to->detached = 1;
        store_leave(s);
    }
    Py_XDECREF(bytes);
    if (!rc) return (PyObject *)to;
    Py_XDECREF(to);
    return rc == RAISED ? NULL : raise_code(rc, &err, key);
}

static PyObject *store_break(store *s, PyObject *args)
{
    PyObject *key, *number, *ret = NULL;
    uint64_t token;
    hf_error err = {0, 0, ""};
    int rc;
    if (!PyArg_ParseTuple(args, "OO:break_", &key, &number)) return NULL;
    PyObject *bytes = text_bytes("break", NULL, "key", key);
    int bad = !bytes || token_read("break", number, key, &token);
    hf *h = bad ? NULL : store_enter(s, "break", key);
    if (h) {
        const char *text = PyBytes_AsString(bytes);
        Py_BEGIN_ALLOW_THREADS rc = hf_break(h, text, token, &err);
        Py_END_ALLOW_THREADS store_leave(s);
        ret = rc ? raise_code(rc, &err, key) : Py_None;
        Py_XINCREF(ret);
    }
    Py_XDECREF(bytes);
    return ret;
}

static PyObject *store_forget(store *s, PyObject *args)
{
    PyObject *key, *bytes = key_bytes("forget", args, &key);
    hf_error err = {0, 0, ""};
    int rc;
    hf *h = bytes ? store_enter(s, "forget", key) : NULL;
    if (!h) {
        Py_XDECREF(bytes);
        return NULL;
    }
    const char *text = PyBytes_AsString(bytes);
    Py_BEGIN_ALLOW_THREADS rc = hf_forget(h, text, &err);
    Py_END_ALLOW_THREADS store_leave(s);
    Py_DECREF(bytes);
    if (rc) return raise_code(rc, &err, key);
    Py_RETURN_NONE;
}

static PyObject *store_prune(store *s, PyObject *args)
{
    PyObject *idle;
    int64_t idle_ms;
    uint64_t n = 0;
    hf_error err = {0, 0, ""};
    int rc;
    if (!PyArg_ParseTuple(args, "O:prune", &idle) ||
        time_read("prune", NULL, "idle", idle, &idle_limits, &idle_ms))
        return NULL;
    hf *h = store_enter(s, "prune", NULL);
    if (!h) return NULL;
    Py_BEGIN_ALLOW_THREADS rc = hf_prune(h, idle_ms, &n, &err);
    Py_END_ALLOW_THREADS store_leave(s);
    return rc ? raise_code(rc, &err, NULL) : PyLong_FromUnsignedLongLong(n);
}

static PyObject *store_stats(store *s, PyObject *unused)
{
    (void)unused;
    hf_stats is;
    memset(&is, 0, sizeof is);
    is.size = sizeof is;
    hf *h = store_enter(s, "stats", NULL);
    if (!h) return NULL;
    int rc = hf_get_stats(h, &is);
    store_leave(s);
    if (rc) return raise_text(rc, NULL, "stats: the store can't be opened in this process");
#define N(field) #field, (unsigned long long)is.field
    return Py_BuildValue("{sKsKsKsKsKsKsKsKsKsKsKsKsK}", N(acquired), N(released), "busy",
                         (unsigned long long)(is.busy - s->tries), N(timeouts), N(canceled),
                         N(lost), N(renewals), N(unknown), N(errors), N(store_ops),
                         N(wait_us_total), N(held), N(waiting));
#undef N
}

static PyObject *store_url(store *s, void *unused)
{
    (void)unused;
    if (!s->h) return PyUnicode_FromString("");
    return PyUnicode_FromString(hf_store_url(s->h));
}

static PyObject *store_closed(store *s, void *unused)
{
    (void)unused;
    return PyBool_FromLong(!s->h || s->closing);
}

/* Returns True if a release never waits for a server. */
static PyObject *is_near(store *s, void *unused)
{
    (void)unused;
    return PyBool_FromLong(store_is_near(s));
}

#define METHOD(name, function, flags, doc)                      \
    {                                                           \
        name, (PyCFunction)(void (*)(void))function, flags, doc \
    }

static PyMethodDef methods[] = {
    METHOD("acquire", store_acquire, METH_VARARGS | METH_KEYWORDS,
           "acquire($self, key, /, **options)\n--\n\nThe Lock of the key, to be kept and released; "
           "LockUnavailable if it isn't obtained. help(holdfast) lists the options."),
    METHOD("lock", store_lock, METH_VARARGS | METH_KEYWORDS,
           "lock($self, key, /, **options)\n--\n\nThe key as a block, which holds it, and as a "
           "lock of threading; help(holdfast) lists the options."),
    METHOD("_once_begin", store_once_begin, METH_VARARGS | METH_KEYWORDS,
           "_once_begin($self, key, /, **options)\n--\n\n(Lock or None, done_us, owner, result)"),
    METHOD("_start", store_start, METH_VARARGS | METH_KEYWORDS,
           "_start($self, mailbox, number, once, key, /, **options)\n--\n\nStarts a wait that "
           "tells the mailbox."),
    METHOD("_try", store_try, METH_VARARGS | METH_KEYWORDS,
           "_try($self, key, /, **options)\n--\n\nThe Lock if it is to be had without waiting for "
           "a server, or None."),
    METHOD("_check", store_check, METH_VARARGS | METH_KEYWORDS,
           "_check($self, once, key, /, **options)\n--\n\nRaises the exception for wrong options."),
    METHOD("adopt", store_adopt, METH_VARARGS,
           "adopt($self, key, token, /)\n--\n\nTakes charge of a grant made elsewhere: a Lock."),
    METHOD("break_", store_break, METH_VARARGS,
           "break_($self, key, token, /)\n--\n\nEnds the grant with this token, for its holder "
           "too."),
    METHOD("forget", store_forget, METH_VARARGS,
           "forget($self, key, /)\n--\n\nRemoves the mark of an event that is done: it may run "
           "again. LockLost if it isn't marked."),
    METHOD("_peek", store_peek, METH_VARARGS, "_peek($self, key, /)\n--\n\nOne key."),
    METHOD("_list", store_list, METH_VARARGS,
           "_list($self, prefix, /)\n--\n\nThe keys with the prefix."),
    METHOD("_watch", store_watch, METH_VARARGS,
           "_watch($self, prefix, /)\n--\n\nStarts watching the keys with the prefix."),
    METHOD("prune", store_prune, METH_VARARGS,
           "prune($self, idle, /)\n--\n\nDeletes rows that are free and idle for so long; how "
           "many."),
    METHOD("stats", store_stats, METH_NOARGS,
           "stats($self)\n--\n\nCounters, as hf_stats in holdfast.h."),
    METHOD("close", store_close, METH_NOARGS,
           "close($self)\n--\n\nReleases what it holds, ends its waits, and closes."),
    METHOD("__enter__", store_self, METH_NOARGS, "__enter__($self)\n--\n\nThe store itself."),
    METHOD("__exit__", store_exit, METH_VARARGS,
           "__exit__($self, kind, value, traceback, /)\n--\n\nCloses it."),
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef attributes[] = {
    {"url", (getter)store_url, NULL, "the URL, without secrets", NULL},
    {"closed", (getter)store_closed, NULL, "has it been closed?", NULL},
    {"_is_near", (getter)is_near, NULL, "does a release take no request to a server?", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, (void *)store_new},  {Py_tp_dealloc, (void *)store_dealloc},
    {Py_tp_methods, methods},        {Py_tp_getset, attributes},
    {Py_tp_doc, "A store, opened."}, {0, NULL},
};

PyType_Spec store_spec = {"holdfast._holdfast.Store", sizeof(store), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
