/*
 * driver_ops.h - each operation of a driver once, on a real store, for what makes its parts fail.
 */
#ifndef HF_DRIVER_OPS_H
#define HF_DRIVER_OPS_H

#include "fakes/said.h"

struct op {
    const char *name;
    int (*run)(void);
    int is_there; /* is the row there before it? */
    int good;     /* what it answers */
    int writes;
};

extern const struct op ops[];
extern const size_t ops_n;
extern const hf_driver *driver;

/* Finds the driver of the URL. Returns 0, or 1 after it has printed why not. */
int ops_find(const char *text);
/* Opens the store there; as above. */
int ops_begin(void);
void ops_end(void);
/* Has the driver it? */
int ops_has(const struct op *op);
/* The row is there, or isn't, as the operation wants it; by another handle. */
void ops_prepare(const struct op *op);
/* Returns 1 if the stored row has changed since. */
int ops_changed(void);
/* Prepares the operation and makes it once more. Returns its result. */
int ops_again(const struct op *op);
/* Defined by the program: calls of this thread don't fail from here on (yes), or may. */
void ops_exempt(int yes);

#endif
