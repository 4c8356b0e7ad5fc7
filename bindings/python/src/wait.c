/*
 * wait.c - acquisitions under way. A thread of the library writes the result into a C structure
 * (see ext.h). The types: Wait, and Mailbox, which collects the ids of many waits whose results are
 * there.
 */
#include "ext.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- mailboxes ---- */

/* A mailbox: the ids of waits that have a result and of locks that were lost, until they are taken.
   The descriptor is readable while there are any. */
struct box {
    pthread_mutex_t mu;
    int fd;
    int refs; /* of the Mailbox object, and of each wait and lock that may still push; under mu */
    uint64_t *ids;
    size_t n, cap; /* there is room for one push of each reference */
};

struct box_object {
    PyObject_HEAD box *box;
    unsigned generation;
};

void box_push(box *b, uint64_t id)
{
    uint64_t one = 1;
    pthread_mutex_lock(&b->mu);
    b->ids[b->n++] = id;
    ssize_t n = write(b->fd, &one, sizeof one);
    (void)n;
    pthread_mutex_unlock(&b->mu);
}

box *box_of(PyObject *mailbox)
{
    if (!PyObject_TypeCheck(mailbox, box_type)) {
        PyErr_SetString(PyExc_TypeError, "not a Mailbox");
        return NULL;
    }
    box *b = ((struct box_object *)mailbox)->box;
    int ok = 1;
    pthread_mutex_lock(&b->mu);
    if (b->n + (size_t)b->refs + 1 > b->cap) {
        size_t cap = b->cap * 2 + 64;
        uint64_t *ids = realloc(b->ids, cap * sizeof *ids);
        ok = ids != NULL;
        if (ok) b->ids = ids;
        if (ok) b->cap = cap;
    }
    b->refs += ok;
    pthread_mutex_unlock(&b->mu);
    if (!ok) PyErr_NoMemory();
    return ok ? b : NULL;
}

void box_drop(box *b)
{
    if (!b) return;
    pthread_mutex_lock(&b->mu);
    int last = !--b->refs;
    pthread_mutex_unlock(&b->mu);
    if (!last) return;
    pthread_mutex_destroy(&b->mu);
    close(b->fd);
    free(b->ids);
    free(b);
}

int event_fd(void)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0 || fd > STDERR_FILENO) return fd;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), sys = errno;
    close(fd);
    errno = sys;
    return high;
}

static PyObject *box_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)args, (void)kwargs;
    box *b = calloc(1, sizeof *b);
    if (!b) return PyErr_NoMemory();
    b->fd = event_fd();
    if (b->fd < 0) {
        int sys = errno;
        free(b);
        return raise_why(HF_UNAVAILABLE, "wait for results", NULL, strerror(sys));
    }
    pthread_mutex_init(&b->mu, NULL);
    b->refs = 1;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    struct box_object *o = (struct box_object *)alloc(type, 0);
    if (!o) {
        box_drop(b);
        return NULL;
    }
    o->box = b;
    o->generation = fork_generation();
    return (PyObject *)o;
}

static void box_dealloc(struct box_object *o)
{
    PyTypeObject *type = Py_TYPE(o);
    /* A mailbox from before a fork isn't touched: a thread of the parent may have had its mutex
       locked. */
    if (o->box && o->generation == fork_generation()) box_drop(o->box);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(o);
    Py_DECREF(type);
}

/* take() -> [id, ...] */
static PyObject *box_take(struct box_object *o, PyObject *unused)
{
    (void)unused;
    box *b = o->box;
    uint64_t *ids, n;
    if (o->generation != fork_generation()) return PyList_New(0);
    pthread_mutex_lock(&b->mu);
    size_t count = b->n;
    ids = malloc((count + 1) * sizeof *ids);
    if (ids) {
        memcpy(ids, b->ids, count * sizeof *ids);
        b->n = 0;
        ssize_t got = read(b->fd, &n, sizeof n);
        (void)got;
    }
    pthread_mutex_unlock(&b->mu);
    PyObject *to = ids ? PyList_New((Py_ssize_t)count) : PyErr_NoMemory();
    for (size_t i = 0; to && i < count; i++) {
        PyObject *id = PyLong_FromUnsignedLongLong(ids[i]);
        if (!id || PyList_SetItem(to, (Py_ssize_t)i, id)) Py_CLEAR(to);
    }
    free(ids);
    return to;
}

static PyObject *box_fileno(struct box_object *o, PyObject *unused)
{
    (void)unused;
    return PyLong_FromLong(o->box->fd);
}

/* ---- one wait ---- */

/* Takes the result of a wait. Runs on a thread of the library, without the GIL. */
static void told(void *arg, int code, hf_lock *held, const hf_error *err)
{
    waiting *w = arg;
    pthread_mutex_lock(&w->mu);
    int mine = w->abandoned || w->unwanted;
    w->code = code;
    w->lock = mine ? NULL : held;
    if (err) w->err = *err;
    pthread_mutex_unlock(&w->mu);
    if (mine && held) hf_release(held, NULL);
    pthread_mutex_lock(&w->mu);
    w->told = 1;
    box *b = w->abandoned ? NULL : w->box;
    if (b)
        box_push(b, w->id); /* under the mutex, because a thread that abandons the wait gives up
                               the reference to the box */
    sem_post(&w->sem);
    pthread_mutex_unlock(&w->mu);
}

int waiting_start(store *s, hf *h, const char *key, const asked *a, int once, box *to, uint64_t id,
                  waiting **ret, hf_error *err)
{
    hf_options plain = HF_OPTIONS_INIT;
    int rc;
    waiting_reap(s);
    waiting *w = calloc(1, sizeof *w);
    if (!w) {
        box_drop(to);
        snprintf(err->text, sizeof err->text, "out of memory");
        return HF_NOMEM;
    }
    pthread_mutex_init(&w->mu, NULL);
    sem_init(&w->sem, 0, 0);
    w->box = to;
    w->id = id;
    w->store = s;
    w->generation = fork_generation();
    const hf_options *o = a ? &a->o : &plain;
    w->detached = (o->flags & HF_DETACHED) != 0;
    Py_BEGIN_ALLOW_THREADS rc =
        once ? hf_once_start(h, key, a->keep_ms, o, &w->once, told, w, &w->w, err)
             : hf_acquire_start(h, key, o, told, w, &w->w, err);
    Py_END_ALLOW_THREADS if (rc)
    {
        box_drop(to);
        pthread_mutex_destroy(&w->mu);
        sem_destroy(&w->sem);
        free(w);
        return rc;
    }
    w->prev = &s->waits;
    w->next = s->waits;
    if (w->next) w->next->prev = &w->next;
    s->waits = w;
    if (s->closing) hf_wait_cancel(w->w); /* close() ran while this thread didn't have the GIL */
    *ret = w;
    return 0;
}

static int is_told(waiting *w)
{
    pthread_mutex_lock(&w->mu);
    int yes = w->told;
    pthread_mutex_unlock(&w->mu);
    return yes;
}

static void unlink_wait(waiting *w)
{
    *w->prev = w->next;
    if (w->next) w->next->prev = w->prev;
}

void waiting_free(waiting *w)
{
    hf_wait *pending = w->w;
    unlink_wait(w);
    Py_BEGIN_ALLOW_THREADS hf_wait_free(pending); /* the callback was called: it has returned, or is
                                                     about to */
    Py_END_ALLOW_THREADS box_drop(w->box);
    pthread_mutex_destroy(&w->mu);
    sem_destroy(&w->sem);
    free(w);
}

void waiting_reap(store *s)
{
    for (waiting *w; (w = s->given_up) && is_told(w);) waiting_free(w);
}

static void give_up(waiting *w)
{
    store *s = w->store;
    unlink_wait(w);
    w->prev = s->given_up ? s->given_up_end : &s->given_up;
    w->next = NULL;
    *w->prev = w;
    s->given_up_end = &w->next;
}

/* Abandons a wait: a lock that it brings is released at once. */
void waiting_abandon(waiting *w)
{
    if (w->generation != fork_generation()) return; /* the parent's stays as it is */
    give_up(w);
    pthread_mutex_lock(&w->mu);
    w->abandoned = 1;
    hf_lock *held = w->lock;
    int over = w->told;
    w->lock = NULL;
    pthread_mutex_unlock(&w->mu);
    if (!over) hf_wait_cancel(w->w);
    if (held && w->store->h) {
        store *s = w->store; /* w may be freed meanwhile */
        s->users++;
        Py_BEGIN_ALLOW_THREADS hf_release(held, NULL);
        Py_END_ALLOW_THREADS s->users--;
    }
}

/* Waits for the result: in the main thread for 0.1 s only, because only there Python handles
   signals; in other threads until it is there. Returns 0 if the result is there. */
static int sleep_a_little(waiting *w)
{
    struct timespec until;
    if (syscall(SYS_gettid) != getpid()) return sem_wait(&w->sem);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 100000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return sem_timedwait(&w->sem, &until);
}

hf_lock **waits_closed(store *s, size_t *ret_n)
{
    size_t n = 1;
    for (waiting *w = s->waits; w; w = w->next) n++;
    hf_lock **brought = calloc(n, sizeof(hf_lock *));
    *ret_n = 0;
    for (waiting *w = s->waits; w && brought; w = w->next) {
        if (!w->detached) continue;
        pthread_mutex_lock(&w->mu);
        w->unwanted = 1;
        if (w->lock) brought[(*ret_n)++] = w->lock;
        w->lock = NULL;
        pthread_mutex_unlock(&w->mu);
    }
    return brought;
}

int waiting_sit(waiting *w)
{
    for (;;) {
        int rc;
        Py_BEGIN_ALLOW_THREADS rc = sleep_a_little(w);
        Py_END_ALLOW_THREADS if (!rc) return 0;
        w->store->users--; /* a handler may close the store */
        rc = PyErr_CheckSignals();
        w->store->users++;
        if (rc) {
            PyObject *t, *v, *b;
            PyErr_Fetch(&t, &v, &b);
            waiting_abandon(w);
            PyErr_Restore(t, v, b);
            return -1;
        }
    }
}

/* ---- the type Wait ---- */

struct wait_object {
    PyObject_HEAD store *store;
    waiting *w; /* NULL: taken or abandoned */
    PyObject *key;
    asked asked;
    int once;
};

PyObject *wait_blank(store *s, PyObject *key, const asked *a, int once)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(wait_type, Py_tp_alloc);
    struct wait_object *o = (struct wait_object *)alloc(wait_type, 0);
    if (!o) return NULL;
    Py_INCREF(s);
    Py_INCREF(key);
    o->store = s;
    o->key = key;
    o->asked = *a;
    o->asked.owner = o->asked.note = NULL;
    o->once = once;
    return (PyObject *)o;
}

void wait_begin(PyObject *wait, waiting *w) { ((struct wait_object *)wait)->w = w; }

/* Moves the result of a finished wait into `to`, and frees the wait. Returns 0, the wait's code
   (without a text: the store is closed), or RAISED. */
static int receive(store *s, waiting *w, lock *to, hf_error *err, hf_once *once)
{
    int open = s->h != NULL; /* 0: closing the store has released what the wait was granted */
    int rc = w->code;
    hf_lock *held = w->lock;
    *err = w->err;
    *once = w->once;
    s->users++;
    waiting_free(w);
    if ((!rc || rc == HF_CANCELED) && (!open || s->closing)) {
        rc = HF_CANCELED;
        err->text[0] = 0;
        Py_BEGIN_ALLOW_THREADS if (open && held && to->detached) hf_release(held, NULL);
        Py_END_ALLOW_THREADS
    } else if (!rc && held) {
        rc = lock_begin(to, held);
    }
    s->users--;
    return rc;
}

/* take() -> Lock, or for an event the tuple; None: there is no result yet */
static PyObject *wait_take(struct wait_object *o, PyObject *unused)
{
    (void)unused;
    hf_error err;
    hf_once once;
    if (o->w && o->w->generation != fork_generation())
        return raise_why(HF_LOST, "acquire", o->key, "this wait belongs to the parent of a fork");
    caller by;
    lock *to = caller_read(&by) ? NULL : lock_blank(o->store, o->key, &o->asked, &by);
    waiting *w = o->w;
    if (!to) return NULL;
    int ready = w && is_told(w);
    if (ready) o->w = NULL;
    int rc = ready ? receive(o->store, w, to, &err, &once) : 0;
    if (ready && !rc && o->once && !to->l) Py_CLEAR(to); /* the event is done: there is no lock */
    if (ready && !rc) return o->once ? once_tuple(to, &once) : (PyObject *)to;
    Py_DECREF(to);
    if (!w) return raise_why(HF_CANCELED, "acquire", o->key, "this wait is over");
    if (!ready) Py_RETURN_NONE;
    if (rc == RAISED) return NULL;
    if (!*err.text) return raise_why(rc, "acquire", o->key, "the store is closed");
    return raise_code(rc, &err, o->key);
}

static PyObject *wait_abandon(struct wait_object *o, PyObject *unused)
{
    (void)unused;
    waiting *w = o->w;
    o->w = NULL;
    if (w) waiting_abandon(w);
    Py_RETURN_NONE;
}

static void wait_dealloc(struct wait_object *o)
{
    PyTypeObject *type = Py_TYPE(o);
    PyObject *t, *v, *b;
    PyErr_Fetch(&t, &v, &b);
    PyObject_GC_UnTrack(o);
    if (o->w) waiting_abandon(o->w);
    Py_XDECREF(o->store);
    Py_XDECREF(o->key);
    PyErr_Restore(t, v, b);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(o);
    Py_DECREF(type);
}

static int wait_traverse(struct wait_object *o, visitproc visit, void *arg)
{
    Py_VISIT(o->store);
    return 0;
}

static PyMethodDef wait_methods[] = {
    {"take", (PyCFunction)(void (*)(void))wait_take, METH_NOARGS,
     "take($self)\n--\n\nThe Lock, or for an event the tuple; None: not told yet."},
    {"abandon", (PyCFunction)(void (*)(void))wait_abandon, METH_NOARGS,
     "abandon($self)\n--\n\nGives it up; what it brings is released."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot wait_slots[] = {
    {Py_tp_doc, "An acquisition that goes on."},
    {Py_tp_new, (void *)made_by_hand},
    {Py_tp_dealloc, (void *)wait_dealloc},
    {Py_tp_traverse, (void *)wait_traverse},
    {Py_tp_methods, wait_methods},
    {0, NULL},
};

PyType_Spec wait_spec = {"holdfast._holdfast.Wait", sizeof(struct wait_object), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, wait_slots};

static PyMethodDef box_methods[] = {
    {"take", (PyCFunction)(void (*)(void))box_take, METH_NOARGS,
     "take($self)\n--\n\nThe numbers that have come."},
    {"fileno", (PyCFunction)(void (*)(void))box_fileno, METH_NOARGS,
     "fileno($self)\n--\n\nA descriptor that is readable while there are any."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot box_slots[] = {
    {Py_tp_new, (void *)box_new},
    {Py_tp_doc, "Mailbox()\n--\n\nCollects the ids of waits with a result, and of lost locks."},
    {Py_tp_dealloc, (void *)box_dealloc},
    {Py_tp_methods, box_methods},
    {0, NULL},
};

PyType_Spec box_spec = {"holdfast._holdfast.Mailbox", sizeof(struct box_object), 0,
                        Py_TPFLAGS_DEFAULT, box_slots};
