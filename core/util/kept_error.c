/*
 * kept_error.c - see kept_error.h.
 */
#include "kept_error.h"

#include <stdlib.h>

void hf__error_keep(hf_error **at, const hf_error *why)
{
    if (*at || !why->code) return;
    *at = malloc(sizeof **at); /* without memory the cause stays unknown */
    if (*at) **at = *why;
}

void hf__error_clear(hf_error **at)
{
    if (!*at)
        return; /* nearly every lock has none, and even a call of free that does nothing costs time
                 */
    free(*at);
    *at = NULL;
}
