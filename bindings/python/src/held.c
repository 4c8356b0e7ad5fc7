/*
 * held.c - the locks of a store that aren't released yet: a list of all, and a table by key, so
 * that a wait looks at those of its own key alone, however many its store holds.
 */
#include "ext.h"

#include <stdlib.h>
#include <string.h>

size_t key_hash(PyObject *key)
{
    PyObject *plain = PyUnicode_FromObject(key); /* a subclass may have a hash of its own */
    Py_hash_t hash = plain ? PyObject_Hash(plain) : 0;
    Py_XDECREF(plain);
    PyErr_Clear();
    return (size_t)hash;
}

/* Returns the list for a hash; there is only one until the first table is made. */
static lock **bucket(store *s, size_t hash)
{
    return s->table ? &s->table[hash & s->table_mask] : &s->one_bucket;
}

static void put(lock *l)
{
    lock **at = bucket(l->store, l->hash);
    l->table_next = *at;
    l->table_prev = at;
    if (l->table_next) l->table_next->table_prev = &l->table_next;
    *at = l;
}

/* Makes a larger table. If there is no memory, the lists get longer instead. */
static void grow(store *s)
{
    size_t n = s->table ? (s->table_mask + 1) * 4 : 64;
    lock **more = calloc(n, sizeof(lock *));
    if (!more) return;
    free(s->table);
    s->table = more;
    s->table_mask = n - 1;
    for (lock *l = s->locks; l; l = l->next) put(l);
}

void lock_enlist(lock *to)
{
    store *s = to->store;
    to->next = s->locks;
    to->prev = &s->locks;
    if (to->next) to->next->prev = &to->next;
    s->locks = to;
    put(to);
    if (++s->n_locks > 2 * (s->table ? s->table_mask + 1 : 4)) grow(s);
    PyObject_GC_Track(to);
}

void lock_delist(lock *l)
{
    *l->prev = l->next;
    if (l->next) l->next->prev = l->prev;
    l->prev = NULL;
    *l->table_prev = l->table_next;
    if (l->table_next) l->table_next->table_prev = l->table_prev;
    l->store->n_locks--;
}

lock *locks_like(store *s, PyObject *key) { return *bucket(s, key_hash(key)); }

void locks_forget_all(store *s)
{
    for (lock *l = s->locks; l; l = l->next) l->prev = NULL;
    if (s->table) memset(s->table, 0, (s->table_mask + 1) * sizeof(lock *));
    s->locks = s->one_bucket = NULL;
    s->n_locks = 0;
}

/* ---- what a lock keeps for on_lost ---- */

/* _callbacks: None until they are set. The lock has them, so that the collector finds a cycle of a
   lock and a callback that refers to it. */
PyObject *lock_callbacks(lock *l, void *unused)
{
    (void)unused;
    PyObject *are = l->callbacks ? l->callbacks : Py_None;
    Py_INCREF(are);
    return are;
}

/* The first that are set stay, even if another thread or a signal handler sets some. */
int lock_keep_callbacks(lock *l, PyObject *to, void *unused)
{
    (void)unused;
    if (l->callbacks || !to) return 0;
    Py_INCREF(to);
    l->callbacks = to;
    return 0;
}

int lock_traverse(lock *l, visitproc visit, void *arg)
{
    Py_VISIT(l->store);
    Py_VISIT(l->root);
    Py_VISIT(l->below);
    Py_VISIT(l->callbacks);
    return 0;
}

int lock_clear(lock *l)
{
    Py_CLEAR(l->callbacks);
    return 0;
}
