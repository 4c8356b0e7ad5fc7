/*
 * plain.c - what libholdfast-redis.so has where libholdfast-rediss.so has tls.c: nothing.
 */
#include "link.h"

const struct hf__rd_filter *const hf__rd_filter = NULL;
