/*
 * drivers.h - which drivers there are.
 */
#ifndef HF_DRIVERS_H
#define HF_DRIVERS_H

#include "holdfast_driver.h"

/*
 * The driver of a scheme: built in, else loaded from libholdfast-SCHEME.so in $HOLDFAST_DRIVERS
 * (if set), else beside this library or in `holdfast/` there, or from a program that it was linked
 * into in ../LIBDIR/holdfast or ../lib/holdfast, else in the directory given at build time. NULL:
 * why in *err (INVALID with what was tried; UNAVAILABLE: no descriptors). Loaded modules stay
 * loaded.
 */
const hf_driver *hf__driver(const char *scheme, hf_error *err);

/* Calls the driver's `resolve`, if it has one. */
int hf__resolve_url(const hf_driver *drv, hf_url *url, hf_error *err);

/* Opens a store, with its capabilities in *ret_caps. HF_INVALID: they contradict each other. After
   a failure *ret is to be closed, unless it is NULL. */
int hf__open_store(const hf_driver *drv, const hf_url *url, int64_t io_timeout_ms, hf_store **ret,
                   hf_caps *ret_caps, hf_error *err);

/* Calls see for every driver: built in, and every module that can be found; `driver` is NULL and
   `why` says why for one that cannot be loaded. */
void hf__drivers(void (*see)(void *arg, const char *scheme, const hf_driver *driver,
                             const char *path, const char *why),
                 void *arg);

/*
 * Called for each store that is opened: may put another driver around its driver. Tests define it
 * (tests/fakes), to make calls fail. No library or command that is installed has it: NULL.
 * Returns: 0, or why the store can't be opened in *err.
 */
__attribute__((weak, visibility("hidden"))) int
hf__wrap_opened(const hf_driver **drv, hf_store **st, hf_caps *caps, hf_error *err);

/* Returns 1 if the value of this parameter of a URL may be a secret; in doubt it is. The name is
   raw: percent-encoded or not. */
int hf__url_secret(const char *raw_name, size_t len, const char *raw_value, size_t value_len);

extern const hf_driver hf__mem_driver, hf__file_driver;

#endif
