/*
 * plain.c - takes the place of tls.c in the module libholdfast-redis.so: no filter.
 */
#include "link.h"

const struct hf__rd_filter *const hf__rd_filter = NULL;
