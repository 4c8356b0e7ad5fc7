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
    /* Ends the threads that the renewer has started. After that only the thread that calls `stop`
       is left. */
    void (*stop)(struct hf *h);
};

/* Does what hf_open does, with these callbacks. Returns 0, or the error, which *err describes. */
int hf__open_handle(const char *url, const hf_open_options *options, const struct hf_above *above,
                    struct hf **ret, hf_error *err);

#endif
