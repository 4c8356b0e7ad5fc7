/*
 * wrap_opened.c - hf__wrap_opened, as the environment says: $HOLDFAST_FAULT, $HOLDFAST_TRACE.
 */
#include "drivers.h"
#include "faults.h"

#include <stdlib.h>

int hf__wrap_opened(const hf_driver **drv, hf_store **st, hf_caps *caps, hf_error *err)
{
    const char *fault = getenv("HOLDFAST_FAULT"), *trace = getenv("HOLDFAST_TRACE");
    int rc = fault ? hf__wrap_fault(drv, st, caps, fault, err) : 0;
    if (!rc && trace && *trace) rc = hf__wrap_trace(drv, st, caps, trace, err);
    return rc;
}
