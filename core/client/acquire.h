/*
 * acquire.h - from asking for a key to holding it.
 */
#ifndef HF_ACQUIRE_H
#define HF_ACQUIRE_H

#include "holdfast_driver.h"

struct hf_entry;
struct hf_wait;

/* A mark made before its event must be on disk before that runs; if it can't be, it doesn't run. */
int hf__once_mark(hf_lock **lock, unsigned flags, hf_error *err);
/*
 * Would a request with these options wait for its own caller, without end? The caller is this
 * thread (thread 0: no thread waits), or the owner that the options name. Only grants of this
 * handle count: of another process's nobody knows whether the process still runs.
 *
 * Returns: 0, or HF_RECURSIVE, which `err` describes. Under the mutex.
 */
int hf__waits_for_itself(const struct hf_entry *e, const hf_options *o, uint64_t thread,
                         const char *doing, hf_error *err);
/* Starts the renewer if a grant of this request would be renewed. A grant without its renewer would
   be lost silently when its lease ends, so the request fails before the store is asked.
   Returns: 0, or the reason in *err. Under the mutex. */
int hf__ready_to_renew(hf *h, const struct hf_wait *w, hf_error *err);

#endif
