/*
 * look.c - peek, list and watch: rows are copied without the GIL, and turned into tuples with it.
 * The type Watch runs hf_watch in a thread that never takes the GIL. So a signal can interrupt an
 * iteration, and the thread never waits for the interpreter.
 */
#include "ext.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A copy of one hf_info. */
struct seen {
    struct seen *next;
    hf_info info;
    hf_party_info parties[];
};

struct seen_list {
    struct seen *first, **last;
    int failed; /* out of memory */
};

static void list_init(struct seen_list *to)
{
    to->first = NULL;
    to->last = &to->first;
    to->failed = 0;
}

static int see(void *arg, const hf_info *info)
{
    struct seen_list *to = arg;
    size_t n = info->n_holders + info->n_waiters;
    struct seen *seen = malloc(sizeof *seen + n * sizeof seen->parties[0]);
    if (!seen) {
        to->failed = 1;
        return 1;
    }
    seen->info = *info;
    seen->next = NULL;
    if (n) memcpy(seen->parties, info->parties, n * sizeof seen->parties[0]);
    *to->last = seen;
    to->last = &seen->next;
    return 0;
}

static void list_free(struct seen_list *list)
{
    for (struct seen *next; list->first; list->first = next) {
        next = list->first->next;
        free(list->first);
    }
    list_init(list);
}

/* (owner, note, token, since_us, left_ms, mode, limit, claimed) */
static PyObject *party_tuple(const hf_party_info *p)
{
    static const char *const modes[] = {"exclusive", "shared", "limited"};
    return Py_BuildValue("(ssKLLsIO)", p->owner, p->note, (unsigned long long)p->token,
                         (long long)p->since_us, (long long)p->left_ms, modes[p->mode], p->limit,
                         p->claimed ? Py_True : Py_False);
}

/* (key, rev, token, now_us, done_us, keep_until_us, result, done_by, holders, waiters) */
static PyObject *seen_tuple(const struct seen *seen)
{
    const hf_info *i = &seen->info;
    PyObject *some[2] = {PyList_New(0), PyList_New(0)};
    int ok = some[0] && some[1];
    for (size_t n = 0; ok && n < i->n_holders + i->n_waiters; n++) {
        PyObject *party = party_tuple(&seen->parties[n]);
        ok = party && !PyList_Append(some[n >= i->n_holders], party);
        Py_XDECREF(party);
    }
    PyObject *ret = !ok ? NULL
                        : Py_BuildValue("(sKKLLLssOO)", i->key, (unsigned long long)i->rev,
                                        (unsigned long long)i->token, (long long)i->now_us,
                                        (long long)i->done_us, (long long)i->keep_until_us,
                                        i->result, i->done_by, some[0], some[1]);
    Py_XDECREF(some[0]);
    Py_XDECREF(some[1]);
    return ret;
}

static PyObject *list_object(struct seen_list *list)
{
    PyObject *to = list->failed ? PyErr_NoMemory() : PyList_New(0);
    for (const struct seen *seen = list->first; to && seen; seen = seen->next) {
        PyObject *one = seen_tuple(seen);
        if (!one || PyList_Append(to, one)) Py_CLEAR(to);
        Py_XDECREF(one);
    }
    list_free(list);
    return to;
}

static PyObject *look(store *s, PyObject *name, int peek)
{
    struct seen_list list;
    hf_error err = {0, 0, ""};
    int rc;
    const char *doing = peek ? "peek" : "list";
    PyObject *bytes = text_bytes(doing, NULL, peek ? "key" : "prefix", name);
    hf *h = bytes ? store_enter(s, doing, name) : NULL;
    if (!h) {
        Py_XDECREF(bytes);
        return NULL;
    }
    const char *text = PyBytes_AsString(bytes);
    list_init(&list);
    Py_BEGIN_ALLOW_THREADS rc = (peek ? hf_peek : hf_list)(h, text, see, &list, &err);
    Py_END_ALLOW_THREADS store_leave(s);
    Py_DECREF(bytes);
    if (!rc) return list_object(&list);
    list_free(&list);
    return raise_code(rc, &err, name);
}

PyObject *store_peek(store *s, PyObject *args)
{
    PyObject *name;
    return PyArg_ParseTuple(args, "O:peek", &name) ? look(s, name, 1) : NULL;
}

PyObject *store_list(store *s, PyObject *args)
{
    PyObject *name;
    return PyArg_ParseTuple(args, "O:list", &name) ? look(s, name, 0) : NULL;
}

/* ---- watching ---- */

struct watching {
    PyObject_HEAD store *store;
    watching *next, **prev; /* in the list of the store, under the GIL; prev NULL: the watch has
                               ended */
    pthread_t thread;
    hf *h;
    char *prefix;
    int fd; /* readable while there is something to take */
    unsigned generation;
    pthread_mutex_t mu; /* protects what follows */
    struct seen_list list;
    int stop, over, code;
    hf_error err;
};

static void ring(watching *w)
{
    uint64_t one = 1;
    ssize_t n = write(w->fd, &one, sizeof one);
    (void)n;
}

static int noticed(void *arg, const hf_info *info)
{
    watching *w = arg;
    pthread_mutex_lock(&w->mu);
    if (info && !w->stop && !see(&w->list, info)) ring(w);
    int stop = w->stop || w->list.failed;
    pthread_mutex_unlock(&w->mu);
    return stop;
}

static void *watch_on(void *arg)
{
    watching *w = arg;
    hf_error err = {0, 0, ""};
    int rc = hf_watch(w->h, w->prefix, noticed, w, &err);
    pthread_mutex_lock(&w->mu);
    w->over = 1;
    w->code = rc;
    w->err = err;
    ring(w);
    pthread_mutex_unlock(&w->mu);
    return NULL;
}

PyObject *store_watch(store *s, PyObject *args)
{
    PyObject *name, *bytes;
    sigset_t all, before;
    if (!PyArg_ParseTuple(args, "O:watch", &name) ||
        !(bytes = text_bytes("watch", NULL, "prefix", name)))
        return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(watch_type, Py_tp_alloc);
    watching *w = (watching *)alloc(watch_type, 0);
    if (!w) {
        Py_DECREF(bytes);
        return NULL;
    }
    Py_INCREF(s);
    w->store = s;
    w->generation = fork_generation();
    w->fd = event_fd();
    w->prefix = strdup(PyBytes_AsString(bytes));
    Py_DECREF(bytes);
    pthread_mutex_init(&w->mu, NULL);
    list_init(&w->list);
    w->h = store_enter(s, "watch", name);
    if (!w->h) {
        Py_DECREF(w);
        return NULL;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the new thread blocks signals, so that the
                                                    program's threads get them */
    int rc = w->fd < 0 || !w->prefix ? errno : pthread_create(&w->thread, NULL, watch_on, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    store_leave(s);
    if (rc) {
        raise_why(rc == ENOMEM ? HF_NOMEM : HF_UNAVAILABLE, "watch", name, strerror(rc));
        Py_DECREF(w);
        return NULL;
    }
    w->prev = &s->watches;
    w->next = s->watches;
    if (w->next) w->next->prev = &w->next;
    s->watches = w;
    return (PyObject *)w;
}

/* Stops the watch, and waits for its thread: a quarter of a second and a request at most. */
static void stop(watching *w)
{
    if (!w->prev) return;
    *w->prev = w->next;
    if (w->next) w->next->prev = w->prev;
    w->prev = NULL;
    if (w->generation != fork_generation()) return;
    w->store->users++;
    Py_BEGIN_ALLOW_THREADS pthread_mutex_lock(&w->mu);
    w->stop = 1;
    pthread_mutex_unlock(&w->mu);
    pthread_join(w->thread, NULL);
    Py_END_ALLOW_THREADS w->store->users--;
    ring(w);
}

void watching_stop_all(store *s)
{
    while (s->watches) {
        watching *w = s->watches;
        Py_INCREF(w);
        stop(w);
        Py_DECREF(w);
    }
}

void watching_forget_all(store *s)
{
    for (watching *w = s->watches; w; w = w->next) w->prev = NULL;
    s->watches = NULL;
}

/* take() -> the rows that came since the last call; if none is left and the watch has ended, raises
   its error, or StopIteration if it was stopped */
static PyObject *watch_take(watching *w, PyObject *unused)
{
    struct seen_list list;
    uint64_t n;
    (void)unused;
    if (w->generation != fork_generation()) return PyList_New(0);
    pthread_mutex_lock(&w->mu);
    list = w->list;
    if (!list.first) list.last = &list.first;
    list_init(&w->list);
    int over = w->over || w->stop, code = w->stop ? 0 : w->code;
    ssize_t got = read(w->fd, &n, sizeof n);
    (void)got;
    if (over) ring(w);
    pthread_mutex_unlock(&w->mu);
    if (list.first || list.failed || !over) return list_object(&list);
    if (code) return raise_code(code, &w->err, NULL);
    PyErr_SetNone(PyExc_StopIteration);
    return NULL;
}

/* wait(): waits until take() has rows to return or an exception to raise */
static PyObject *watch_wait(watching *w, PyObject *unused)
{
    (void)unused;
    struct pollfd fd = {w->fd, POLLIN, 0};
    if (w->generation != fork_generation())
        return raise_text(HF_LOST, NULL, "watch: it belongs to the parent of a fork");
    for (;;) {
        int n;
        Py_BEGIN_ALLOW_THREADS n = poll(&fd, 1, 100);
        Py_END_ALLOW_THREADS if (PyErr_CheckSignals()) return NULL;
        if (n > 0) Py_RETURN_NONE;
    }
}

static PyObject *watch_stop(watching *w, PyObject *unused)
{
    (void)unused;
    stop(w);
    Py_RETURN_NONE;
}

static PyObject *watch_fileno(watching *w, PyObject *unused)
{
    (void)unused;
    return PyLong_FromLong(w->fd);
}

static void watch_dealloc(watching *w)
{
    PyTypeObject *type = Py_TYPE(w);
    PyObject *t, *v, *b;
    PyErr_Fetch(&t, &v, &b);
    PyObject_GC_UnTrack(w);
    stop(w);
    if (w->fd >= 0) close(w->fd);
    if (w->generation == fork_generation()) list_free(&w->list);
    free(w->prefix);
    Py_XDECREF(w->store);
    PyErr_Restore(t, v, b);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(w);
    Py_DECREF(type);
}

static int watch_traverse(watching *w, visitproc visit, void *arg)
{
    Py_VISIT(w->store);
    return 0;
}

#define METHOD(name, function, doc)                                                          \
    {                                                                                        \
        name, (PyCFunction)(void (*)(void))function, METH_NOARGS, name "($self)\n--\n\n" doc \
    }

static PyMethodDef methods[] = {
    METHOD("take", watch_take, "What was seen; StopIteration if it was stopped."),
    METHOD("wait", watch_wait, "Waits until there is something to take."),
    METHOD("stop", watch_stop, "Ends it."),
    METHOD("fileno", watch_fileno,
           "A descriptor that is readable while there is something to take."),
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, (void *)made_by_hand},
    {Py_tp_doc, "Keys that are watched."},
    {Py_tp_dealloc, (void *)watch_dealloc},
    {Py_tp_traverse, (void *)watch_traverse},
    {Py_tp_methods, methods},
    {0, NULL},
};

PyType_Spec watch_spec = {"holdfast._holdfast.Watch", sizeof(watching), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};
