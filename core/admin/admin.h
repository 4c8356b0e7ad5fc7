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

/* Calls `say` for what the driver finds of the store's settings, if it looks at them: 0 or a code.
 */
int hf__inspect(hf *h, void (*say)(void *arg, int ok, const char *text), void *arg, hf_error *err);

/* Gives a grant back that nothing was done with: its at_least_ms doesn't count. Returns: as
   hf_release; 0 for NULL. */
int hf__give_up(hf_lock *l, hf_error *err);

#endif
