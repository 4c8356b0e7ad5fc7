/*
 * admin.h - what the command asks of a store beyond the public functions.
 */
#ifndef HF_ADMIN_H
#define HF_ADMIN_H

#include "holdfast.h"

/* hf_list, which also calls `damaged` for each row that is damaged, with the reason. */
int hf__list(hf *h, const char *prefix, hf_info_fn *see,
             void (*damaged)(void *arg, const char *key, const char *why), void *arg,
             hf_error *err);

/*
 * hf_watch, which goes on after a look that failed with *why if `failed` returns 0. What changed
 * meanwhile is shown by the next look that succeeds.
 */
typedef int hf_failed_look_fn(void *arg, const hf_error *why);
int hf__watch(hf *h, const char *prefix, hf_info_fn *see, hf_failed_look_fn *failed, void *arg,
              hf_error *err);

/* Calls `say` for each finding of the driver about the store's settings, if the driver looks at
   them. Returns 0 or the error. */
int hf__inspect(hf *h, void (*say)(void *arg, int ok, const char *text), void *arg, hf_error *err);

/* Releases a grant under which no work was done: its at_least_ms doesn't count. Returns as
   hf_release; 0 for NULL. */
int hf__give_up(hf_lock *l, hf_error *err);

#endif
