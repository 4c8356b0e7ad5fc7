/*
 * above.h - what stands above the client: registered when a handle is opened.
 */
#ifndef HF_ABOVE_H
#define HF_ABOVE_H

#include "holdfast.h"

struct hf;
struct hf_sessions_above;
struct hf_wait;

struct hf_above {
    /* What the threads of the handle run. */
    void *(*pump)(void *handle);
    void *(*tender)(void *handle);
    void *(*renewer)(void *handle);
    /* By the thread of a wait that the pump drives, under the mutex. 1: it is to lead. */
    int (*leads)(struct hf *h, struct hf_wait *w);
    /* Until its wait is over, or isn't the only one any more. Under the mutex, dropped. */
    void (*lead)(struct hf *h, struct hf_wait *w);
    const struct hf_sessions_above *sessions;
    /* Ends what the renewer has started. No other thread but the caller's is left then. */
    void (*stop)(struct hf *h);
};

/* hf_open with those of this handle. 0, or what is in *err. */
int hf__open_handle(const char *url, const hf_open_options *options, const struct hf_above *above,
                    struct hf **ret, hf_error *err);

#endif
