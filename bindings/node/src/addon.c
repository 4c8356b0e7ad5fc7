/*
 * addon.c - the data of one environment: ids, events from other threads, its beginning and end.
 */
#include "addon.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* An id is slot + generation * SLOTS: below 2^53, never 0, and never the same twice. */
enum { SLOTS = 1 << 20 };

bool enroll(struct addon *a, struct object *object, enum kind kind)
{
    if (a->free_slot == UINT32_MAX) {
        uint32_t n = a->n_slots ? a->n_slots * 2 : 64;
        struct slot *more = n <= SLOTS ? realloc(a->slots, n * sizeof *more) : NULL;
        if (!more) return false;
        for (uint32_t i = n; i-- > a->n_slots;) {
            more[i] = (struct slot){NULL, 1, a->free_slot};
            a->free_slot = i;
        }
        a->slots = more;
        a->n_slots = n;
    }
    uint32_t at = a->free_slot;
    a->free_slot = a->slots[at].next_free;
    a->slots[at].object = object;
    object->kind = kind;
    object->id = (double)a->slots[at].generation * SLOTS + at;
    return true;
}

void strike(struct addon *a, struct object *object)
{
    if (!object->id) return;
    uint32_t at = (uint32_t)((uint64_t)object->id % SLOTS);
    a->slots[at].object = NULL;
    if (++a->slots[at].generation) { /* a slot whose numbers are used up isn't used again */
        a->slots[at].next_free = a->free_slot;
        a->free_slot = at;
    }
    object->id = 0;
}

struct object *named(struct addon *a, napi_value id, enum kind kind)
{
    double value;
    if (take_number(a->env, id, &value) || !(value >= SLOTS && value < 0x1p53)) return NULL;
    uint32_t at = (uint32_t)((uint64_t)value % SLOTS);
    if (at >= a->n_slots) return NULL;
    struct object *found = a->slots[at].object;
    return found && found->kind == kind && found->id == value ? found : NULL;
}

/* ---- events ---- */

void post(struct addon *a, struct event *e)
{
    /* The queue has no limit, and lives longer than every thread that posts to it. */
    if (napi_call_threadsafe_function(a->queue, e, napi_tsfn_nonblocking) != napi_ok) e->drop(e);
}

static void deliver(napi_env env, napi_value callback, void *context, void *data)
{
    struct addon *a = context;
    struct event *e = data;
    (void)callback;
    if (env && !a->ended)
        e->deliver(a, e);
    else
        e->drop(e);
}

void pend(struct addon *a)
{
    if (!a->pending++) napi_ref_threadsafe_function(a->env, a->queue);
}

void unpend(struct addon *a)
{
    if (!--a->pending) napi_unref_threadsafe_function(a->env, a->queue);
}

/* ---- calls ---- */

struct addon *begin(napi_env env, napi_callback_info info, size_t n, napi_value *argv)
{
    void *data;
    napi_get_cb_info(env, info, &n, argv, NULL, &data);
    return data;
}

void add_methods(napi_env env, napi_value exports, const struct method *methods, size_t n)
{
    void *a;
    napi_get_instance_data(env, &a);
    for (size_t i = 0; i < n; i++) {
        napi_value function;
        if (!napi_create_function(env, methods[i].name, NAPI_AUTO_LENGTH, methods[i].call, a,
                                  &function))
            napi_set_named_property(env, exports, methods[i].name, function);
    }
}

/* (by) Counts waits for a stream: 1 when one begins, -1 when one ends. */
static napi_value js_pend(napi_env env, napi_callback_info info)
{
    napi_value argv[1];
    struct addon *a = begin(env, info, 1, argv);
    double by = 0;
    take_number(env, argv[0], &by);
    if (by > 0)
        pend(a);
    else if (a->pending)
        unpend(a);
    return NULL;
}

/* () Returns how many waits and calls are under way; for tests. */
static napi_value js_pending(napi_env env, napi_callback_info info)
{
    return number(env, begin(env, info, 0, NULL)->pending);
}

/* ---- beginning and end ---- */

/* The addons of this thread's environment: a list. */
static _Thread_local struct addon *here;

/* Releases all locks and closes all stores. No store can be opened after that. */
static void end(struct addon *a)
{
    if (a->ended) return;
    stores_end(a);
    a->ended = true;
}

/* Ends all addons of this environment: called as the listener of the event 'exit', because
   process.exit() runs no cleanup hooks, and for a signal. */
static napi_value js_end(napi_env env, napi_callback_info info)
{
    (void)env;
    (void)info;
    for (struct addon *a = here; a; a = a->next) end(a);
    return NULL;
}

/* Runs in exit() of the C library, which every process.exit() ends in. The listener above may not
   have run: another listener has exited or thrown, or process.removeAllListeners() was called. */
static void at_exit(void)
{
    for (struct addon *a = here; a; a = a->next) {
        if (!a->ended) stores_leave(a);
        a->ended = true;
    }
}

/* Registers at_exit again when a store of a new kind is opened. Handlers run in reverse order, so
   this one runs before those of the libraries that this open has loaded. */
void close_at_exit(const char *url)
{
    enum { KINDS = 64 };
    static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
    static char seen[KINDS][16];
    static size_t n;
    size_t length = strcspn(url, ":"), i = 0;
    if (length >= sizeof *seen) length = sizeof *seen - 1;
    pthread_mutex_lock(&mu);
    while (i < n && (strncmp(seen[i], url, length) || seen[i][length])) i++;
    if (i == n && n < KINDS && !atexit(at_exit)) memcpy(seen[n++], url, length);
    pthread_mutex_unlock(&mu);
}

/* The cleanup hook. It runs before the queue of events ends, because it was added later. */
static void at_end(void *arg)
{
    struct addon **at = &here;
    while (*at && *at != arg) at = &(*at)->next;
    if (*at) *at = (*at)->next;
    end(arg);
}

/* Adds one listener for each environment, however often its program loads the file. The package's
   JavaScript can't add it, because the `process` that it sees may be a test runner's copy. */
static napi_status listen_for_exit(napi_env env)
{
    napi_value global, process, once, argv[2];
    napi_status rc = napi_get_global(env, &global);
    if (!rc) rc = napi_get_named_property(env, global, "process", &process);
    if (!rc) rc = napi_get_named_property(env, process, "once", &once);
    if (!rc) rc = napi_create_string_utf8(env, "exit", NAPI_AUTO_LENGTH, &argv[0]);
    if (!rc) rc = napi_create_function(env, "holdfast", NAPI_AUTO_LENGTH, js_end, NULL, &argv[1]);
    return rc ? rc : napi_call_function(env, process, once, 2, argv, NULL);
}

/* () Returns whether the queue of events keeps the process alive. Tools that list open handles call
   hasRef(). */
static napi_value js_has_ref(napi_env env, napi_callback_info info)
{
    napi_value ret = NULL;
    napi_get_boolean(env, begin(env, info, 0, NULL)->pending != 0, &ret);
    return ret;
}

/* The queue of events lasts as long as the environment, and keeps the values that AsyncLocalStorage
   has when the queue is made. So the queue is made outside the asynchronous context that has loaded
   the addon; see begin_events. */
static napi_value js_begin_events(napi_env env, napi_callback_info info)
{
    napi_value name, resource;
    struct addon *a = begin(env, info, 0, NULL);
    static const struct method methods[] = {{"hasRef", js_has_ref}};
    if (napi_create_string_utf8(env, "holdfast", NAPI_AUTO_LENGTH, &name) ||
        napi_create_object(env, &resource))
        return NULL;
    ADD_METHODS(env, resource, methods);
    if (napi_create_threadsafe_function(env, NULL, resource, name, 0, 1, NULL, NULL, a, deliver,
                                        &a->queue))
        a->queue = NULL;
    return NULL;
}

static napi_status begin_events(struct addon *a)
{
    napi_value outside, function;
    napi_status rc = napi_create_object(a->env, &outside);
    if (!rc) rc = napi_create_function(a->env, NULL, 0, js_begin_events, a, &function);
    if (!rc) rc = napi_make_callback(a->env, NULL, outside, function, 0, NULL, NULL);
    if (!rc && !a->queue) rc = napi_generic_failure;
    return rc ? rc : napi_unref_threadsafe_function(a->env, a->queue);
}

static void finalize(napi_env env, void *data, void *hint)
{
    struct addon *a = data;
    (void)env;
    (void)hint;
    free(a->slots);
    free(a);
}

/* Keeps this code in memory, because the library's threads and fork handlers outlive an
   environment. */
static void stay(void)
{
    Dl_info info;
    if (dladdr((const void *)&stay, &info)) dlopen(info.dli_fname, RTLD_LAZY | RTLD_NODELETE);
}

NAPI_MODULE_INIT()
{
    struct addon *a = calloc(1, sizeof *a);
    if (!a) return NULL;
    stay();
    a->env = env;
    a->free_slot = UINT32_MAX;
    if (napi_set_instance_data(env, a, finalize, NULL)) {
        free(a);
        return NULL;
    }
    if ((!here && listen_for_exit(env)) || begin_events(a) ||
        napi_add_env_cleanup_hook(env, at_end, a)) {
        napi_throw_error(env, NULL, "holdfast: the addon cannot be set up");
        return NULL;
    }
    a->next = here;
    here = a;
    static const struct method methods[] = {
        {"pend", js_pend}, {"pending", js_pending}, {"end", js_end}};
    ADD_METHODS(env, exports, methods);
    napi_set_named_property(env, exports, "version", text(env, hf_version()));
    store_exports(env, exports);
    lock_exports(env, exports);
    acquire_exports(env, exports);
    stream_exports(env, exports);
    return exports;
}
