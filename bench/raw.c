/*
 * raw.c - see raw.h.
 */
#include "raw.h"

#include <stddef.h>

const struct raw *const raws[] = {
#ifdef BENCH_REDIS
    &raw_redis,
#endif
    NULL,
};
