/*
 * acquire_all.c - acquires several keys, or none of them.
 */
#include "handle.h"
#include "options.h"
#include "os.h"
#include "thread.h"

#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b)
{
    return strcmp(**(const char *const *const *)a, **(const char *const *const *)b);
}

int hf_acquire_all(hf *h, const char *const *keys, size_t n, const hf_options *options,
                   hf_lock **ret, hf_error *err)
{
    HF_NOT_CANCELED;
    enum { KEYS_CAP = 64 };
    const char *const *order[KEYS_CAP];
    hf_lock *got[KEYS_CAP];
    if (options && options->size < sizeof *options)
        return hf_fail(err, HF_INVALID, 0, "acquire: options: not initialized");
    hf_options o = options ? *options : hf__default_options;
    if (n < 1 || n > KEYS_CAP)
        return hf_fail(err, HF_INVALID, 0, "acquire: %zu keys: must be 1 to %d", n, KEYS_CAP);
    /* Until hf__end_call, hf_close waits: it mustn't release the locks that were acquired so far.
     */
    int rc = hf__begin_call(h, "acquire", err);
    if (rc) return rc;
    for (size_t i = 0; !rc && i < n; i++) {
        hf_rowkey k;
        rc = hf_key_make(keys[i], &k, err);
        order[i] = &keys[i];
    }
    if (!rc) rc = hf__check_options(h, &o, keys[0], err);
    if (rc) goto out;
    /* All callers acquire several keys in one order, so that they never wait in a circle. */
    qsort(order, n, sizeof *order, by_name);
    for (size_t i = 1; i < n; i++)
        if (!strcmp(*order[i - 1], *order[i]))
            rc = hf_fail(err, HF_INVALID, 0, "acquire '%s': named twice", *order[i]);
    int64_t deadline = o.wait_ms > 0 ? hf__local_us() + o.wait_ms * 1000 : 0;
    size_t held = 0;
    for (; held < n && !rc; held += !rc) {
        if (o.wait_ms > 0) {
            int64_t left = (deadline - hf__local_us() + 999) / 1000;
            o.wait_ms = left > 0 ? left : 1;
        }
        rc = hf_acquire(h, *order[held], &o, &got[order[held] - keys], err);
    }
    for (size_t i = held; rc && i-- > 0;) {
        got[order[i] - keys]->at_least_ms = 0; /* no work was done under it */
        hf_release(got[order[i] - keys], NULL);
    }
    if (!rc) memcpy(ret, got, n * sizeof *ret);
out:
    hf__end_call(h);
    return rc;
}
