/*
 * drivers.h - finds drivers and opens stores by them.
 */
#ifndef HF_DRIVERS_H
#define HF_DRIVERS_H

#include "holdfast_driver.h"

/*
 * Returns the driver of a scheme: the one that is built in, else the first libholdfast-SCHEME.so of
 * these directories:
 *   - $HOLDFAST_DRIVERS, if it is set;
 *   - the directory of the shared library, and `holdfast` in it. If the library is linked into a
 *     program: the program's directory, ../LIBDIR/holdfast and ../lib/holdfast beside it;
 *   - the directory given at build time;
 *   - for a program in the tree of its build: the root of that tree.
 * A loaded module stays loaded. Returns NULL, with the reason in *err: INVALID (the text says where
 * it was looked for), UNAVAILABLE (no descriptors) or NOMEM.
 */
const hf_driver *hf__driver(const char *scheme, hf_error *err);

/* Calls the driver's `resolve`, if it has one. */
int hf__resolve_url(const hf_driver *drv, hf_url *url, hf_error *err);

/* Opens a store, with its capabilities in *ret_caps. HF_INVALID: the capabilities contradict each
   other. After a failure the caller closes *ret, unless it is NULL. */
int hf__open_store(const hf_driver *drv, const hf_url *url, int64_t io_timeout_ms, hf_store **ret,
                   hf_caps *ret_caps, hf_error *err);

/* Calls `see` for every driver that is built in (`path` is NULL) and for every module that can be
   found. For a module that can't be loaded `driver` is NULL, and `why` is the reason. */
void hf__drivers(void (*see)(void *arg, const char *scheme, const hf_driver *driver,
                             const char *path, const char *why),
                 void *arg);

/*
 * May put another driver around the driver of a store that was just opened. Tests define this
 * function (tests/fakes) to make calls fail. In an installed library or command it is NULL.
 * Returns: 0; or the code and *err, if the store can't be opened.
 */
#ifdef __APPLE__ /* whose linker lets nothing be undefined; the tests aren't built there */
static int (*const hf__wrap_opened)(const hf_driver **, hf_store **, hf_caps *, hf_error *) = NULL;
#else
__attribute__((weak, visibility("hidden"))) int
hf__wrap_opened(const hf_driver **drv, hf_store **st, hf_caps *caps, hf_error *err);
#endif

/* Returns the length of a URL without the blanks and line ends behind it. */
size_t hf__url_length(const char *text);

/* Returns 1 if the value of this option of a URL may be a secret, and in doubt. Name and value are
   as in the URL: they may be percent-encoded. */
int hf__url_secret(const char *raw_name, size_t len, const char *raw_value, size_t value_len);

extern const hf_driver hf__mem_driver, hf__file_driver;

#endif
