/*
 * promises.h - what a kind of store promises, in words. See promises.c.
 */
#ifndef CLI_PROMISES_H
#define CLI_PROMISES_H

#include "holdfast_driver.h"

/* LESS: it is promised in part, or in a slower way. */
enum promise { PROMISED, LESS, NOT_PROMISED };

/* Calls `say` for each promise, then for each that isn't made. */
void store_promises(const hf_driver *drv, const hf_caps *caps,
                    void (*say)(void *arg, enum promise is, const char *words), void *arg);

#endif
