/*
 * kept_error.c - see kept_error.h.
 */
#include "kept_error.h"

#include <stdlib.h>

void hf__error_keep(hf_error **at, const hf_error *why)
{
    if (*at || !why->code) return;
    *at = malloc(sizeof **at);
    if (*at) **at = *why;
}

void hf__error_clear(hf_error **at)
{
    if (!*at) return; /* the usual case; a call of free(NULL) would cost time */
    free(*at);
    *at = NULL;
}
