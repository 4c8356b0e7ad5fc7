/*
 * above.h - callbacks into core/threads, registered when a handle is opened.
 */
#ifndef HF_ABOVE_H
#define HF_ABOVE_H

#include "holdfast.h"

struct hf;
struct hf_sessions_above;

struct hf_above {
    /* What the threads of the handle run. */
    void *(*dispatcher)(void *handle);
    void *(*monitor)(void *handle);
    void *(*renewer)(void *handle);
    const struct hf_sessions_above *sessions;
    /* Ends what the renewer has started. No other thread but the caller's is left then. */
    void (*stop)(struct hf *h);
};

/* hf_open with those of this handle. 0, or what is in *err. */
int hf__open_handle(const char *url, const hf_open_options *options, const struct hf_above *above,
                    struct hf **ret, hf_error *err);

#endif
