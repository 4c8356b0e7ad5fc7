/*
 * caller.c - identifies the caller of a function: an asyncio task, or else a thread together with
 * its context (contextvars).
 *
 * A thread of a pool runs the jobs of many callers, so its number alone doesn't identify one. Some
 * pools run each job in a context of its own (anyio, and with it FastAPI; asgiref, and with it
 * Django): a mark in that context identifies the job. Other pools, such as ThreadPoolExecutor,
 * don't: in their threads no wait is refused because the same thread holds the key.
 */
#include "ext.h"

static PyObject *running_loop; /* asyncio._get_running_loop */
static PyObject *current_task; /* asyncio.current_task */
static PyObject *thread_kind;  /* holdfast._aio.thread_kind */
static PyObject *get_mark, *set_mark;

int callers_begin(void)
{
    PyObject *asyncio = PyImport_ImportModule("asyncio");
    PyObject *contextvars = asyncio ? PyImport_ImportModule("contextvars") : NULL;
    PyObject *none = Py_BuildValue("{sO}", "default", Py_None),
             *args = Py_BuildValue("(s)", "mark");
    PyObject *kind = contextvars ? PyObject_GetAttrString(contextvars, "ContextVar") : NULL;
    PyObject *mark = kind && none && args ? PyObject_Call(kind, args, none) : NULL;
    int ok = mark && (running_loop = PyObject_GetAttrString(asyncio, "_get_running_loop")) &&
             (current_task = PyObject_GetAttrString(asyncio, "current_task")) &&
             (get_mark = PyObject_GetAttrString(mark, "get")) &&
             (set_mark = PyObject_GetAttrString(mark, "set"));
    Py_XDECREF(mark);
    Py_XDECREF(kind);
    Py_XDECREF(args);
    Py_XDECREF(none);
    Py_XDECREF(contextvars);
    Py_XDECREF(asyncio);
    return ok ? 0 : -1;
}

uint64_t this_thread(void)
{
    static _Thread_local uint64_t number;
    static uint64_t last;
    if (!number) number = ++last; /* under the GIL */
    return number;
}

/* Reads the mark of this context into *ret; 0: it has none. A context that was copied from another
   thread has the mark of that thread, which counts as none. Returns 0; -1, with an exception. */
static int look_at_mark(uint64_t *ret)
{
    PyObject *mark = PyObject_CallObject(get_mark, NULL);
    if (!mark) return -1;
    *ret = mark == Py_None ? 0 : PyLong_AsUnsignedLongLong(mark);
    Py_DECREF(mark);
    if (*ret >> 32 != this_thread()) *ret = 0;
    return 0;
}

static int read_mark(uint64_t *ret)
{
    static uint32_t last;
    if (look_at_mark(ret)) return -1;
    if (*ret) return 0;
    *ret = this_thread() << 32 | ++last;
    PyObject *undo = PyObject_CallFunction(set_mark, "K", (unsigned long long)*ret);
    Py_XDECREF(undo);
    return undo ? 0 : -1;
}

int caller_read(caller *to)
{
    PyObject *loop = PyObject_CallObject(running_loop, NULL), *task;
    to->task = NULL;
    to->in_loop = loop && loop != Py_None;
    to->mark = this_thread() << 32;
    to->outer = 0;
    if (!to->in_loop) {
        Py_XDECREF(loop);
        return loop ? read_mark(&to->mark) : -1;
    }
    if (look_at_mark(&to->outer)) { /* a task's context is a copy of the one that started it, so it
                                       has the mark of the code that runs the loop */
        Py_DECREF(loop);
        return -1;
    }
    task = PyObject_CallFunctionObjArgs(current_task, loop, NULL);
    Py_DECREF(loop);
    /* An object has at most one weak reference without a callback. So two references to the same
       task are the same pointer. */
    if (task && task != Py_None) to->task = PyWeakref_NewRef(task, NULL);
    int ok = task && (task == Py_None || to->task);
    Py_XDECREF(task);
    return ok ? 0 : -1;
}

void caller_drop(caller *c) { Py_CLEAR(c->task); }

int caller_same(const caller *a, const caller *b)
{
    return a->mark && a->task == b->task && a->mark == b->mark;
}

int caller_kind(void)
{
    PyObject *module = thread_kind ? NULL : PyImport_ImportModule("holdfast._aio");
    if (module) thread_kind = PyObject_GetAttrString(module, "thread_kind");
    Py_XDECREF(module);
    PyObject *is = thread_kind ? PyObject_CallObject(thread_kind, NULL) : NULL;
    int ret = is ? (int)PyLong_AsLong(is) : -1;
    Py_XDECREF(is);
    return ret;
}

/* ---- whose it is ---- */

static int holds(const lock *l, PyObject *key)
{
    return l->l && !l->ended && !PyUnicode_Compare(l->key, key) && hf_left_ms(l->l) > 0;
}

lock *lock_of_caller(store *s, PyObject *key, enum hf_mode mode, const caller *by)
{
    for (lock *l = locks_like(s, key); l; l = l->table_next)
        if (l->mode == mode && !l->once && caller_same(&l->by, by) && holds(l, key)) return l;
    return NULL;
}

/* Returns 1 if no other code of this thread runs while the caller waits; *ret_why then says why the
   wait would never end. */
static int stops_its_thread(const caller *by, int sits, int kind, const char **ret_why)
{
    if (sits && by->in_loop)
        *ret_why = "it is held in this thread, whose event loop would wait for ever: use "
                   "'async with', or acquire_async()";
    else if (sits && kind == IN_GREENLET)
        *ret_why = "it is held in this thread, whose greenlets would all wait for ever";
    else
        return 0;
    return 1;
}

/* Returns 1 if the code that runs this event loop holds the lock. That code goes on, and can
   release the lock, only when the loop has ended. */
static int holds_around(const lock *l, const caller *by)
{
    return by->outer && l->by.mark == by->outer;
}

int lock_waits_for_itself(store *s, PyObject *key, enum hf_mode mode, const caller *by, int sits,
                          const char **ret_why)
{
    int mine = 0, here = 0, around = 0, kind = IN_THREAD;
    for (lock *l = locks_like(s, key); l; l = l->table_next) {
        if (l->by.mark >> 32 != by->mark >> 32 || (mode != HF_EXCLUSIVE && mode == l->mode) ||
            !l->lasts || !holds(l, key))
            continue;
        here = 1;
        mine |= caller_same(&l->by, by);
        around |= holds_around(l, by);
    }
    *ret_why = "this task holds it, and would wait until somebody else releases it: release it "
               "first, or give the wait a limit";
    if (mine && by->task) return HF_RECURSIVE;
    if (!here) return 0;
    if (!around && by->in_loop && !sits) return 0; /* the loop goes on, and so does the holder */
    if (!by->in_loop || around) {
        s->users--; /* Python code follows, which may close the store; close() waits until `users`
                       is 0 */
        kind = caller_kind();
        s->users++;
        if (kind < 0) return RAISED;
        if (s->closing || !s->h) return HF_CANCELED;
    }
    if (stops_its_thread(by, sits, kind, ret_why)) return HF_RECURSIVE;
    if (around) {
        *ret_why = "the code that runs this event loop holds it, and goes on when the loop has "
                   "ended: release it first, or give the wait a limit";
        return kind != IN_POOL ? HF_RECURSIVE : 0;
    }
    *ret_why = "this thread holds it, and would wait until somebody else releases it: release it "
               "first, or give the wait a limit";
    return mine && kind != IN_POOL ? HF_RECURSIVE : 0;
}

/* ---- blocks ---- */

PyObject *stack_of_frame(PyObject *frame)
{
    PyObject *kind, *value, *trace, *stack = NULL;
    PyErr_Fetch(&kind, &value, &trace);
    PyObject *globals = frame ? PyObject_GetAttrString(frame, "f_globals") : NULL;
    PyObject *name = globals ? PyMapping_GetItemString(globals, "__name__") : NULL;
    if (name && PyUnicode_Check(name) && !PyUnicode_CompareWithASCIIString(name, "contextlib")) {
        PyObject *locals = PyObject_GetAttrString(frame, "f_locals");
        stack = locals ? PyMapping_GetItemString(locals, "self") : NULL;
        Py_XDECREF(locals);
    }
    PyObject *callbacks = stack ? PyObject_GetAttrString(stack, "_exit_callbacks") : NULL;
    PyErr_Clear();
    PyObject *ret = stack ? PyWeakref_NewRef(callbacks ? callbacks : stack, NULL) : NULL;
    Py_XDECREF(callbacks);
    Py_XDECREF(stack);
    Py_XDECREF(name);
    Py_XDECREF(globals);
    PyErr_Clear();
    PyErr_Restore(kind, value, trace);
    return ret;
}
