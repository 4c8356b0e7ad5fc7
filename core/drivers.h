/*
 * drivers.h - which drivers there are, and drivers around drivers.
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

/* What an opened store can (enum hf_can). */
unsigned hf__can(const hf_driver *drv, hf_store *st);

/* Calls see for every driver: built in, and every module that can be found; `driver` is NULL and
   `why` says why for one that cannot be loaded. */
void hf__drivers(void (*see)(void *arg, const char *scheme, const hf_driver *driver,
                             const char *path, const char *why),
                 void *arg);

/*
 * A driver around an opened one. On success *drv and *st are replaced; closing the new store closes
 * and frees all of it. wrap_trace writes a line per call to `where` ("stderr" or a file to append
 * to; $HOLDFAST_TRACE). wrap_fault fails calls by `plan` ($HOLDFAST_FAULT; see
 * drivers/wrap_fault.c).
 */
int hf__wrap_trace(const hf_driver **drv, hf_store **st, const char *where, hf_error *err);
int hf__wrap_fault(const hf_driver **drv, hf_store **st, const char *plan, hf_error *err);

/* What the faults of this process have come to so far, over all handles. */
struct hf__fault_counts {
    uint64_t calls, injected;
};
void hf__fault_counts(struct hf__fault_counts *ret);

/* May the value of this parameter of a URL be a secret? Rather hidden once too often. The name is
   raw: percent-encoded or not. */
int hf__url_secret(const char *raw_name, size_t len, const char *raw_value, size_t value_len);

extern const hf_driver hf__mem_driver, hf__file_driver;

#endif
