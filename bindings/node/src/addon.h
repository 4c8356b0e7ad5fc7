/*
 * addon.h - the inside of the Node addon, shared by its files.
 *
 * Every Node environment (the main thread, each worker) has an addon of its own: struct addon; a
 * second one if its program has loaded the file again. Several copies of the JavaScript around it
 * may use one addon (a test runner evaluates the modules anew for each test file), so an addon
 * keeps nothing that belongs to one of them beyond a call, a wait, a stream or a lock. JavaScript
 * names stores, locks, waits and streams by numbers (ids), which are checked at each call; nothing
 * here is freed by the garbage collector.
 *
 * Threads: only the environment's own thread uses what this file declares, except where a comment
 * says otherwise. Other threads report by events, which they post to that thread (post).
 */
#ifndef HF_NODE_ADDON_H
#define HF_NODE_ADDON_H

#include <holdfast.h>
#include <node_api.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct addon;
struct store;
struct lock;

enum kind { KIND_STORE, KIND_LOCK, KIND_WAIT, KIND_STREAM };

/* What an id names: the first member of struct store, lock, wait and stream. */
struct object {
    enum kind kind;
    double id; /* 0: it has no id yet, or no longer */
};

/* A message from another thread. It is posted once. Then it is either delivered, or dropped when
   the environment has ended: a drop frees the event's own memory and touches nothing else. */
struct event {
    void (*deliver)(struct addon *a, struct event *e);
    void (*drop)(struct event *e);
};

struct slot {
    struct object *object;
    uint32_t generation, next_free;
};

struct addon {
    napi_env env;
    napi_threadsafe_function queue; /* of events */
    struct addon *next;             /* of the same environment */
    unsigned pending; /* how many calls and waits are under way, and how often the program waits for
                         a stream's next row; while there are any, the process stays alive */
    struct store *stores;
    struct slot *slots;
    uint32_t n_slots, free_slot;
    double last_wait; /* the id of the wait that was started last */
    bool ended;
};

struct store {
    struct object object;
    struct store *next;
    struct addon *addon;
    hf *h;
    char *warning; /* the text of hf_store_warning; NULL: none */
    bool instant;  /* its requests never go over a network, so they are made in the calling
                      thread */
    bool closing;
    uint64_t looks; /* attempts that found the key held and were followed by a wait: stats takes
                       them off `busy` */
    unsigned refs;  /* waits, locks, jobs and streams that point here, and the open store itself */
    struct lock *locks;
    struct wait *waits;
    struct stream *streams;
    napi_deferred dropped; /* the promise of js_close_idle; NULL: the program still has the store */
    pthread_t closer;
    bool closer_runs;
    hf_lock **brought; /* grants to detached waits of a closed store: closing it releases them */
    size_t n_brought;

    pthread_mutex_t mu; /* protects what follows, which the threads share */
    pthread_cond_t work, idle;
    struct job *first, *last;
    pthread_t threads[4];
    unsigned n_threads, n_idle, n_streaming;
    bool stop;
    bool waits_closed; /* grants to detached waits are released at once */
};

struct lock {
    struct object object;
    struct lock *next, **prev;
    struct store *store;
    hf_lock *l;          /* NULL: released, or the store is closed */
    unsigned busy;       /* jobs that use it */
    struct job *release; /* waits until it isn't busy */
    napi_ref on_lost;    /* NULL: no callback is registered */
    struct event lost;   /* the event of its loss, posted by a thread of the library */
    bool lost_posted;    /* atomic; true from then on */
    bool lost_done;      /* the event has been delivered */
};

struct wait {
    struct event event;
    struct object object;
    struct wait *next, **prev;
    struct store *store;
    hf_wait *w;
    napi_deferred deferred;
    bool is_once, detached;
    int code;
    hf_lock *got; /* under the store's mutex */
    hf_once once;
    hf_error err;
    char key[HF_KEY_CAP + 3];
};

/* A copy of an hf_info, with its parties. */
struct info {
    hf_info it;
    hf_party_info parties[];
};

/* A call that may block, made by one of the store's threads. */
struct job {
    struct event event;
    struct job *next;
    struct store *store;
    struct lock *lock; /* or NULL */
    void (*work)(struct job *job);
    /* What the promise is resolved with; NULL: undefined. */
    napi_value (*result)(struct addon *a, struct job *job);
    napi_deferred deferred; /* NULL: the job has no promise */
    const char *doing;      /* for errors; NULL: "close" */
    bool gives_back;        /* the job releases its lock, as closing the store does */
    bool lost;              /* the lock was over already when the store was closed */
    int code;
    hf_error err;
    int64_t ms;
    uint64_t number;
    hf_lock *l, *got;
    struct info *info;
    char *url;
    hf_open_options open;
    char owner[HF_OWNER_CAP + 3], note[HF_NOTE_CAP + 3];
    char key[HF_KEY_CAP + 3];
    char text[1024];
};

/* Options of an acquisition, with what they point to. */
struct wanted {
    hf_options o;
    bool plain; /* only wait_ms is set */
    char owner[HF_OWNER_CAP + 3], note[HF_NOTE_CAP + 3];
    uint8_t id[16];
};

/* addon.c */
bool enroll(struct addon *a, struct object *object, enum kind kind); /* false: no memory */
void strike(struct addon *a, struct object *object);
struct object *named(struct addon *a, napi_value id, enum kind kind); /* NULL: the id names no such
                                                                         object */
void post(struct addon *a, struct event *e);                          /* any thread */
void pend(struct addon *a);
void unpend(struct addon *a);
struct addon *begin(napi_env env, napi_callback_info info, size_t n, napi_value *argv);

/* values.c */
napi_value number(napi_env env, double value);
napi_value text(napi_env env, const char *value);
void fail(struct addon *a, int code, const char *key, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void fail_with(struct addon *a, const hf_error *err, const char *key);
napi_value failure(struct addon *a, const hf_error *err, int code, const char *key);
void settle(struct addon *a, napi_deferred deferred, int code, const hf_error *err, const char *key,
            napi_value value);
int take_text(napi_env env, napi_value value, char *to, size_t cap, const char *key,
              const char *what);
int take_key(struct addon *a, napi_value value, char to[HF_KEY_CAP + 3]);
int take_number(napi_env env, napi_value value, double *ret);
int take_wanted(struct addon *a, napi_value options, const char *key, struct wanted *to);
napi_value info_value(struct addon *a, const hf_info *info);
napi_value once_value(struct addon *a, const hf_once *once);
struct info *info_copy(const hf_info *info);

/* jobs.c */
struct job *job_new(struct store *s, void (*work)(struct job *job), napi_value *promise);
void job_start(struct job *job);
void job_closed(struct job *job); /* the job fails, because its store is closed */
void job_deliver(struct addon *a, struct event *e);
void jobs_begin(struct store *s);
void jobs_end(struct store *s); /* any thread: returns when the jobs that had begun are done */
int start_thread(pthread_t *thread, void *(*body)(void *), void *arg);

/* store.c */
struct store *store_of(struct addon *a, napi_value id); /* NULL: an exception is pending */
void store_unref(struct store *s);
void stores_end(struct addon *a);
void stores_leave(struct addon *a);
void close_at_exit(const char *url); /* called with the URL of each store that was opened */
void store_exports(napi_env env, napi_value exports);

/* lock.c */
struct lock *lock_new(struct store *s, hf_lock *l); /* NULL: no memory; the grant was released */
void lock_unbusy(struct job *job);
void locks_closed(struct store *s);
void locks_forget(struct store *s);
void lock_exports(napi_env env, napi_value exports);

/* acquire.c */
void waits_closed(struct store *s);
void acquire_exports(napi_env env, napi_value exports);

/* stream.c */
void streams_stop(struct store *s);
void stream_exports(napi_env env, napi_value exports);

struct method {
    const char *name;
    napi_callback call;
};
void add_methods(napi_env env, napi_value exports, const struct method *methods, size_t n);
#define ADD_METHODS(env, exports, list) \
    add_methods(env, exports, list, sizeof(list) / sizeof *(list))

#endif
