/*
 * staged_waiter.h - a wait without a thread, on a staged store: see staged_pair.h.
 */
#ifndef HF_STAGED_WAITER_H
#define HF_STAGED_WAITER_H

#include "staged_pair.h"

#include <pthread.h>

enum { NOT_OVER = 77 };

struct waiter {
    hf_wait *wait;
    hf_lock *lock;
    pthread_t told_by;
    hf_error err;
    int code; /* atomic; NOT_OVER: it isn't */
};

static inline void note(void *arg, int code, hf_lock *l, const hf_error *err)
{
    struct waiter *w = arg;
    if (err) w->err = *err;
    w->lock = l;
    w->told_by = pthread_self();
    __atomic_store_n(&w->code, code, __ATOMIC_SEQ_CST);
}

/* `told`: note(), or a function that calls it at the end. */
static inline void ask_and(hf *store, struct waiter *w, const char *key, const hf_options *options,
                           hf_acquired_fn *told)
{
    *w = (struct waiter){.code = NOT_OVER};
    OK(hf_acquire_start(store, key, options, told, w, &w->wait, &stage_error));
}

static inline void await_end(struct waiter *w)
{
    while (__atomic_load_n(&w->code, __ATOMIC_SEQ_CST) == NOT_OVER) hf__pause(1000);
}

static inline void ends(struct waiter *w, int code)
{
    await_end(w);
    if (w->code != code)
        fail_msg("%s, not %s: %s", hf_code_name(w->code), hf_code_name(code), w->err.text);
    hf_wait_free(w->wait);
}

static inline void ends_with_the_key(struct waiter *w)
{
    ends(w, HF_OK);
    OK(hf_release(w->lock, &stage_error));
}

#endif
