/*
 * admin.h - functions for the command, beside the public ones.
 */
#ifndef HF_ADMIN_H
#define HF_ADMIN_H

#include "holdfast.h"

/* Does what hf_list does; also calls `damaged` for each damaged row, with the reason. */
int hf__list(hf *h, const char *prefix, hf_info_fn *see,
             void (*damaged)(void *arg, const char *key, const char *why), void *arg,
             hf_error *err);

/*
 * Does what hf_watch does; but if a look at the store fails, and `failed` returns 0, the watch goes
 * on. The next look that succeeds shows what has changed meanwhile.
 */
typedef int hf_failed_look_fn(void *arg, const hf_error *why);
int hf__watch(hf *h, const char *prefix, hf_info_fn *see, hf_failed_look_fn *failed, void *arg,
              hf_error *err);

/* Calls `say` for each finding of the driver's `inspect` about the store's settings, if the driver
   has that operation. Returns 0 or the error. */
int hf__inspect(hf *h, void (*say)(void *arg, int ok, const char *text), void *arg, hf_error *err);

/* Releases a lock under which no work was done: its at_least_ms doesn't count. Returns as
   hf_release; 0 for NULL. */
int hf__give_up(hf_lock *l, hf_error *err);

#endif
